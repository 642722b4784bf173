//! What a session was granted, and what it cannot see.

use std::fmt;

/// How records reach uhr.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingLayout {
    /// One ring a CPU; new threads and processes are followed by the kernel.
    PerCpu,
    /// One ring a thread, because threads times CPUs need more descriptors than allowed. New threads must be attached
    /// by [`Session::add_thread`](super::Session::add_thread) when their FORK records come.
    PerThread,
}

/// What a session was granted.
#[derive(Clone, Debug)]
pub struct Granted {
    /// Kernel stacks, and time and faults inside the kernel, are seen.
    pub kernel_visible: bool,
    /// Stacks of threads that leave a CPU are sampled. Switch records come without it too.
    pub switch_stacks: bool,
    /// Page faults are sampled. Those that the kernel itself meets on the program's memory are among them where the
    /// kernel is visible, as in getrusage; otherwise only those of user code.
    pub page_faults: bool,
    /// Mappings carry build ids.
    pub build_ids: bool,
    /// The kernel counts each event's lost records.
    pub lost_counts: bool,
    /// How rings are laid out.
    pub layout: RingLayout,
    /// Rings that were opened at the start.
    pub rings: usize,
    /// Bytes of data of each ring.
    pub ring_bytes: usize,
    /// Samples a second of running thread, as they are really taken.
    pub frequency: u32,
    /// Page faults that one sample of them stands for.
    pub faults_a_sample: u64,
    /// Bytes of stack copied with each sample; 0 where frame pointers are followed.
    pub stack_copy_bytes: u32,
    /// The most addresses of one call chain, kernel and user together.
    pub max_stack: u32,
    /// `kernel.perf_event_paranoid`, where it can be read. It explains refusals and decides nothing.
    pub paranoid: Option<i32>,
    /// Threads that were attached at the start.
    pub attached: usize,
    /// Threads that had ended before they could be attached.
    pub gone: usize,
    /// Threads that could not be attached: no descriptors or ring memory were left. Of them only
    /// what `/proc` says can be told.
    pub unattached: Vec<u32>,
    /// What is not as asked, for people to read.
    pub limitations: Vec<Limitation>,
}

impl Granted {
    pub(super) fn add_unattached(&mut self, tid: u32) {
        let mut unattached = std::mem::take(&mut self.unattached);
        unattached.push(tid);
        self.forget_unattached();
        self.limitations.push(Limitation::Unattached { threads: unattached.len() });
        self.unattached = unattached;
    }

    pub(super) fn forget_unattached(&mut self) {
        self.unattached.clear();
        self.limitations.retain(|limitation| !matches!(limitation, Limitation::Unattached { .. }));
    }
}

/// Something that this session cannot see, or does otherwise than asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Limitation {
    /// No kernel.
    KernelHidden {
        /// `kernel.perf_event_paranoid`.
        paranoid: Option<i32>,
    },
    /// No stacks at switches.
    SwitchStacksHidden {
        /// `kernel.perf_event_paranoid`.
        paranoid: Option<i32>,
    },
    /// Fewer samples a second.
    FrequencyLowered {
        /// What was asked.
        asked: u32,
        /// What is done.
        used: u32,
        /// `kernel.perf_event_max_sample_rate`.
        limit: u32,
    },
    /// Kernel before 5.12.
    NoBuildIds,
    /// Kernel before 6.0.
    NoLostCounts,
    /// Smaller rings.
    RingsShrunk {
        /// What was tried first.
        wished: usize,
        /// What was granted.
        bytes: usize,
    },
    /// One ring a thread.
    PerThread {
        /// Descriptors that one ring a CPU would need.
        needed: u64,
        /// Descriptors that are allowed.
        allowed: u64,
    },
    /// Threads without events.
    Unattached {
        /// How many.
        threads: usize,
    },
}

impl fmt::Display for Limitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = |p: &Option<i32>| p.map_or_else(String::new, |p| format!(" (it is {p})"));
        match self {
            Self::KernelHidden { paranoid } => write!(
                f,
                "kernel stacks and the code run inside the kernel are not visible: that needs root, CAP_PERFMON or \
                 kernel.perf_event_paranoid at most 1{}",
                level(paranoid)
            ),
            Self::SwitchStacksHidden { paranoid } => write!(
                f,
                "the kernel does not give the stacks of threads that begin to wait: that needs root, CAP_PERFMON or \
                 kernel.perf_event_paranoid at most 1{}",
                level(paranoid)
            ),
            Self::FrequencyLowered { asked, used, limit } => write!(
                f,
                "{used} samples a second instead of {asked}: kernel.perf_event_max_sample_rate is {limit}, and the \
                 kernel holds back events that come near it"
            ),
            Self::NoBuildIds => f.write_str("mappings come without build ids: the kernel is older than 5.12"),
            Self::NoLostCounts => {
                f.write_str("the kernel does not count lost samples for each event: it is older than 6.0")
            }
            Self::RingsShrunk { wished, bytes } => write!(
                f,
                "rings of {} KiB instead of {} KiB: this user's limit of locked memory \
                 (kernel.perf_event_mlock_kb, ulimit -l) is reached",
                bytes / 1024,
                wished / 1024
            ),
            Self::PerThread { needed, allowed } => write!(
                f,
                "one ring a thread instead of one a CPU: {needed} file descriptors would be needed and {allowed} are \
                 allowed (ulimit -Hn)"
            ),
            Self::Unattached { threads } => write!(
                f,
                "{threads} threads are not sampled: no file descriptors or locked memory were left for them"
            ),
        }
    }
}

impl Limitation {
    /// The command that lifts it, where one does.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::KernelHidden { .. } | Self::SwitchStacksHidden { .. } => {
                Some("sudo sysctl kernel.perf_event_paranoid=1")
            }
            Self::FrequencyLowered { .. } => Some("sudo sysctl kernel.perf_event_max_sample_rate=100000"),
            Self::RingsShrunk { .. } => Some("sudo sysctl kernel.perf_event_mlock_kb=8192"),
            _ => None,
        }
    }
}
