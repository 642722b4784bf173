//! `uhr.call-paths/1`: who calls a function, what it calls, and the whole paths through it.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Coverage, Key, MetricTotal, RecordingSummary, Shown};
use crate::filter::Filters;

/// The answer of `uhr call-paths`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CallPathsAnswer {
    /// Always `uhr.call-paths/1`.
    #[schemars(extend("const" = "uhr.call-paths/1"))]
    pub schema: &'static str,
    /// Always true.
    #[schemars(extend("const" = true))]
    pub ok: bool,
    /// What was asked about.
    pub recording: RecordingSummary,
    /// What was asked.
    pub request: CallPathsRequest,
    /// The sum over the paths through the function, which the shares of the rows are of.
    pub metric: MetricTotal,
    /// The function itself; its shares are of the whole selection.
    pub function: FunctionTotals,
    /// The paths.
    pub rows: Paths,
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
pub struct CallPathsRequest {
    /// The function, as it was given.
    pub function: String,
    /// Which way.
    pub direction: Direction,
    /// The metric.
    pub metric: String,
    /// The filters.
    pub filters: Filters,
    /// Whether waits for work were asked for too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub idle: bool,
    /// The most rows.
    pub limit: u64,
    /// Rows left out before the first.
    pub offset: u64,
}

/// Which way to look from a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Whole paths, from the first function of the thread to the leaf.
    #[default]
    Paths,
    /// The tree of callers above its outermost call.
    Callers,
    /// The tree of callees below its outermost call.
    Callees,
}

/// A function within the selection.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct FunctionTotals {
    /// The function and its module.
    pub key: Key,
    /// What happened in it, callees not counted.
    #[serde(rename = "self")]
    pub own: u64,
    /// What happened in it and in what it called.
    pub total: u64,
    /// `self` as a share of the selection.
    pub self_share: f64,
    /// `total` as a share of the selection.
    pub total_share: f64,
    /// 95 % interval of `total_share`.
    pub total_share_ci95: [f64; 2],
    /// Why the interval is [0, 1], or not to be relied on: `few-samples`, `long-phases`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_note: Option<&'static str>,
}

/// The rows, by direction.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Paths {
    /// Of callers and callees.
    Tree(Vec<TreeRow>),
    /// Of whole paths.
    Whole(Vec<PathRow>),
}

/// A node of the tree, in preorder: its children follow it, one deeper. Children are sorted by total, then by name.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct TreeRow {
    /// 0 is the function that was asked for.
    pub depth: u64,
    /// The function and its module.
    pub key: Key,
    /// Callees: what happened in the node itself. Callers: what has no further caller.
    #[serde(rename = "self")]
    pub own: u64,
    /// What passed through the node.
    pub total: u64,
    /// `self` as a share of the function's total.
    pub self_share: f64,
    /// `total` as a share of the function's total.
    pub total_share: f64,
    /// Samples behind `total`.
    pub total_samples: u64,
    /// 95 % interval of `total_share`.
    pub total_share_ci95: [f64; 2],
    /// Why the interval is [0, 1], or not to be relied on: `few-samples`, `long-phases`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_note: Option<&'static str>,
}

/// A gap in a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Omitted {
    /// Entries of `path` before it.
    pub after: u64,
    /// How many functions were left out there.
    pub functions: u64,
}

/// One whole path.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PathRow {
    /// Functions from the first of the thread to the leaf. Of a long path only its ends are there, and the function that
    /// was asked for with those around its outermost call.
    pub path: Vec<String>,
    /// What was left out of `path`; missing where it is whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub omitted: Vec<Omitted>,
    /// What happened at the end of the path.
    #[serde(rename = "self")]
    pub own: u64,
    /// `self` as a share of the function's total.
    pub self_share: f64,
    /// Samples behind `self`.
    pub self_samples: u64,
    /// 95 % interval of `self_share`.
    pub self_share_ci95: [f64; 2],
    /// Why the interval is [0, 1], or not to be relied on: `few-samples`, `long-phases`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_note: Option<&'static str>,
}
