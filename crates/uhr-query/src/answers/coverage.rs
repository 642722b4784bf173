use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

/// What share of the truth an answer rests on. Follows the process, thread and time filters only.
/// `expected = captured + lost + throttled + not_visible + too_short + drift`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Coverage {
    /// Samples that there should be, by the kernel's own count (or exact CPU time over the period); at least those that
    /// are accounted for.
    pub expected: u64,
    /// Samples that there are.
    pub captured: u64,
    /// Samples lost because a buffer was full.
    pub lost: u64,
    /// Samples not taken while the kernel throttled the event, or to keep to `--max-overhead`.
    pub throttled: u64,
    /// Moments in the kernel that the recorder was not allowed to see.
    pub not_visible: u64,
    /// Those of threads too short for a sample, whose time is counted exactly.
    pub too_short: u64,
    /// The rest: timers that ran late.
    pub drift: u64,
    /// Share of the samples whose stack is whole, callers up to the thread's first function. Time that is counted
    /// without a sample is left out, and so are waits that others stand for.
    pub stacks_complete_share: f64,
    /// The others, by reason.
    pub truncated: BTreeMap<String, u64>,
    /// Share of the samples with a stack whose leaf has a function name.
    pub symbolized_share: f64,
    /// What one has to know, in plain sentences.
    pub notes: Vec<String>,
}
