//! `manifest.json`: what the recording is, how it was made, and what it missed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How far a recording has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is being made.
    Recording,
    /// The capture has ended, but names have not been looked up.
    Captured,
    /// It is finished and answers everything by itself.
    Complete,
    /// Its recorder was killed; what was written until then was recovered.
    Recovered,
}

impl State {
    /// The word in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recording => "recording",
            Self::Captured => "captured",
            Self::Complete => "complete",
            Self::Recovered => "recovered",
        }
    }
}

/// Two clocks read at the same moment, so that times of the recording can be told as dates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Clock {
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub monotonic_ns: u64,
    /// CLOCK_REALTIME at that moment, in nanoseconds since 1970.
    pub realtime_ns: u64,
}

/// The time that was recorded, half-open, in nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Window {
    /// When recording began.
    pub start_ns: u64,
    /// When it ended; equal to the start while it runs.
    pub end_ns: u64,
}

/// The machine that was recorded.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Host {
    /// Kernel release (`uname -r`).
    pub kernel: String,
    /// Machine architecture (`uname -m`).
    pub architecture: String,
    /// CPUs that were online.
    pub cpus: u32,
    /// Random id of the boot: addresses of the kernel mean something in it only.
    #[serde(default)]
    pub boot_id: String,
    /// Its memory, in bytes.
    pub memory_bytes: u64,
    /// Whether the recorder was root.
    pub root: bool,
    /// `kernel.perf_event_paranoid`, where it can be read.
    pub perf_event_paranoid: Option<i32>,
}

/// How the recording was made.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Settings {
    /// The sampler: `perf` or `ebpf`.
    pub sampler: String,
    /// Samples a second and CPU that were asked for.
    pub frequency_asked_hz: u32,
    /// Samples a second and CPU that the kernel allowed.
    pub frequency_hz: u32,
    /// How user stacks were taken: `fp` or `dwarf`.
    pub unwind: String,
    /// Why, where uhr chose: one sentence.
    pub unwind_reason: Option<String>,
    /// Bytes of stack copied with a sample, with `dwarf`.
    pub stack_size: Option<u32>,
    /// Whether kernel code was visible.
    pub kernel_visible: bool,
    /// How the stacks of waits were taken: `switch`, `outside`, `clock` or `none`.
    pub wait_stacks: String,
    /// With `clock`: the time between two looks at who waits, in nanoseconds.
    #[serde(default)]
    pub wait_period_ns: Option<u64>,
    /// When system calls were counted: `always`, or in `windows` that stand for the rest. `None`: never.
    #[serde(default)]
    pub syscalls: Option<String>,
    /// What recording was allowed to cost, as a share of the time of all CPUs, where that was asked for.
    #[serde(default)]
    pub max_overhead: Option<f64>,
    /// What was recorded: `command`, `processes` or `machine`.
    pub target: String,
    /// The program that was started, without its arguments.
    pub command: Option<String>,
    /// The pids that were attached to.
    pub pids: Vec<u32>,
}

/// Where the samples of one kind went: `expected = captured + lost + throttled + not_visible + too_short + drift`. Of page faults, the
/// faults that samples stand for: the kernel takes every one up to a rate and then some, and the rest is `drift`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SampleLedger {
    /// What the event's own count says there should be.
    pub expected: u64,
    /// Samples in the recording.
    pub captured: u64,
    /// Samples that the kernel or uhr had to drop, because a buffer was full.
    pub lost: u64,
    /// Samples that the kernel did not take while it throttled the event, or that were left out to keep to a limit of cost.
    pub throttled: u64,
    /// Moments in the kernel that this user may not see.
    pub not_visible: u64,
    /// Those of threads too short for a sample; their exact time is counted.
    #[serde(default)]
    pub too_short: u64,
    /// The rest: the timer is set anew at every switch and runs late by a little.
    pub drift: u64,
}

/// What was expected, what was captured, and what became of the difference.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Ledger {
    /// CPU samples.
    pub cpu: SampleLedger,
    /// Page-fault samples.
    pub faults: SampleLedger,
    /// Switch records received, and how many were lost.
    pub switches: u64,
    /// Time on CPU that each switch took for the recording itself, in nanoseconds: the records of a switch are written
    /// before a thread's events stop and after they start again. The kernel counts that time to the thread, and so does
    /// the finish step.
    #[serde(default)]
    pub switch_cost_ns: u64,
    /// Records of any kind that were lost because a ring was full.
    pub records_lost: u64,
    /// Records that arrived too late to be put in order.
    pub out_of_order: u64,
    /// Records that could not be understood.
    pub malformed: u64,
    /// CPU samples whose stack is whole, and those that are not by reason (`StackEnding`).
    pub stacks: BTreeMap<String, u64>,
    /// Frames with and without a name, by reason (`Unsymbolized`); filled in when names are looked up.
    pub frames: BTreeMap<String, u64>,
    /// Threads whose exact time on CPU is not known (their events could not be opened, or records were lost).
    pub threads_inexact: u64,
    /// System calls that were not counted though they should have been.
    #[serde(default)]
    pub syscalls_lost: u64,
    /// Stacks that the kernel has walked by rows of call frame information, by where that ended.
    #[serde(default)]
    pub walked: BTreeMap<String, u64>,
    /// Stacks that it copied instead, by the reason: user space walked those.
    #[serde(default)]
    pub copied: BTreeMap<String, u64>,
    /// Any other miss, by name.
    #[serde(default)]
    pub misses: BTreeMap<String, u64>,
    /// Ticks of the clock on each CPU, where there is one clock a CPU.
    #[serde(default)]
    pub cpus: Vec<CpuTicks>,
}

/// The clock of one CPU: how often it ticked while a recorded thread ran, and how often that became a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CpuTicks {
    /// The CPU.
    pub cpu: u32,
    /// Ticks there were.
    pub expected: u64,
    /// Ticks that became samples.
    pub captured: u64,
}

/// How busy the machine itself was while recording, so that "slow" can be told from "starved".
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct MachineLoad {
    /// Pressure stall time of the whole machine in nanoseconds, `RESOURCE.some` or `RESOURCE.full`, where the kernel tells.
    pub pressure_ns: BTreeMap<String, u64>,
    /// Time that the target's cgroup was throttled by its CPU quota, in nanoseconds, where it has one.
    pub cgroup_throttled_ns: Option<u64>,
    /// Load average over one minute at the end.
    pub load_average: Option<f64>,
}

/// What recording itself cost.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct UhrCost {
    /// uhr's own CPU time while recording, in nanoseconds.
    pub cpu_ns: u64,
    /// uhr's largest resident memory, in bytes.
    pub peak_memory_bytes: u64,
    /// What its programs took in the kernel, in nanoseconds of CPU time: an estimate.
    #[serde(default)]
    pub kernel_ns: Option<u64>,
    /// What each of its programs took in the kernel, by name.
    #[serde(default)]
    pub programs: BTreeMap<String, ProgramCost>,
}

/// What one program took in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProgramCost {
    /// How often it ran.
    pub runs: u64,
    /// How long it ran in all, in nanoseconds.
    pub ns: u64,
}

/// The manifest of a recording.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Always `uhr-recording`.
    pub format: String,
    /// Version of the format. Readers refuse a newer one.
    pub format_version: u32,
    /// Version of the uhr that wrote it.
    pub uhr_version: String,
    /// Random id.
    pub id: String,
    /// How far it has come.
    pub state: State,
    /// The recorded time.
    pub window: Window,
    /// Clocks at the start.
    pub clock: Clock,
    /// The machine.
    pub host: Host,
    /// How it was made.
    pub settings: Settings,
    /// What it missed.
    pub ledger: Ledger,
    /// How busy the machine was.
    pub load: MachineLoad,
    /// What recording cost.
    pub cost: UhrCost,
    /// Plain sentences about what could not be seen, each with the way to see it.
    pub notes: Vec<String>,
    /// Size of each finished table, in bytes.
    #[serde(default)]
    pub table_bytes: BTreeMap<String, u64>,
}

impl Manifest {
    /// The file's name in the folder.
    pub const FILE: &'static str = "manifest.json";
    /// The value of `format`.
    pub const FORMAT: &'static str = "uhr-recording";
    /// The version that this crate writes.
    pub const VERSION: u32 = 1;

    /// A manifest for a recording that begins now.
    pub fn new(settings: Settings, host: Host, clock: Clock) -> Self {
        Self {
            format: Self::FORMAT.to_owned(),
            format_version: Self::VERSION,
            uhr_version: env!("CARGO_PKG_VERSION").to_owned(),
            id: new_id(),
            state: State::Recording,
            window: Window { start_ns: clock.monotonic_ns, end_ns: clock.monotonic_ns },
            clock,
            host,
            settings,
            ledger: Ledger::default(),
            load: MachineLoad::default(),
            cost: UhrCost::default(),
            notes: Vec::new(),
            table_bytes: BTreeMap::new(),
        }
    }

    /// A time of the recording as nanoseconds since 1970.
    pub fn realtime_ns(&self, monotonic_ns: u64) -> u64 {
        let since = i128::from(monotonic_ns) - i128::from(self.clock.monotonic_ns);
        u64::try_from(i128::from(self.clock.realtime_ns) + since).unwrap_or(0)
    }

    /// The length of the recording in nanoseconds.
    pub fn duration_ns(&self) -> u64 {
        self.window.end_ns.saturating_sub(self.window.start_ns)
    }
}

/// A random id: 16 bytes in hexadecimal, of the standard library's seeding of its hash tables (the kernel's random).
pub fn new_id() -> String {
    use std::hash::{BuildHasher, RandomState};
    let part = || RandomState::new().hash_one(std::time::SystemTime::now());
    format!("{:016x}{:016x}", part(), part())
}
