//! Processes and threads as they come and go, each with what is known of it.

mod begin;
mod end;

use rustc_hash::FxHashMap;
use uhr_recording::tables::{ProcessRow, ThreadRow};

use crate::address_space::AddressSpace;
use crate::anonymous_names::NamesRead;
use crate::perf::Body;
use crate::pools::Pools;
use crate::procfs;
use crate::sums::ThreadSums;
use crate::waits::ThreadTime;
use uhr_unwind::ProcessUnwinder;

/// A process between two execs.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) row: ProcessRow,
    pub(crate) space: AddressSpace,
    pub(crate) unwinder: ProcessUnwinder,
    /// Its mappings were read from `/proc` at this time; they are not read again within a second.
    pub(crate) maps_read_ns: Option<u64>,
    /// When what it calls its anonymous memory was read.
    pub(crate) names_read: NamesRead,
    /// When code was last mapped in the place of other code, or taken away.
    pub(crate) replaced_ns: u64,
    /// Its threads that live.
    living: u32,
    /// A started command that has not executed its program yet: still a copy of uhr.
    before_exec: bool,
}

/// A thread of one process row.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) row: ThreadRow,
    pub(crate) pid: u32,
    pub(crate) time: ThreadTime,
    /// Where programs in the kernel add up the time, instead of `time`.
    pub(crate) sums: Option<ThreadSums>,
    /// `schedstat` when it was first seen.
    schedstat_at_start: Option<(u64, u64)>,
    /// It has ended, and its last sums have not come.
    exited_ns: Option<u64>,
    /// No event could be opened for it: the time since then that `schedstat` told last, on CPU and runnable.
    totals_only: Option<(u64, u64)>,
}

impl Thread {
    /// Until when it lived, at most.
    pub(crate) fn until(&self, now_ns: u64) -> u64 {
        self.exited_ns.unwrap_or(now_ns)
    }

    /// No event tells of it, only the scheduler's totals.
    pub(crate) fn has_no_events(&self) -> bool {
        self.totals_only.is_some()
    }

    /// Time on CPU and runnable since it was first seen, by the scheduler's count. `None` if it is gone.
    fn totals(&self) -> Option<(u64, u64)> {
        let (start, now) = (self.schedstat_at_start?, procfs::schedstat(self.pid, self.row.tid)?);
        Some((now.0.saturating_sub(start.0), now.1.saturating_sub(start.1)))
    }
}

/// How long the tid of an ended thread means that thread. Where every CPU is recorded, a thread is still sampled and
/// switched out after its EXIT record; a tid cannot come back so soon.
const AFTERLIFE_NS: u64 = 1_000_000_000;
/// How long the last sums of a thread may take after its EXIT record. Later they are lost: the ring was full.
const LAST_SUMS_NS: u64 = 1_000_000_000;
/// Ended threads that are remembered.
const MAX_ENDED: usize = 65_536;

/// Whose sums the programs in the kernel tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Followed {
    /// Of the processes that are known, and of what they make.
    Known,
    /// Of all.
    All,
}

/// All tasks of the recording.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    processes: FxHashMap<u32, Process>,
    threads: FxHashMap<u32, Thread>,
    /// When threads ended, by tid.
    ended: FxHashMap<u32, u64>,
    process_count: u32,
    thread_count: u32,
    /// Since when every CPU has been recorded: a thread that is first seen later, and did not begin, was there all the
    /// time in the state that its first record ends.
    machine_since_ns: Option<u64>,
    /// Nanoseconds between two samples of a running thread.
    period_ns: u64,
    /// Whether samples are taken in the kernel too.
    kernel_visible: bool,
    /// Programs in the kernel add up the times of threads; records of other processes than those known are of strangers.
    sums_of: Option<Followed>,
    /// When the recording begins.
    since_ns: u64,
    pools: Pools,
    /// Page faults of all threads that ended, by the kernel's own count.
    pub(crate) page_faults: u64,
    /// Waits that went into a sum of mixed kinds.
    pub(crate) crowded_waits: u64,
    /// Threads whose time on CPU is not exact.
    pub(crate) inexact: u64,
    /// Time on CPU of all threads that ended, by their switch records, and their switches.
    pub(crate) on_cpu_ns: u64,
    pub(crate) switches: u64,
    /// The part of it that no sample caught, because the thread was too short.
    pub(crate) too_short_ns: u64,
    /// The part that was in the kernel, which this user may not see.
    pub(crate) not_visible_ns: u64,
    /// The part of it that threads without events ran.
    pub(crate) without_events_ns: u64,
}

impl Tasks {
    /// For a recording that begins at `since_ns`; the sideband begins a little earlier.
    pub(crate) fn new(period_ns: u64, kernel_visible: bool, since_ns: u64) -> Self {
        Self { period_ns, kernel_visible, since_ns, ..Self::default() }
    }

    /// Times come as sums ([`ThreadSums`]).
    pub(crate) fn expect_sums(&mut self, of: Followed) {
        self.sums_of = Some(of);
    }

    /// When the recording begins.
    pub(crate) fn since_ns(&self) -> u64 {
        self.since_ns
    }

    /// Whether times come as sums.
    pub(crate) fn has_sums(&self) -> bool {
        self.sums_of.is_some()
    }

    /// Whether a record of the whole machine's sideband is of a process that is not recorded.
    pub(crate) fn is_stranger(&self, body: &Body<'_>) -> bool {
        if self.sums_of != Some(Followed::Known) {
            return false;
        }
        match body {
            Body::Mapping(mapping) => !self.knows_process(mapping.pid),
            Body::Name { pid, .. } => !self.knows_process(*pid),
            Body::Fork(task) => !self.knows_process(task.parent_pid),
            _ => false,
        }
    }

    /// Whether a process is recorded.
    pub(crate) fn knows_process(&self, pid: u32) -> bool {
        self.processes.contains_key(&pid)
    }

    /// The process that has this pid, if it is recorded.
    pub(crate) fn known_process(&self, pid: u32) -> Option<&Process> {
        self.processes.get(&pid)
    }

    /// The thread that has this tid, if it is recorded.
    pub(crate) fn known_thread(&self, pid: u32, tid: u32) -> Option<&Thread> {
        self.threads.get(&tid).filter(|thread| thread.pid == pid)
    }

    /// Whether there were threads, and none is left.
    pub(crate) fn are_gone(&self) -> bool {
        self.thread_count > 0 && self.threads.is_empty()
    }

    /// Every CPU is recorded from this moment on.
    pub(crate) fn watch_machine(&mut self, since_ns: u64) {
        self.machine_since_ns = Some(since_ns);
    }

    /// Whether a record is of a thread that has ended already.
    pub(crate) fn has_ended(&self, tid: u32, now_ns: u64) -> bool {
        self.ended.get(&tid).is_some_and(|ended| now_ns.saturating_sub(*ended) < AFTERLIFE_NS)
    }

    /// The processes that live.
    pub(crate) fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        self.processes.values_mut()
    }

    /// The threads that live.
    pub(crate) fn threads(&mut self) -> impl Iterator<Item = &mut Thread> {
        self.threads.values_mut()
    }
}
