//! Processes and threads as they come and go, each with what is known of it.

use rustc_hash::FxHashMap;
use uhr_model::StackEnding;
use uhr_recording::RecordingWriter;
use uhr_recording::tables::{ProcessRow, ThreadRow};

use crate::address_space::AddressSpace;
use crate::cgroup::membership::{self, Membership};
use crate::perf::Body;
use crate::pools::{Pools, push_unsampled};
use crate::procfs;
use crate::sums::ThreadSums;
use crate::unwind::ProcessUnwinder;
use crate::waits::ThreadTime;

/// A process between two execs.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) row: ProcessRow,
    pub(crate) space: AddressSpace,
    pub(crate) unwinder: ProcessUnwinder,
    /// Its mappings were read from `/proc` at this time; they are not read again within a second.
    pub(crate) maps_read_ns: Option<u64>,
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

/// A thread of fewer ticks than this may well have no sample: each thread begins with a whole period, and of threads of
/// five the samples are 97 % of the right number (measured).
const SHORT_TICKS: u64 = 5;

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
    sums_since_ns: u64,
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
    pub(crate) fn new(period_ns: u64, kernel_visible: bool) -> Self {
        Self { period_ns, kernel_visible, ..Self::default() }
    }

    /// Times come as sums ([`ThreadSums`]), which begin at `since_ns`; the sideband begins a little earlier.
    pub(crate) fn expect_sums(&mut self, of: Followed, since_ns: u64) {
        self.sums_of = Some(of);
        self.sums_since_ns = since_ns;
    }

    /// The time of a record, or that at which the recording begins.
    pub(crate) fn within(&self, time_ns: u64) -> u64 {
        time_ns.max(self.sums_since_ns)
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

    /// Takes in a process that lives already, with those of its threads that have events. What began meanwhile comes
    /// with a FORK record.
    pub(crate) fn attach(&mut self, pid: u32, tids: &[u32], now_ns: u64, writer: &mut RecordingWriter) {
        self.process(pid, now_ns, writer);
        for &tid in tids {
            let running = procfs::stat(pid, tid).map(|stat| stat.state == b'R');
            self.thread_in_state(pid, tid, now_ns, running.filter(|running| !running), writer);
        }
    }

    /// Takes in a child of ours that waits to execute its program. Its first exec gives this row its name.
    pub(crate) fn expect_exec(&mut self, pid: u32, now_ns: u64, writer: &mut RecordingWriter) {
        self.process(pid, now_ns, writer).before_exec = true;
    }

    /// The process that has this pid now.
    pub(crate) fn process(&mut self, pid: u32, now_ns: u64, writer: &mut RecordingWriter) -> &mut Process {
        let count = &mut self.process_count;
        self.processes.entry(pid).or_insert_with(|| {
            let mut row = ProcessRow {
                id: *count,
                pid,
                inner_pid: procfs::inner_pid(pid),
                parent: None,
                name: procfs::thread_name(pid, pid).unwrap_or_else(|| "[unknown]".to_owned()),
                executable: procfs::executable(pid),
                start_ns: now_ns,
                end_ns: None,
                cgroup: None,
                container: None,
                pod: None,
            };
            membership::of_process(pid).fill(&mut row);
            *count += 1;
            writer.push_process(row.clone());
            Process {
                row,
                space: AddressSpace::default(),
                unwinder: ProcessUnwinder::new(),
                maps_read_ns: None,
                living: 0,
                before_exec: false,
            }
        })
    }

    /// The thread that has this tid now.
    pub(crate) fn thread(
        &mut self,
        pid: u32,
        tid: u32,
        now_ns: u64,
        writer: &mut RecordingWriter,
    ) -> &mut Thread {
        let since_ns =
            if self.threads.contains_key(&tid) { now_ns } else { self.machine_since_ns.unwrap_or(now_ns) };
        self.thread_in_state(pid, tid, since_ns, None, writer)
    }

    fn thread_in_state(
        &mut self,
        pid: u32,
        tid: u32,
        now_ns: u64,
        running: Option<bool>,
        writer: &mut RecordingWriter,
    ) -> &mut Thread {
        self.named_thread((pid, tid), None, now_ns, running, writer)
    }

    /// The thread that has this tid now; if it is new, under this name, or the one that it has by now.
    fn named_thread(
        &mut self,
        (pid, tid): (u32, u32),
        name: Option<String>,
        now_ns: u64,
        running: Option<bool>,
        writer: &mut RecordingWriter,
    ) -> &mut Thread {
        // A tid that now belongs to another process is a new thread: its old one ended unseen.
        if self.threads.get(&tid).is_some_and(|thread| thread.pid != pid) {
            self.end_thread(tid, now_ns, writer);
        }
        if !self.threads.contains_key(&tid) {
            // Under its maker's name only a new thread comes.
            let is_new = name.is_some();
            let process = self.process(pid, now_ns, writer);
            process.living += 1;
            let (process, process_name) = (process.row.id, process.row.name.clone());
            let row = ThreadRow {
                id: self.thread_count,
                process,
                tid,
                name: name.or_else(|| procfs::thread_name(pid, tid)).unwrap_or(process_name),
                start_ns: now_ns,
                end_ns: None,
                on_cpu_ns: 0,
                samples: 0,
                pool: self.thread_count,
                switches: 0,
                run_delay_ns: None,
            };
            self.thread_count += 1;
            writer.push_thread(row.clone());
            let time = ThreadTime::new(row.id, now_ns, running);
            let sums = self.sums_of.map(|_| ThreadSums::new(row.id, now_ns, is_new));
            let schedstat_at_start = if sums.is_some() { None } else { procfs::schedstat(pid, tid) };
            let thread =
                Thread { row, pid, time, sums, schedstat_at_start, exited_ns: None, totals_only: None };
            self.threads.insert(tid, thread);
        }
        match self.threads.get_mut(&tid) {
            Some(thread) => thread,
            None => unreachable!("it was inserted above"),
        }
    }

    /// A thread or process began.
    pub(crate) fn fork(
        &mut self,
        (pid, tid): (u32, u32),
        (parent_pid, parent_tid): (u32, u32),
        now_ns: u64,
        writer: &mut RecordingWriter,
    ) {
        self.ended.remove(&tid);
        if pid != parent_pid && tid == pid {
            self.end_process(pid, now_ns, writer);
            let parent = self.process(parent_pid, now_ns, writer);
            let (space, unwinder) = (parent.space.clone(), parent.unwinder.clone());
            let mut row = parent.row.clone();
            let maps_read_ns = parent.maps_read_ns;
            row.parent = Some(row.id);
            row.pid = pid;
            row.id = self.process_count;
            row.start_ns = now_ns;
            row.inner_pid = procfs::inner_pid(pid);
            self.process_count += 1;
            writer.push_process(row.clone());
            let process = Process { row, space, unwinder, maps_read_ns, living: 0, before_exec: false };
            self.processes.insert(pid, process);
        }
        self.end_thread(tid, now_ns, writer);
        // By the time that this record is read it may have executed another program; it began under its maker's name.
        let name = self.threads.get(&parent_tid).map(|parent| parent.row.name.clone());
        // It has not run yet; its first switch record says when it does.
        self.named_thread((pid, tid), name, now_ns, Some(false), writer);
    }

    /// Whether a record is of a thread that has ended already.
    pub(crate) fn has_ended(&self, tid: u32, now_ns: u64) -> bool {
        self.ended.get(&tid).is_some_and(|ended| now_ns.saturating_sub(*ended) < AFTERLIFE_NS)
    }

    /// The EXIT record of a thread whose last sums are still to come.
    pub(crate) fn saw_exit(&mut self, tid: u32, now_ns: u64) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.exited_ns.get_or_insert(now_ns);
        }
    }

    /// Ends the threads whose last sums have not come, by `now_ns`, as of their EXIT records.
    pub(crate) fn end_overdue(&mut self, now_ns: u64, writer: &mut RecordingWriter) {
        let overdue = |thread: &Thread| {
            let exited_ns = thread.exited_ns.filter(|exited| exited + LAST_SUMS_NS < now_ns)?;
            Some((thread.pid, thread.row.tid, exited_ns))
        };
        let overdue: Vec<_> = self.threads.values().filter_map(overdue).collect();
        for (pid, tid, exited_ns) in overdue {
            self.exit(pid, tid, exited_ns, writer);
        }
    }

    /// A thread ended; with its first thread, and no other left, the process did.
    pub(crate) fn exit(&mut self, pid: u32, tid: u32, now_ns: u64, writer: &mut RecordingWriter) {
        self.end_thread(tid, now_ns, writer);
        if self.ended.len() >= MAX_ENDED {
            self.ended.retain(|_, ended| now_ns.saturating_sub(*ended) < AFTERLIFE_NS);
        }
        self.ended.insert(tid, now_ns);
        let is_last = self.processes.get(&pid).is_some_and(|process| process.living == 0);
        // Of the whole machine not every thread has been seen; the first thread's end is nearly always the process's.
        if is_last && (pid == tid || self.machine_since_ns.is_none()) {
            self.end_process(pid, now_ns, writer);
        }
    }

    /// A process executed a new program: a new row under the same pid.
    pub(crate) fn exec(
        &mut self,
        pid: u32,
        tid: u32,
        name: String,
        now_ns: u64,
        writer: &mut RecordingWriter,
    ) {
        // A thread that is not the first and executes a program takes the tid of the first, which has just ended.
        self.ended.remove(&tid);
        let executable = procfs::executable(pid);
        if let Some(process) = self.processes.get_mut(&pid).filter(|process| process.before_exec) {
            process.before_exec = false;
            process.row.name.clone_from(&name);
            process.row.executable = executable;
            process.row.start_ns = now_ns;
            membership::of_process(pid).fill(&mut process.row);
            process.space = AddressSpace::default();
            process.unwinder = ProcessUnwinder::new();
            writer.push_process(process.row.clone());
            let thread = self.thread_in_state(pid, tid, now_ns, Some(true), writer);
            thread.row.name = name;
            return;
        }
        let before = self.processes.get(&pid).map(|process| process.row.clone());
        let threads: Vec<u32> =
            self.threads.values().filter(|of| of.pid == pid).map(|of| of.row.tid).collect();
        threads.into_iter().for_each(|tid| self.end_thread(tid, now_ns, writer));
        self.end_process(pid, now_ns, writer);
        let process = self.process(pid, now_ns, writer);
        process.row.name.clone_from(&name);
        process.row.executable = executable;
        if let Some(before) = before {
            process.row.parent = Some(before.id);
            if process.row.cgroup.is_none() {
                Membership::of_row(before).fill(&mut process.row);
            }
        }
        writer.push_process(process.row.clone());
        self.thread_in_state(pid, tid, now_ns, Some(true), writer).row.name = name;
    }

    /// A thread has a new name. The first thread's is the process's too.
    pub(crate) fn rename(
        &mut self,
        pid: u32,
        tid: u32,
        name: String,
        now_ns: u64,
        writer: &mut RecordingWriter,
    ) {
        let thread = self.thread(pid, tid, now_ns, writer);
        thread.row.name.clone_from(&name);
        writer.push_thread(thread.row.clone());
        if pid == tid {
            let process = self.process(pid, now_ns, writer);
            process.row.name = name;
            writer.push_process(process.row.clone());
        }
    }

    fn end_thread(&mut self, tid: u32, now_ns: u64, writer: &mut RecordingWriter) {
        let Some(mut thread) = self.threads.remove(&tid) else { return };
        if let Some(process) = self.processes.get_mut(&thread.pid) {
            process.living = process.living.saturating_sub(1);
        }
        thread.row.end_ns = Some(now_ns);
        self.close(&mut thread, now_ns, writer);
    }

    /// A thread had ended before its events could be opened: nothing is known of it but that it was.
    pub(crate) fn was_gone(&mut self, tid: u32, writer: &mut RecordingWriter) {
        if let Some(thread) = self.threads.get(&tid) {
            let began_ns = thread.row.start_ns;
            self.inexact += 1;
            self.end_thread(tid, began_ns, writer);
        }
    }

    /// No event could be opened for a thread: all that is known of it are the scheduler's totals.
    pub(crate) fn has_no_events(&mut self, tid: u32) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.totals_only = Some(thread.totals().unwrap_or_default());
        }
    }

    /// Reads the totals of the threads without events. They are gone with the thread, and nobody tells when that is.
    pub(crate) fn poll_totals(&mut self, now_ns: u64, writer: &mut RecordingWriter) {
        let mut gone = Vec::new();
        for thread in self.threads.values_mut().filter(|thread| thread.has_no_events()) {
            match thread.totals() {
                Some(totals) => thread.totals_only = Some(totals),
                None => gone.push(thread.row.tid),
            }
        }
        gone.into_iter().for_each(|tid| self.end_thread(tid, now_ns, writer));
    }

    /// Hands the rows of short waits to the recording that could still grow, so that a kill loses little.
    pub(crate) fn flush_waits(&mut self, writer: &mut RecordingWriter) {
        self.threads.values_mut().for_each(|thread| thread.time.flush(writer));
    }

    /// Writes a thread's last row, and a row for the time that its samples cannot stand for.
    fn close(&mut self, thread: &mut Thread, now_ns: u64, writer: &mut RecordingWriter) {
        if let Some(sums) = &mut thread.sums {
            sums.end(now_ns, |_| None, writer);
            thread.row.on_cpu_ns = sums.on_cpu_ns();
            thread.row.switches = sums.switches();
            thread.row.run_delay_ns = Some(sums.runqueue_ns());
            self.on_cpu_ns += thread.row.on_cpu_ns;
            self.switches += thread.row.switches;
            self.page_faults += sums.page_faults();
            self.crowded_waits += u64::from(sums.crowded);
            let name = self.processes.get(&thread.pid).map_or("", |process| process.row.name.as_str());
            self.pools.take(&mut thread.row, name, self.period_ns, now_ns, writer);
            writer.push_thread(thread.row.clone());
            return;
        }
        match thread.totals_only {
            Some(totals) => thread.time.end_by_totals(now_ns, totals, writer),
            None => thread.time.end(now_ns, writer),
        }
        self.inexact += u64::from(thread.time.contradictions > 0 || thread.has_no_events());
        let on_cpu_ns = thread.time.on_cpu_ns;
        thread.row.on_cpu_ns = on_cpu_ns;
        if !thread.has_no_events() {
            thread.row.switches = thread.time.switches;
            self.on_cpu_ns += on_cpu_ns;
            self.switches += thread.time.switches;
        }
        writer.push_thread(thread.row.clone());
        let unsampled = match thread.has_no_events() {
            true => (on_cpu_ns > 0).then_some((StackEnding::NotSampled, on_cpu_ns)),
            false => self.unsampled(thread.row.samples, on_cpu_ns),
        };
        if let Some((ending, weight_ns)) = unsampled {
            if thread.has_no_events() {
                self.without_events_ns += weight_ns;
            } else if ending == StackEnding::TooShortToSample {
                self.too_short_ns += weight_ns;
            } else if ending == StackEnding::KernelNotVisible {
                self.not_visible_ns += weight_ns;
            }
            push_unsampled(thread.row.id, weight_ns, ending, now_ns, writer);
        }
    }

    /// The part of a thread's time on CPU that stands without a stack: all of it where no sample caught the thread, which
    /// is no wonder in a short one, and in a long one was the kernel's time, or a loss; at
    /// paranoid 2 the ticks that fell into the kernel, which the clock counted and did not show. Ticks also go missing
    /// because the timer is set anew at every switch (0.4 to 0.6 %, measured), so a hundredth is not taken for kernel.
    fn unsampled(&self, samples: u64, on_cpu_ns: u64) -> Option<(StackEnding, u64)> {
        let ticks = on_cpu_ns / self.period_ns.max(1);
        if samples == 0 {
            let ending = match ticks {
                0..SHORT_TICKS => StackEnding::TooShortToSample,
                _ if self.kernel_visible => StackEnding::NotSampled,
                _ => StackEnding::KernelNotVisible,
            };
            return (on_cpu_ns > 0).then_some((ending, on_cpu_ns));
        }
        let missing = ticks.saturating_sub(samples);
        let is_kernel = !self.kernel_visible && missing > 2 && missing > ticks / 100;
        is_kernel.then_some((StackEnding::KernelNotVisible, missing * self.period_ns))
    }

    fn end_process(&mut self, pid: u32, now_ns: u64, writer: &mut RecordingWriter) {
        if let Some(mut process) = self.processes.remove(&pid) {
            process.row.end_ns = Some(now_ns);
            writer.push_process(process.row);
        }
    }

    /// The recording ends: everything that still lives is written as it is.
    pub(crate) fn finish(&mut self, now_ns: u64, writer: &mut RecordingWriter) {
        self.poll_totals(now_ns, writer);
        let mut threads: Vec<Thread> = self.threads.drain().map(|(_, thread)| thread).collect();
        threads.sort_by_key(|thread| thread.row.id);
        for thread in &mut threads {
            thread.row.run_delay_ns = thread.totals().map(|(_, runnable_ns)| runnable_ns);
            thread.row.end_ns = thread.exited_ns;
            self.close(thread, now_ns, writer);
        }
        self.too_short_ns += self.pools.close(now_ns, writer);
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
