//! `uhr.flamegraph/1` and `uhr.export/1`: what was written where.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Coverage, MetricTotal, RecordingSummary};
use crate::filter::Filters;

/// The answer of `uhr flamegraph`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct FlamegraphAnswer {
    /// Always `uhr.flamegraph/1`.
    #[schemars(extend("const" = "uhr.flamegraph/1"))]
    pub schema: &'static str,
    /// Always true.
    #[schemars(extend("const" = true))]
    pub ok: bool,
    /// What was asked about.
    pub recording: RecordingSummary,
    /// What was asked.
    pub request: FlamegraphRequest,
    /// The sum over the selection.
    pub metric: MetricTotal,
    /// The picture.
    pub written: Written,
    /// What the answer rests on.
    pub coverage: Coverage,
    /// Commands that make sense next.
    pub next: Vec<String>,
}

/// What was asked of `uhr flamegraph`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct FlamegraphRequest {
    /// The metric.
    pub metric: String,
    /// The filters.
    pub filters: Filters,
    /// Whether waits for work were asked for too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub idle: bool,
    /// Whether leaves are at the root.
    pub inverted: bool,
}

/// The answer of `uhr export`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ExportAnswer {
    /// Always `uhr.export/1`.
    #[schemars(extend("const" = "uhr.export/1"))]
    pub schema: &'static str,
    /// Always true.
    #[schemars(extend("const" = true))]
    pub ok: bool,
    /// What was asked about.
    pub recording: RecordingSummary,
    /// What was asked.
    pub request: ExportRequest,
    /// The sum over the selection.
    pub metric: MetricTotal,
    /// The file.
    pub written: Written,
    /// What the answer rests on.
    pub coverage: Coverage,
    /// Commands that make sense next.
    pub next: Vec<String>,
}

/// What was asked of `uhr export`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ExportRequest {
    /// The format.
    pub format: String,
    /// The metric.
    pub metric: String,
    /// The filters.
    pub filters: Filters,
    /// Whether waits for work were asked for too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub idle: bool,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Written {
    /// The new file; `-` is standard output.
    pub path: String,
    /// Frames of a picture, or stacks of a text, that are in it.
    pub frames: u64,
    /// Frames too small to be in it; their callers are there and include them.
    pub hidden: u64,
    /// Share of the total that lies in hidden frames.
    pub hidden_share: f64,
}
