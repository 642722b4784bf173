//! `uhr.overview/1`: computing or waiting? on what? how big? can it be trusted?

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Coverage, Key, RecordingSummary};
use crate::filter::Filters;

/// The answer of `uhr overview`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct OverviewAnswer {
    /// Always `uhr.overview/1`.
    #[schemars(extend("const" = "uhr.overview/1"))]
    pub schema: &'static str,
    /// Always true.
    #[schemars(extend("const" = true))]
    pub ok: bool,
    /// What was asked about.
    pub recording: RecordingSummary,
    /// What was asked.
    pub request: OverviewRequest,
    /// Computing or waiting, all threads together.
    pub activity: Activity,
    /// The same for the processes that computed or waited most.
    pub processes: Vec<ProcessActivity>,
    /// Where CPU time went.
    pub cpu: Top,
    /// What threads waited for.
    pub waits: Waits,
    /// System calls, where they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syscalls: Option<Calls>,
    /// Resident memory of the largest processes.
    pub memory: Vec<Memory>,
    /// Page faults.
    pub faults: Faults,
    /// Whether the machine itself was short of something.
    pub machine: Machine,
    /// How far to trust it.
    pub trust: Trust,
    /// Commands that make sense next.
    pub next: Vec<String>,
}

/// What was asked.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct OverviewRequest {
    /// The filters.
    pub filters: Filters,
}

/// What threads mostly did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// They ran: at least one CPU's worth, or most of their lifetime.
    Computing,
    /// They waited.
    Waiting,
    /// They could have run, but something else had the CPUs.
    Starved,
    /// None of these clearly.
    Mixed,
    /// Nothing was recorded.
    Nothing,
}

/// How threads spent their lifetimes. Shares are of `lifetime_ns`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Activity {
    /// In one word.
    pub verdict: Verdict,
    /// In one sentence.
    pub sentence: String,
    /// Time on CPU.
    pub on_cpu_ns: u64,
    /// Time blocked.
    pub off_cpu_ns: u64,
    /// Time runnable, but not running.
    pub runqueue_ns: u64,
    /// Lifetimes of all threads within the window, together.
    pub lifetime_ns: u64,
    /// `on_cpu_ns` as a share.
    pub on_cpu_share: f64,
    /// `off_cpu_ns` as a share.
    pub off_cpu_share: f64,
    /// `runqueue_ns` as a share.
    pub runqueue_share: f64,
    /// CPUs used on average: time on CPU over the length of the window.
    pub parallelism: f64,
    /// Threads that lived in the window.
    pub threads: u64,
    /// Processes that lived in the window.
    pub processes: u64,
}

/// How the threads of one process spent their lifetimes. Shares are of the lifetimes of its threads.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ProcessActivity {
    /// The process.
    pub key: Key,
    /// Time on CPU.
    pub on_cpu_ns: u64,
    /// It as a share.
    pub on_cpu_share: f64,
    /// Time blocked, as a share.
    pub off_cpu_share: f64,
    /// Time runnable but not running, as a share.
    pub runqueue_share: f64,
    /// Threads that lived in the window.
    pub threads: u64,
}

/// A row of an overview.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct OverviewRow {
    /// What it stands for.
    pub key: Key,
    /// Its own part, in the metric's unit.
    #[serde(rename = "self")]
    pub own: u64,
    /// That as a share.
    pub self_share: f64,
}

/// Where CPU time went: at most three of each, and none below 5 %; of functions at most five, and none below 1 %.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Top {
    /// CPU time in all, in nanoseconds.
    pub total_ns: u64,
    /// By process.
    pub processes: Vec<OverviewRow>,
    /// By thread.
    pub threads: Vec<OverviewRow>,
    /// By kind of code.
    pub modes: Vec<OverviewRow>,
    /// By module.
    pub modules: Vec<OverviewRow>,
    /// By function.
    pub functions: Vec<OverviewRow>,
    /// By system call that the thread was in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub syscalls: Vec<OverviewRow>,
    /// By container, where there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<OverviewRow>,
    /// By pod, where there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<OverviewRow>,
}

/// What threads waited for: at most three of each, and none below 5 %. Waiting for work is only in `total_ns`, `count`,
/// `idle_ns` and `kinds`; the other lists are about the rest, and their shares of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Waits {
    /// Time blocked in all, in nanoseconds.
    pub total_ns: u64,
    /// Waits in all.
    pub count: u64,
    /// Of `total_ns`, waiting for work.
    pub idle_ns: u64,
    /// That as a share.
    pub idle_share: f64,
    /// By kind of wait.
    pub kinds: Vec<OverviewRow>,
    /// By system call.
    pub syscalls: Vec<OverviewRow>,
    /// By the function that waits: the innermost one that is not in the kernel, or `[kernel threads]`, which have none.
    pub functions: Vec<OverviewRow>,
    /// By what ended the waits, where that is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wakers: Vec<OverviewRow>,
}

/// System calls that ended: at most three of each list, and none below 5 %.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Calls {
    /// How many.
    pub total: u64,
    /// How many in a second of the window.
    pub a_second: f64,
    /// `always`: every one was counted. `windows`: they are estimated from short windows.
    pub counted: String,
    /// By system call.
    pub calls: Vec<OverviewRow>,
    /// Those that failed, by system call and error; shares are of all calls.
    pub errors: Vec<OverviewRow>,
}

/// Resident memory of a process over the window, in bytes.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Memory {
    /// The process.
    pub key: Key,
    /// At first sight.
    pub first: u64,
    /// The most.
    pub peak: u64,
    /// At the end.
    pub last: u64,
    /// `last` less `first`.
    pub growth: i64,
}

/// Page faults.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Faults {
    /// How many.
    pub total: u64,
    /// How many of them were looked at, and stand for all.
    pub samples: u64,
    /// By kind of memory.
    pub regions: Vec<OverviewRow>,
    /// By function.
    pub functions: Vec<OverviewRow>,
}

/// How busy the machine was.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Machine {
    /// Whether what was recorded was slowed down by a lack of something; missing for windows under a second, which are
    /// too short to say.
    pub starved: Option<bool>,
    /// Why, in plain sentences.
    pub reasons: Vec<String>,
    /// CPUs that were online.
    pub cpus: u64,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Share of the recording in which some or all of the machine's tasks stalled, by `RESOURCE.some` and
    /// `RESOURCE.full`; missing where there was none, or the kernel does not tell.
    pub pressure_share: BTreeMap<String, f64>,
    /// Time that the target's cgroup was throttled by its CPU quota.
    pub cgroup_throttled_ns: Option<u64>,
    /// Load average over one minute at the end.
    pub load_average: Option<f64>,
}

/// How far to trust a recording.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Trust {
    /// Of the CPU samples.
    pub coverage: Coverage,
    /// Whether kernel code was visible.
    pub kernel_visible: bool,
    /// How user stacks were taken.
    pub unwind: String,
    /// Samples a second and CPU.
    pub frequency_hz: u64,
    /// Records of any kind that were lost.
    pub records_lost: u64,
    /// uhr's own CPU time, as a share of one CPU.
    pub uhr_cpu_share: f64,
    /// What its programs took in the kernel, as a share of one CPU: an estimate. Missing where it has none there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uhr_kernel_share: Option<f64>,
    /// The same by program, of those that took at least a hundredth of it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub uhr_programs: BTreeMap<String, f64>,
    /// uhr's largest resident memory, in bytes.
    pub uhr_peak_memory_bytes: u64,
}
