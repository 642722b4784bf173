//! When a thread ran and when it did not: one small state machine a thread, fed by switch records.

use uhr_model::{StackEnding, StackId, WaitKind};
use uhr_recording::tables::OffCpuRow;
use uhr_recording::{RecordingWriter, length_class};

/// Waits of one thread with the same stack and kind that begin in the same part of this length become one row, so that
/// a program with 100,000 waits a second stays readable. Longer waits are always rows of their own.
const MERGE_NS: u64 = 100_000_000;

/// The stack that a thread left its CPU with, and what is known of why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaitStack {
    pub(crate) stack: StackId,
    pub(crate) ending: StackEnding,
    pub(crate) syscall: Option<u32>,
    pub(crate) wait: WaitKind,
}

impl WaitStack {
    const NONE: Self =
        Self { stack: StackId(0), ending: StackEnding::NotSampled, syscall: None, wait: WaitKind::Unknown };
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// No record has told yet.
    Unknown,
    Running,
    /// Off its CPU; `runnable` if something else took it.
    Off {
        runnable: bool,
    },
}

/// The time of one thread.
#[derive(Debug)]
pub(crate) struct ThreadTime {
    thread: u32,
    state: State,
    /// Since when it is in that state.
    since_ns: u64,
    /// Exact time on CPU so far.
    pub(crate) on_cpu_ns: u64,
    /// How often it left its CPU.
    pub(crate) switches: u64,
    /// Time preempted so far.
    pub(crate) preempted_ns: u64,
    /// The stack of the present wait, or of the one that is about to begin, as the kernel took it at the switch.
    at_switch: Option<WaitStack>,
    /// The kernel takes stacks at switches, of all of them or of one in so many.
    has_switch_stacks: bool,
    /// A stack that was read from outside, and when. Records lag behind, so it may belong to a wait yet to come.
    from_outside: Option<(u64, WaitStack)>,
    /// Rows that may still grow.
    merged: Vec<OffCpuRow>,
    /// Switch records that did not fit the state: one before them was lost.
    pub(crate) contradictions: u64,
}

impl ThreadTime {
    /// A thread that is first seen at `now_ns`; `running` where that is known.
    pub(crate) fn new(thread: u32, now_ns: u64, running: Option<bool>) -> Self {
        let state = match running {
            Some(true) => State::Running,
            Some(false) => State::Off { runnable: false },
            None => State::Unknown,
        };
        Self {
            thread,
            state,
            since_ns: now_ns,
            on_cpu_ns: 0,
            switches: 0,
            preempted_ns: 0,
            at_switch: None,
            has_switch_stacks: false,
            from_outside: None,
            merged: Vec::new(),
            contradictions: 0,
        }
    }

    /// A sample of it was taken while it ran.
    pub(crate) fn saw_running(&mut self) {
        if self.state == State::Unknown {
            self.state = State::Running;
        }
    }

    /// The stack with which it leaves its CPU.
    pub(crate) fn set_switch_stack(&mut self, stack: WaitStack) {
        self.at_switch = Some(stack);
        self.has_switch_stacks = true;
    }

    /// The stack that it was seen blocked with at `time_ns`.
    pub(crate) fn set_outside_stack(&mut self, time_ns: u64, stack: WaitStack) {
        self.from_outside = Some((time_ns, stack));
    }

    /// It was given a CPU.
    pub(crate) fn switch_in(&mut self, now_ns: u64, writer: &mut RecordingWriter) {
        match self.state {
            State::Running => self.contradictions += 1,
            State::Off { runnable } => self.end_wait(now_ns, runnable, writer),
            // It came in first: until now it was off, for a reason that was not seen.
            State::Unknown => self.end_wait(now_ns, false, writer),
        }
        self.state = State::Running;
        self.since_ns = now_ns;
        self.at_switch = None;
        self.from_outside = self.from_outside.filter(|(time_ns, _)| *time_ns > now_ns);
    }

    /// It left its CPU.
    pub(crate) fn switch_out(&mut self, now_ns: u64, runnable: bool) {
        match self.state {
            State::Running | State::Unknown => self.on_cpu_ns += now_ns.saturating_sub(self.since_ns),
            State::Off { .. } => self.contradictions += 1,
        }
        self.switches += 1;
        self.state = State::Off { runnable };
        self.since_ns = now_ns;
    }

    /// It ended, or the recording did.
    pub(crate) fn end(&mut self, now_ns: u64, writer: &mut RecordingWriter) {
        match self.state {
            State::Running => self.on_cpu_ns += now_ns.saturating_sub(self.since_ns),
            State::Off { runnable } => self.end_wait(now_ns, runnable, writer),
            State::Unknown => self.end_wait(now_ns, false, writer),
        }
        self.state = State::Off { runnable: false };
        self.since_ns = now_ns;
        self.merged.drain(..).for_each(|row| writer.push_off_cpu(row));
    }

    /// It ended, or the recording did, and no record ever told of it: how long it ran and how long it was runnable comes
    /// from the scheduler's totals, and the rest it waited. Rows stand as if that had happened in this order.
    pub(crate) fn end_by_totals(
        &mut self,
        now_ns: u64,
        (on_cpu_ns, runnable_ns): (u64, u64),
        writer: &mut RecordingWriter,
    ) {
        let left_ns = self.since_ns.saturating_add(on_cpu_ns).min(now_ns);
        let waits_ns = left_ns.saturating_add(runnable_ns).min(now_ns);
        self.state = State::Running;
        self.switch_out(left_ns, true);
        self.switch_in(waits_ns, writer);
        self.switch_out(waits_ns, false);
        self.end(now_ns, writer);
    }

    /// Writes the rows that may still grow.
    pub(crate) fn flush(&mut self, writer: &mut RecordingWriter) {
        self.merged.drain(..).for_each(|row| writer.push_off_cpu(row));
    }

    /// Since when it has been waiting without a stack, if it has.
    pub(crate) fn waits_without_stack_since(&self) -> Option<u64> {
        let waits = matches!(self.state, State::Off { runnable: false } | State::Unknown);
        (waits && self.at_switch.is_none() && self.from_outside.is_none()).then_some(self.since_ns)
    }

    fn end_wait(&mut self, now_ns: u64, runnable: bool, writer: &mut RecordingWriter) {
        let duration_ns = now_ns.saturating_sub(self.since_ns);
        if duration_ns == 0 {
            return;
        }
        let outside = self.from_outside.filter(|(time_ns, _)| (self.since_ns..=now_ns).contains(time_ns));
        // A look from outside meets long waits more often than short ones. Among short waits that would be unfair where
        // switches are sampled by number; where that look is all there is, it is better than nothing.
        let outside = outside.filter(|_| !self.has_switch_stacks || length_class(duration_ns) > 0);
        let of = self.at_switch.or(outside.map(|(_, stack)| stack)).unwrap_or(WaitStack::NONE);
        if runnable {
            self.preempted_ns += duration_ns;
        }
        let row = OffCpuRow {
            start_ns: self.since_ns,
            end_ns: now_ns,
            duration_ns,
            weight_ns: duration_ns,
            count: 1,
            thread: self.thread,
            stack: of.stack.0,
            ending: of.ending.code(),
            runnable,
            wait: of.wait.code(),
            syscall: of.syscall,
            waker: 0,
            waker_stack: 0,
        };
        if duration_ns >= MERGE_NS {
            writer.push_off_cpu(row);
        } else {
            self.merge(row, writer);
        }
    }

    /// Adds a short wait to the row of its like, and writes the rows whose part of time is over.
    fn merge(&mut self, row: OffCpuRow, writer: &mut RecordingWriter) {
        let part = row.start_ns / MERGE_NS;
        if self.merged.first().is_some_and(|first| first.start_ns / MERGE_NS != part) {
            self.merged.drain(..).for_each(|row| writer.push_off_cpu(row));
        }
        let alike = self.merged.iter_mut().find(|old| {
            let class = length_class(old.duration_ns / u64::from(old.count));
            (old.stack, old.ending, old.runnable, old.wait, old.syscall, class)
                == (row.stack, row.ending, row.runnable, row.wait, row.syscall, length_class(row.duration_ns))
        });
        match alike {
            Some(old) => {
                old.end_ns = row.end_ns;
                old.duration_ns += row.duration_ns;
                old.weight_ns = old.duration_ns;
                old.count += 1;
            }
            None => self.merged.push(row),
        }
    }
}

#[cfg(test)]
mod tests {
    use uhr_recording::tables::OffCpu;
    use uhr_recording::{Clock, Host, Manifest, Recording, RecordingWriter, Settings};

    use super::*;

    fn rows(feed: impl FnOnce(&mut ThreadTime, &mut RecordingWriter)) -> (ThreadTime, OffCpu) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rec");
        let manifest = Manifest::new(Settings::default(), Host::default(), Clock::default());
        let mut writer = RecordingWriter::create(&path, &manifest).unwrap();
        let mut time = ThreadTime::new(0, 1_000, None);
        feed(&mut time, &mut writer);
        writer.finish(&manifest).unwrap();
        (time, Recording::open(&path).unwrap().table().unwrap())
    }

    fn wait_stack(stack: u32) -> WaitStack {
        let (ending, wait) = (StackEnding::Complete, WaitKind::Sleep);
        WaitStack { stack: StackId(stack), ending, syscall: Some(230), wait }
    }

    #[test]
    fn every_nanosecond_is_on_or_off() {
        let (time, rows) = rows(|time, writer| {
            time.switch_out(2_000, false); // It ran since it was first seen.
            time.switch_in(5_000, writer);
            time.switch_out(5_500, true);
            time.switch_in(6_000, writer);
            time.end(9_000, writer);
        });
        assert_eq!((time.on_cpu_ns, time.preempted_ns, time.contradictions), (1_000 + 500 + 3_000, 500, 0));
        assert_eq!(rows.duration_ns.iter().sum::<u64>() + time.on_cpu_ns, 8_000);
        assert_eq!(rows.runnable, [false, true]);
        assert_eq!(rows.ending, [StackEnding::NotSampled.code(); 2]);
    }

    #[test]
    fn a_thread_that_never_ran_was_off_all_the_time() {
        let (time, rows) = rows(|time, writer| time.end(9_000, writer));
        assert_eq!((time.on_cpu_ns, rows.duration_ns.as_slice()), (0, &[8_000][..]));
    }

    #[test]
    fn totals_stand_for_a_thread_without_records() {
        let (time, rows) = rows(|time, writer| time.end_by_totals(9_000, (2_000, 500), writer));
        assert_eq!((time.on_cpu_ns, time.preempted_ns, time.contradictions), (2_000, 500, 0));
        assert_eq!((rows.duration_ns, rows.runnable), (vec![500, 5_500], vec![true, false]));
        let (time, rows) = self::rows(|time, writer| time.end_by_totals(9_000, (u64::MAX, 500), writer));
        assert_eq!((time.on_cpu_ns, rows.duration_ns.len()), (8_000, 0));
    }

    #[test]
    fn short_waits_of_one_kind_are_one_row_and_long_ones_their_own() {
        let (_, rows) = rows(|time, writer| {
            for at in 0..5 {
                time.set_switch_stack(wait_stack(7));
                time.switch_out(2_000 + at * 100, false);
                time.switch_in(2_050 + at * 100, writer);
            }
            time.set_switch_stack(wait_stack(7));
            time.switch_out(10_000, false);
            time.end(10_000 + 2 * MERGE_NS, writer);
        });
        assert_eq!(rows.count, [1, 5]);
        assert_eq!(rows.duration_ns, [2 * MERGE_NS, 250]);
        assert_eq!((rows.start_ns[1], rows.end_ns[1], rows.stack[1]), (2_000, 2_450, 7));
    }

    #[test]
    fn a_stack_from_outside_goes_to_the_wait_that_it_was_seen_in() {
        let (_, rows) = rows(|time, writer| {
            time.switch_out(2_000, false);
            time.set_outside_stack(900_000_000, wait_stack(3)); // Seen before the records of the wait arrived.
            time.switch_in(3_000, writer);
            time.switch_out(500_000_000, false);
            time.switch_in(950_000_000, writer);
            time.end(951_000_000, writer);
        });
        assert_eq!((rows.stack.as_slice(), rows.count.as_slice()), (&[3, 0][..], &[1, 1][..]));
    }

    #[test]
    fn short_waits_have_their_stacks_from_switches_alone_where_those_are_sampled() {
        for (is_sampled, stacks) in [(false, vec![3, 7]), (true, vec![0, 7])] {
            let (_, rows) = rows(|time, writer| {
                if is_sampled {
                    time.switch_out(1_100, false);
                    time.set_switch_stack(wait_stack(9));
                    time.switch_in(1_100, writer); // No wait at all.
                }
                time.set_outside_stack(1_000_500, wait_stack(3));
                time.switch_out(1_000_000, false);
                time.switch_in(1_001_000, writer); // One of a microsecond,
                time.set_outside_stack(5_000_000, wait_stack(7));
                time.switch_out(2_000_000, false);
                time.switch_in(9_000_000, writer); // one of 7 ms.
                time.end(9_000_000, writer);
            });
            assert_eq!(rows.stack, stacks, "{is_sampled}");
        }
    }

    #[test]
    fn a_lost_record_is_noticed() {
        let (time, _) = rows(|time, writer| {
            time.switch_out(2_000, false);
            time.switch_out(3_000, false);
            time.end(4_000, writer);
        });
        assert_eq!(time.contradictions, 1);
    }
}
