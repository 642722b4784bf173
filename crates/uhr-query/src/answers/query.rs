//! `uhr.query/1`: one metric, grouped.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Coverage, Key, MetricTotal, RecordingSummary, Shown};
use crate::filter::Filters;

/// The answer of `uhr query`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct QueryAnswer {
    /// Always `uhr.query/1`.
    #[schemars(extend("const" = "uhr.query/1"))]
    pub schema: &'static str,
    /// Always true.
    #[schemars(extend("const" = true))]
    pub ok: bool,
    /// What was asked about.
    pub recording: RecordingSummary,
    /// What was asked.
    pub request: QueryRequest,
    /// The sum over the selection.
    pub metric: MetricTotal,
    /// The groups, largest first; with time as the first dimension and no other order asked for, in the order of time.
    pub rows: Rows,
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
pub struct QueryRequest {
    /// The metric.
    pub metric: String,
    /// The dimensions, `time` with its step.
    pub group_by: Vec<String>,
    /// The filters.
    pub filters: Filters,
    /// Whether waits for work were asked for too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub idle: bool,
    /// The most rows.
    pub limit: u64,
    /// Rows left out before the first.
    pub offset: u64,
    /// What the rows are sorted by, where that was said: `self` or `total`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort: Option<&'static str>,
}

/// The rows of an answer: sums, or for memory levels over time.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Rows {
    /// Of every metric that adds up.
    Counted(Vec<CountedRow>),
    /// Of `resident`.
    Resident(Vec<ResidentBytes>),
}

impl Rows {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Counted(rows) => rows.len(),
            Self::Resident(rows) => rows.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One group.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CountedRow {
    /// What it stands for.
    pub key: Key,
    /// What happened in it, callees not counted.
    #[serde(rename = "self")]
    pub own: u64,
    /// What happened in it and in what it called; each sample once, recursion included.
    pub total: u64,
    /// `self` as a share of the selection.
    pub self_share: f64,
    /// `total` as a share of the selection.
    pub total_share: f64,
    /// Samples behind `self`.
    pub self_samples: u64,
    /// Samples behind `total`.
    pub total_samples: u64,
    /// 95 % interval of `self_share`.
    pub self_share_ci95: [f64; 2],
    /// 95 % interval of `total_share`.
    pub total_share_ci95: [f64; 2],
    /// Why the intervals are [0, 1], or not to be relied on: `few-samples`, `long-phases`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_note: Option<&'static str>,
}

/// Resident memory of one group, in bytes.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ResidentBytes {
    /// What it stands for.
    pub key: Key,
    /// The least.
    pub min: u64,
    /// The mean over time.
    pub mean: u64,
    /// The most.
    pub max: u64,
    /// At the end.
    pub last: u64,
}
