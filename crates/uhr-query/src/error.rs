use uhr_model::{Dimension, FrameMode, Metric, WaitKind};
use uhr_recording::RecordingError;

use crate::answers::Candidate;
use crate::command::Command;
use crate::group::OF_FAULT;

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The recording could not be read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// Its tables contradict each other.
    #[error("the recording is damaged: {0}")]
    Damaged(String),
    /// No function has this name, and none contains it.
    #[error("no function is called {name:?}, and none contains it")]
    UnknownFunction {
        /// What was asked for.
        name: String,
        /// Those that are called so in another case, or else the largest that there are.
        candidates: Vec<Candidate>,
        /// The recording, for the next command.
        recording: String,
    },
    /// Several functions have this name, or contain it.
    #[error("{name:?} is part of {count} functions' names")]
    AmbiguousFunction {
        /// What was asked for.
        name: String,
        /// How many fit.
        count: usize,
        /// The largest of them.
        candidates: Vec<Candidate>,
        /// The command that asks for the largest of them.
        next: Vec<String>,
    },
    /// No process, thread or module of the recording fits a filter.
    #[error("the recording has no {} {name:?}", what.name())]
    UnknownName {
        /// `process`, `thread` or `module`.
        what: Dimension,
        /// What was asked for.
        name: String,
        /// The largest that there are.
        candidates: Vec<Candidate>,
        /// The recording, for the next command.
        recording: String,
    },
    /// A time is not one that can be understood.
    #[error("{0:?} is not a time")]
    BadTime(String),
    /// The window has no part in the recording.
    #[error("{asked} lies outside the recording, which is {length} long and began at {start}")]
    WindowOutside {
        /// The time that was asked for, with its flag.
        asked: String,
        /// The length of the recording, in words.
        length: String,
        /// Its start as a date.
        start: String,
        /// The recording, for the next command.
        recording: String,
    },
    /// The window ends before it begins.
    #[error("the window from {from} to {to} is empty")]
    WindowEmpty {
        /// Its start, as it was given.
        from: String,
        /// Its end, as it was given.
        to: String,
        /// The recording, for the next command.
        recording: String,
    },
    /// More parts of time than are sensible.
    #[error("{asked} would cut the window into {buckets} parts; {} are the most", crate::window::MAX_BUCKETS)]
    TooManyBuckets {
        /// The dimension as it was given.
        asked: String,
        /// How many there would be.
        buckets: u64,
    },
    /// There is no such dimension.
    #[error("there is no dimension {0:?}")]
    UnknownDimension(String),
    /// There is no such metric.
    #[error("there is no metric {0:?}")]
    UnknownMetric(String),
    /// There is no such mode.
    #[error("there is no mode {0:?}")]
    UnknownMode(String),
    /// There is no such kind of wait.
    #[error("there is no kind of wait {0:?}")]
    UnknownWait(String),
    /// There is no such system call.
    #[error("there is no system call {0:?}")]
    UnknownSyscall(String),
    /// The metric cannot be grouped like this.
    #[error("{} cannot be grouped by {}", metric.name(), dimension.name())]
    DimensionNotOfMetric {
        /// The dimension.
        dimension: Dimension,
        /// The metric.
        metric: Metric,
        /// The recording, for the next command.
        recording: String,
    },
    /// Memory has no stacks, and so cannot be filtered by them; time on a CPU is no wait.
    #[error("{} has no {}, so --{filter} cannot be used with it", metric.name(), looks_at(filter))]
    FilterNotOfMetric {
        /// The flag without its dashes.
        filter: &'static str,
        /// The metric.
        metric: Metric,
        /// The recording, for the next command.
        recording: String,
    },
    /// The recording does not have this metric.
    #[error("the recording has no {}", metric.name())]
    MetricNotRecorded {
        /// The metric.
        metric: Metric,
        /// The recording, for the next command.
        recording: String,
    },
}

impl QueryError {
    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Recording(RecordingError::NotARecording { .. }) => "no-recording",
            Self::Recording(RecordingError::TooNew { .. }) => "recording-too-new",
            Self::Recording(RecordingError::Exists { .. }) => "exists",
            Self::Recording(RecordingError::Io { .. }) => "io",
            Self::Recording(RecordingError::Damaged { .. }) | Self::Damaged(_) => "damaged-recording",
            Self::UnknownFunction { .. } => "unknown-function",
            Self::AmbiguousFunction { .. } => "ambiguous-function",
            Self::UnknownName { what: Dimension::Process, .. } => "unknown-process",
            Self::UnknownName { what: Dimension::Thread, .. } => "unknown-thread",
            Self::UnknownName { what: Dimension::Waker, .. } => "unknown-waker",
            Self::UnknownName { .. } => "unknown-module",
            Self::BadTime(_) => "bad-time",
            Self::WindowOutside { .. } => "window-outside-recording",
            Self::WindowEmpty { .. } => "window-empty",
            Self::TooManyBuckets { .. } => "too-many-parts",
            Self::UnknownDimension(_) => "unknown-dimension",
            Self::UnknownMetric(_) => "unknown-metric",
            Self::UnknownMode(_) => "unknown-mode",
            Self::UnknownWait(_) => "unknown-wait",
            Self::UnknownSyscall(_) => "unknown-syscall",
            Self::DimensionNotOfMetric { .. } => "dimension-not-of-metric",
            Self::FilterNotOfMetric { .. } => "filter-not-of-metric",
            Self::MetricNotRecorded { .. } => "metric-not-recorded",
        }
    }

    /// Whether the question is wrong whatever the recording holds (exit code 2 instead of 1).
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::BadTime(_)
                | Self::WindowEmpty { .. }
                | Self::UnknownDimension(_)
                | Self::UnknownMetric(_)
                | Self::UnknownMode(_)
                | Self::UnknownWait(_)
                | Self::UnknownSyscall(_)
                | Self::DimensionNotOfMetric { .. }
                | Self::FilterNotOfMetric { .. }
        )
    }

    /// What would help.
    pub fn hint(&self) -> Option<String> {
        let words = |names: Vec<&str>| format!("one of: {}", names.join(", "));
        Some(match self {
            Self::UnknownDimension(_) => words(Dimension::ALL.iter().map(|one| one.name()).collect()),
            Self::UnknownMetric(_) => words(Metric::ALL.iter().map(|one| one.name()).collect()),
            Self::UnknownMode(_) => words(FrameMode::ALL.iter().map(|one| one.name()).collect()),
            Self::UnknownWait(_) => words(WaitKind::ALL.iter().map(|one| one.name()).collect()),
            Self::UnknownSyscall(_) => "its name as in man 2, or its number on x86-64".to_owned(),
            Self::BadTime(_) => {
                "write an RFC 3339 stamp (2026-11-06T12:34:56Z), an offset from the start (1.5s, \
                250ms, 2m), or one from the end (-2s)"
                    .to_owned()
            }
            Self::UnknownFunction { .. } => {
                "the name may be shorter than you think: any part of it that no other function has will do"
                    .to_owned()
            }
            Self::AmbiguousFunction { .. } => {
                "write more of the name; the largest that have it are listed with their share".to_owned()
            }
            Self::UnknownName { candidates, .. } if !candidates.is_empty() => {
                "give an id, a name, or a part of a name that no other has; the largest are listed with their share"
                    .to_owned()
            }
            Self::WindowEmpty { .. } => "a window begins before it ends: --from is the earlier time".to_owned(),
            Self::DimensionNotOfMetric { dimension, .. } if OF_FAULT.contains(dimension) => {
                "region, mapping, fault and page-size belong to page-faults".to_owned()
            }
            Self::DimensionNotOfMetric { metric: Metric::Resident, .. } => {
                "resident memory belongs to a process: group it by process, command or time".to_owned()
            }
            Self::DimensionNotOfMetric { metric: Metric::Syscalls | Metric::SyscallTime, .. } => {
                "system calls are counted without stacks: group them by syscall, errno, command, process, thread or \
                 time; where their time goes, the metrics cpu and off-cpu tell"
                    .to_owned()
            }
            Self::DimensionNotOfMetric { dimension: Dimension::Errno, .. } => {
                "errno belongs to syscalls and syscall-time".to_owned()
            }
            Self::DimensionNotOfMetric { dimension: Dimension::Syscall, .. } => {
                "syscall belongs to cpu, off-cpu, runqueue, wall, syscalls and syscall-time".to_owned()
            }
            Self::DimensionNotOfMetric { dimension: Dimension::Wait, .. } => {
                "wait belongs to off-cpu, runqueue and wall".to_owned()
            }
            Self::DimensionNotOfMetric { dimension: Dimension::Waker, .. } => {
                "waker belongs to off-cpu and wall".to_owned()
            }
            Self::DimensionNotOfMetric { dimension: Dimension::Cpu, .. } => {
                "a wait is on no CPU, and of page faults it is not recorded: cpu belongs to cpu".to_owned()
            }
            Self::TooManyBuckets { .. } => {
                "choose longer parts, or a shorter window with --from and --to".to_owned()
            }
            Self::MetricNotRecorded { metric: Metric::Syscalls, .. } => {
                "`uhr record --syscalls` counts every system call (with the sampler ebpf); without it they are counted in \
                 windows, which a recording of a tenth of a second may not have"
                    .to_owned()
            }
            Self::MetricNotRecorded { metric: Metric::SyscallTime, .. } => {
                "`uhr record --syscalls` measures every system call (with the sampler ebpf); which of them time goes to \
                 is known without: --metric cpu and --metric off-cpu, --group-by syscall"
                    .to_owned()
            }
            Self::MetricNotRecorded { .. } => "uhr doctor says what this host can record".to_owned(),
            Self::Damaged(_) | Self::Recording(RecordingError::Damaged { .. }) => {
                "what is whole may still be read table by table: they are Parquet or Arrow files".to_owned()
            }
            _ => return None,
        })
    }

    /// Commands that make sense next.
    pub fn next(&self) -> Vec<String> {
        match self {
            Self::AmbiguousFunction { next, .. } => next.clone(),
            Self::UnknownFunction { recording, .. } => {
                vec![Command::new("query", recording).with("group-by", "function").text()]
            }
            Self::UnknownName { what: Dimension::Waker, recording, .. } => {
                vec![by_command(recording, Metric::OffCpu, Dimension::Waker)]
            }
            Self::UnknownName { what, recording, .. } => {
                vec![Command::new("query", recording).with("group-by", what.name()).text()]
            }
            Self::WindowOutside { recording, .. } | Self::WindowEmpty { recording, .. } => {
                vec![Command::new("overview", recording).text()]
            }
            Self::DimensionNotOfMetric { dimension, metric, recording } => {
                let (metric, by) = match (metric, dimension) {
                    (Metric::Resident, _) => (Metric::Resident, Dimension::Process),
                    (Metric::Syscalls | Metric::SyscallTime, _) => (*metric, Dimension::Syscall),
                    (_, Dimension::Errno) => (Metric::Syscalls, Dimension::Errno),
                    (_, by) if OF_FAULT.contains(by) => (Metric::PageFaults, *by),
                    (_, Dimension::Cpu) => (Metric::Cpu, Dimension::Cpu),
                    (_, by) => (Metric::OffCpu, *by),
                };
                vec![by_command(recording, metric, by)]
            }
            Self::FilterNotOfMetric { metric, recording, .. } => {
                vec![by_command(recording, *metric, Dimension::Process)]
            }
            Self::MetricNotRecorded { metric: Metric::Syscalls | Metric::SyscallTime, recording } => {
                vec![
                    Command::new("query", recording).with("group-by", "syscall").text(),
                    by_command(recording, Metric::OffCpu, Dimension::Syscall),
                ]
            }
            Self::MetricNotRecorded { recording, .. } => {
                vec![Command::new("overview", recording).text(), "uhr doctor".to_owned()]
            }
            _ => Vec::new(),
        }
    }

    /// Names that could have been meant, largest first.
    pub fn candidates(&self) -> &[Candidate] {
        match self {
            Self::UnknownFunction { candidates, .. }
            | Self::AmbiguousFunction { candidates, .. }
            | Self::UnknownName { candidates, .. } => candidates,
            _ => &[],
        }
    }
}

fn by_command(recording: &str, metric: Metric, by: Dimension) -> String {
    Command::new("query", recording).with("metric", metric.name()).with("group-by", by.name()).text()
}

/// What a filter looks at.
fn looks_at(filter: &str) -> &'static str {
    match filter {
        "wait" => "waits",
        "waker" => "wakers",
        "syscall" => "system calls",
        _ => "stacks",
    }
}
