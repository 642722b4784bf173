//! When a thread ran and when it did not, where programs in the kernel add it up: sums come about once a second, and the
//! few waits whose stack was taken come one by one.

use rustc_hash::FxHashMap;
use uhr_ebpf::{Chance, File, How, Occasion, State, Times, WaitEnd, Why};
use uhr_model::{StackEnding, StackId, WaitKind};
use uhr_recording::RecordingWriter;
use uhr_recording::tables::OffCpuRow;

/// A wait whose stack was taken, and who ended it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looked {
    pub(crate) stack: StackId,
    pub(crate) ending: StackEnding,
    /// When.
    pub(crate) at_ns: u64,
    /// How likely it was.
    pub(crate) chance: Chance,
    /// Row of `wakers`.
    pub(crate) waker: u32,
    pub(crate) waker_stack: StackId,
}

impl Looked {
    /// What its wait of this length, which ended then, stands for.
    fn weight_ns(self, length_ns: u64, end_ns: u64) -> Option<u64> {
        self.chance.weight_ns(length_ns, end_ns.saturating_sub(self.at_ns))
    }
}

/// What is already in the recording, or was before it began.
#[derive(Clone, Copy, Default, Debug)]
struct Told {
    ns: u64,
    count: u32,
}

/// The time of one thread.
#[derive(Debug, Default)]
pub(crate) struct ThreadSums {
    /// Row of `threads`.
    thread: u32,
    /// When its row begins.
    began_ns: u64,
    /// Until when sums have been told.
    told_ns: u64,
    waits: FxHashMap<Why, Told>,
    runqueue: Told,
    /// Time on CPU and switches before the row began: the same thread under another program.
    before: (u64, u32),
    last: Option<Times>,
    /// Page faults that were before the row began. `None`: not known yet.
    faults_before: Option<u64>,
    is_over: bool,
    /// Waits that went into a sum of mixed kinds.
    pub(crate) crowded: u32,
}

impl ThreadSums {
    /// A thread whose row begins at `now_ns`; `is_new` if the thread itself does.
    pub(crate) fn new(thread: u32, now_ns: u64, is_new: bool) -> Self {
        let faults_before = is_new.then_some(0);
        Self { thread, began_ns: now_ns, told_ns: now_ns, faults_before, ..Self::default() }
    }

    /// The same, for a thread that executed a program: the sums so far are another row's.
    pub(crate) fn after(thread: u32, now_ns: u64, so_far: &Times) -> Self {
        let told = |ns, count| Told { ns, count };
        Self {
            waits: so_far.waits.iter().map(|&(why, ns, count)| (why, told(ns, count))).collect(),
            runqueue: told(so_far.runqueue_ns, 0),
            before: (so_far.on_cpu_ns, so_far.switches),
            crowded: so_far.crowded,
            faults_before: Some(so_far.minor_faults + so_far.major_faults),
            ..Self::new(thread, now_ns, false)
        }
    }

    /// Exact time on CPU so far.
    pub(crate) fn on_cpu_ns(&self) -> u64 {
        self.last.as_ref().map_or(0, |times| times.on_cpu_ns.saturating_sub(self.before.0))
    }

    /// Exact time able to run but not running.
    pub(crate) fn runqueue_ns(&self) -> u64 {
        self.runqueue.ns
    }

    /// How often it left its CPU.
    pub(crate) fn switches(&self) -> u64 {
        self.last.as_ref().map_or(0, |times| u64::from(times.switches.saturating_sub(self.before.1)))
    }

    /// Page faults, by the kernel's own count.
    pub(crate) fn page_faults(&self) -> u64 {
        let all = self.last.as_ref().map_or(0, |times| times.minor_faults + times.major_faults);
        all.saturating_sub(self.faults_before.unwrap_or(0))
    }

    /// The sums grew: what is new in them becomes rows.
    pub(crate) fn see(&mut self, times: &Times, writer: &mut RecordingWriter) {
        let now_ns = times.head.time_ns;
        for &(why, ns, count) in &times.waits {
            let told = self.waits.entry(why).or_default();
            // A wait that was told by itself may be in the sums only next time.
            let new = Told { ns: ns.saturating_sub(told.ns), count: count.saturating_sub(told.count) };
            if new.ns > 0 {
                *told = Told { ns: told.ns.max(ns), count: told.count.max(count) };
                self.push_sum(new, why, false, now_ns, writer);
            }
        }
        let new = Told { ns: times.runqueue_ns.saturating_sub(self.runqueue.ns), count: 1 };
        if new.ns > 0 {
            self.runqueue.ns = times.runqueue_ns;
            self.push_sum(new, Why::default(), true, now_ns, writer);
        }
        self.faults_before.get_or_insert(times.minor_faults + times.major_faults);
        self.told_ns = now_ns;
        self.is_over = times.occasion == Occasion::Ended;
        self.crowded = times.crowded;
        self.last = Some(times.clone());
    }

    fn push_sum(&self, new: Told, why: Why, runnable: bool, now_ns: u64, writer: &mut RecordingWriter) {
        // Waits that nobody looked at may have begun before the last telling.
        let start_ns = self.told_ns.min(now_ns.saturating_sub(new.ns));
        self.push(start_ns, now_ns.max(start_ns), new, why, runnable, None, writer);
    }

    /// A wait that was looked at is over. One whose stack stands for nothing stays in the sum.
    pub(crate) fn end_wait(&mut self, end: &WaitEnd, looked: Looked, writer: &mut RecordingWriter) {
        let wait_ns = end.woken_ns.saturating_sub(end.since_ns);
        if looked.weight_ns(wait_ns, end.woken_ns).is_none() {
            return;
        }
        let told = self.waits.entry(end.why).or_default();
        told.ns += wait_ns;
        told.count += 1;
        let queued_ns = end.head.time_ns.saturating_sub(end.woken_ns);
        self.runqueue.ns += queued_ns;
        // It may have begun before the thread's row.
        let since_ns = end.since_ns.max(self.began_ns);
        let woken_ns = end.woken_ns.max(since_ns);
        let wait = Told { ns: woken_ns - since_ns, count: 1 };
        self.push(since_ns, woken_ns, wait, end.why, false, Some(looked), writer);
        let queued = Told { ns: end.head.time_ns.saturating_sub(woken_ns), count: 1 };
        self.push(woken_ns, end.head.time_ns, queued, end.why, true, Some(looked), writer);
    }

    /// The thread, its row or the recording ended: what it was doing then is counted up to that moment.
    pub(crate) fn end(
        &mut self,
        now_ns: u64,
        looked: impl FnOnce(u32) -> Option<Looked>,
        writer: &mut RecordingWriter,
    ) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let Some(mut last) = self.last.take() else { return };
        // What it does may have begun before its row.
        last.since_ns = last.since_ns.max(self.began_ns);
        let open = Told { ns: now_ns.saturating_sub(last.since_ns), count: 1 };
        match last.state {
            State::Running => last.on_cpu_ns += open.ns,
            State::Runnable => self.push_open(last.since_ns, now_ns, Why::default(), true, None, writer),
            State::Waiting { why, woken_ns } => {
                let woken_ns = woken_ns.unwrap_or(now_ns).clamp(last.since_ns.min(now_ns), now_ns);
                self.push_open(last.since_ns, woken_ns, why, false, looked(last.wait), writer);
                self.push_open(woken_ns, now_ns, why, true, None, writer);
            }
        }
        self.last = Some(last);
    }

    fn push_open(
        &mut self,
        start_ns: u64,
        end_ns: u64,
        why: Why,
        runnable: bool,
        looked: Option<Looked>,
        writer: &mut RecordingWriter,
    ) {
        let open = Told { ns: end_ns.saturating_sub(start_ns), count: 1 };
        if runnable {
            self.runqueue.ns += open.ns;
        }
        self.push(start_ns, end_ns, open, why, runnable, looked, writer);
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one row")]
    fn push(
        &self,
        start_ns: u64,
        end_ns: u64,
        time: Told,
        why: Why,
        runnable: bool,
        looked: Option<Looked>,
        writer: &mut RecordingWriter,
    ) {
        if time.ns == 0 {
            return;
        }
        let standing_for = looked.filter(|_| !runnable).and_then(|looked| looked.weight_ns(time.ns, end_ns));
        writer.push_off_cpu(OffCpuRow {
            start_ns,
            end_ns,
            duration_ns: time.ns,
            weight_ns: standing_for.unwrap_or(time.ns),
            count: time.count.max(1),
            thread: self.thread,
            stack: looked.map_or(0, |looked| looked.stack.0),
            ending: looked.map_or(StackEnding::NotSampled, |looked| looked.ending).code(),
            runnable,
            wait: if runnable { WaitKind::Unknown } else { kind(why) }.code(),
            syscall: why.syscall.filter(|_| !runnable || looked.is_some()),
            waker: looked.map_or(0, |looked| looked.waker),
            waker_stack: looked.map_or(0, |looked| looked.waker_stack.0),
        });
    }
}

/// The kind of wait, as far as the scheduler and the system call tell it; the kernel's part of the stack may tell more.
pub(crate) fn kind(why: Why) -> WaitKind {
    match (why.how, why.file, why.syscall) {
        (How::Stopped, _, _) => WaitKind::Signal,
        (_, File::Pipe, _) => WaitKind::Pipe,
        (_, File::Socket, _) => WaitKind::Socket,
        (How::Disk, _, Some(_)) => WaitKind::Disk,
        (How::Uninterruptible, File::Disk, _) => WaitKind::Disk,
        (How::Disk | How::Uninterruptible, _, None) => WaitKind::PageFault,
        (_, _, Some(syscall)) => WaitKind::of_syscall(syscall),
        (_, _, None) => WaitKind::Unknown,
    }
}
