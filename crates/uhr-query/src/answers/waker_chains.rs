//! `uhr.waker-chains/1`: who waited, who ended the wait, and who had ended that one's last wait.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Coverage, KeyValue, MetricTotal, RecordingSummary, Shown};
use crate::filter::Filters;

/// The answer of `uhr call-paths --wakers`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct WakerChainsAnswer {
    /// Always `uhr.waker-chains/1`.
    #[schemars(extend("const" = "uhr.waker-chains/1"))]
    pub schema: &'static str,
    /// Always true.
    #[schemars(extend("const" = true))]
    pub ok: bool,
    /// What was asked about.
    pub recording: RecordingSummary,
    /// What was asked.
    pub request: WakerChainsRequest,
    /// The time blocked that the shares of the rows are of.
    pub metric: MetricTotal,
    /// The chains, the largest first.
    pub rows: Vec<WakerChain>,
    /// Which of how many rows these are.
    pub shown: Shown,
    /// What the answer rests on.
    pub coverage: Coverage,
    /// Commands that make sense next.
    pub next: Vec<String>,
}

/// What was asked, as it was understood.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct WakerChainsRequest {
    /// The metric: `off-cpu`.
    pub metric: String,
    /// The filters. `thread` and `process` are those that waited.
    pub filters: Filters,
    /// Whether waits for work were asked for too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub idle: bool,
    /// The most rows.
    pub limit: u64,
    /// Rows left out before the first.
    pub offset: u64,
}

/// Waits of one thread that were ended in the same way.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct WakerChain {
    /// The thread that waited.
    #[schemars(with = "super::key::ThreadSchema")]
    pub waiter: KeyValue,
    /// What ended the wait; then what had ended that one's own last wait; and so on. A thread, or an interrupt. Empty
    /// where it is not known what ended the wait.
    #[schemars(with = "Vec<super::key::WakerSchema>")]
    pub woken_by: Vec<KeyValue>,
    /// Whether some of these chains go on; `--detail full` shows them whole.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
    /// What was mostly waited for.
    pub wait: &'static str,
    /// Where the first waker mostly was: its innermost function outside of the kernel and the C library.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waker_function: Option<String>,
    /// The time blocked.
    #[serde(rename = "self")]
    pub own: u64,
    /// It as a share.
    pub self_share: f64,
    /// Waits behind it.
    pub self_samples: u64,
    /// 95 % interval of `self_share`.
    pub self_share_ci95: [f64; 2],
    /// Why the interval is [0, 1], or not to be relied on: `few-samples`, `long-phases`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_note: Option<&'static str>,
}
