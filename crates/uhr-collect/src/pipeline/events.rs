//! What the programs in the kernel tell, as rows: the counterpart of the records of perf events.

use rustc_hash::FxHashMap;
use uhr_ebpf::{Event, Head, Occasion, Sample, SampleKind, Task, Times, WaitEnd, Waker, Woken};
use uhr_model::{Avma, Interrupt, StackEnding, StackId};
use uhr_recording::tables::WakerRow;

use super::Pipeline;
use crate::perf::{self, Addresses, EventKind, Stamp, UserRegisters};
use crate::procfs;
use crate::sums::{Looked, ThreadSums};

/// Waits that are looked at and not over, at most: more can only be left over from losses.
const MAX_OPEN: usize = 1 << 20;
/// Different chains of wakers that are told apart.
const MAX_WAKERS: usize = 1 << 20;

/// What is kept between the events of one wait.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// By thread and the number of its wait.
    open: FxHashMap<(u32, u32), Looked>,
    /// Rows of `wakers`, by who it is and who had woken it.
    wakers: FxHashMap<(Waker, u32), u32>,
    /// Sums of processes that may be about to execute a program, by pid.
    renamed: FxHashMap<u32, Times>,
    /// Waits of which the stack is missing: they ended while it was taken, or it was lost.
    pub(crate) without_stack: u64,
}

impl Waits {
    /// What was seen of the wait of a thread.
    pub(crate) fn take(&mut self, tid: u32, wait: u32) -> Option<Looked> {
        self.open.remove(&(tid, wait))
    }
}

impl Pipeline {
    /// Takes in one event. They come in the order of time.
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        // Tasks outside uhr's pid namespace have no number in it.
        let Head { pid, tid, .. } = event.head();
        let has_task = pid != 0 && tid != 0;
        match event {
            Event::Sample(sample) => self.kernel_sample(sample, has_task),
            _ if !has_task => self.counted.without_task += 1,
            Event::Woken(woken) => self.woken(woken),
            Event::WaitEnd(end) => self.wait_end(end),
            Event::Times(times) => self.times(times),
            Event::Calls(calls) => {
                let thread = self.tasks.thread(pid, tid, calls.head.time_ns, &mut self.writer).row.id;
                self.calls.see(calls, thread, &mut self.writer);
            }
        }
    }

    fn kernel_sample(&mut self, sample: &Sample<'_>, has_task: bool) {
        let Head { time_ns, pid, tid, cpu } = sample.head;
        let stamp = Stamp { time_ns, pid, tid, cpu };
        match sample.kind {
            SampleKind::Waker { sleeper, wait } => {
                // The stack of a stranger would make his process part of the recording.
                let is_known = has_task && self.tasks.knows_process(pid);
                if !self.waits.open.contains_key(&(sleeper, wait)) {
                    return;
                }
                let stack = self.stack_of(sample, is_known).0;
                if let Some(looked) = self.waits.open.get_mut(&(sleeper, wait)) {
                    looked.waker_stack = stack;
                }
            }
            _ if !has_task => self.counted.without_task += 1,
            SampleKind::Wait { wait, chance } => {
                let (stack, ending) = self.stack_of(sample, true);
                let looked =
                    Looked { stack, ending, at_ns: time_ns, chance, waker: 0, waker_stack: StackId(0) };
                if self.waits.open.len() < MAX_OPEN {
                    self.waits.open.insert((tid, wait), looked);
                }
            }
            SampleKind::Cpu { period_ns } => {
                let stack = self.stack_of(sample, true);
                self.push_cpu(stamp, stack, period_ns, sample.syscall);
            }
            SampleKind::Fault { address, is_major } => {
                let stack = self.stack_of(sample, true);
                let weight = if is_major { 1 } else { self.fault_period };
                let memory = self.memory_at(pid, Avma(address), weight, time_ns);
                self.push_fault(stamp, stack, memory, weight, is_major);
            }
        }
    }

    /// The stack of a sample, as one number.
    fn stack_of(&mut self, sample: &Sample<'_>, with_program: bool) -> (StackId, StackEnding) {
        if !with_program {
            return (
                self.kernel_stack(Addresses::new(sample.kernel), sample.head.time_ns),
                StackEnding::NoUserStack,
            );
        }
        if let Some(end) = sample.walk {
            return self.walked_stack(sample, end);
        }
        if let Some(tables) = &mut self.kernel_tables {
            tables.see_copy(sample.head.pid, sample.is_of_unknown_code, sample.head.time_ns);
        }
        let as_perf = perf::Sample {
            kind: EventKind::Cpu,
            ip: sample.registers.map_or(0, |registers| registers.ip),
            period: 0,
            address: None,
            is_second_hand: false,
            in_kernel: sample.in_kernel,
            kernel_chain: Addresses::new(sample.kernel),
            user_chain: Addresses::new(sample.user),
            chain_is_full: sample.is_full,
            user_registers: sample.registers.map(|own| UserRegisters {
                ip: own.ip,
                sp: own.sp,
                bp: own.bp,
                is_32_bit: own.is_32_bit,
            }),
            stack: sample.stack,
        };
        let found = self.stack(&as_perf, (sample.head.pid, sample.head.tid), sample.head.time_ns);
        if let Some(tables) = self.kernel_tables.as_mut().filter(|_| found.1 == StackEnding::CopyTooShort) {
            tables.see_deep_stack(sample.head.pid);
        }
        found
    }

    fn woken(&mut self, woken: &Woken) {
        let key = (woken.head.tid, woken.wait);
        if !self.waits.open.contains_key(&key) {
            return;
        }
        let mut waker = 0;
        for (at, &who) in woken.wakers.iter().enumerate().rev() {
            let name = if at == 0 { procfs::name(&woken.name) } else { String::new() };
            waker = self.waker(who, waker, name);
        }
        if let Some(looked) = self.waits.open.get_mut(&key) {
            looked.waker = waker;
        }
    }

    /// The row of a waker whom `woken_by` (row, 0 for nobody known) had woken.
    fn waker(&mut self, who: Waker, woken_by: u32, name: String) -> u32 {
        if let Some(&row) = self.waits.wakers.get(&(who, woken_by)) {
            return row;
        }
        if self.waits.wakers.is_empty() {
            self.writer.push_waker(WakerRow::NOBODY);
            self.waits.wakers.insert((Waker::Thread(Task::default()), 0), 0);
        }
        let id = self.waits.wakers.len() as u32;
        if id as usize >= MAX_WAKERS {
            return 0;
        }
        let mut row = WakerRow { id, woken_by: (woken_by != 0).then_some(woken_by), ..WakerRow::NOBODY };
        if matches!(who, Waker::Interrupt | Waker::During(_)) {
            row.interrupt = Some(Interrupt::Other.code());
        }
        match who {
            Waker::Interrupt => {}
            Waker::Thread(Task { pid, tid }) | Waker::During(Task { pid, tid }) => {
                let known = self.tasks.known_thread(pid, tid).map(|thread| &thread.row);
                row.thread = known.map(|known| known.id);
                (row.pid, row.tid) = (Some(pid), Some(tid));
                let name = Some(name).filter(|name| !name.is_empty());
                row.name = name
                    .or_else(|| known.map(|known| known.name.clone()))
                    .or_else(|| procfs::thread_name(pid, tid));
            }
        }
        self.writer.push_waker(row);
        self.waits.wakers.insert((who, woken_by), id);
        id
    }

    fn wait_end(&mut self, end: &WaitEnd) {
        let Head { time_ns, pid, tid, .. } = end.head;
        let Some(looked) = self.waits.take(tid, end.wait) else {
            self.waits.without_stack += 1;
            return;
        };
        let thread = self.tasks.thread(pid, tid, time_ns, &mut self.writer);
        if let Some(sums) = &mut thread.sums {
            sums.end_wait(end, looked, &mut self.writer);
        }
    }

    fn times(&mut self, times: &Times) {
        let Head { time_ns, pid, tid, .. } = times.head;
        // The last of a thread whose process has executed another program meanwhile.
        if times.occasion == Occasion::Ended && self.tasks.known_thread(pid, tid).is_none() {
            self.counted.after_exit += 1;
            return;
        }
        let thread = self.tasks.thread(pid, tid, time_ns, &mut self.writer);
        if let Some(sums) = &mut thread.sums {
            sums.see(times, &mut self.writer);
        }
        match times.occasion {
            Occasion::Asked => {}
            Occasion::Renamed => {
                self.waits.renamed.insert(pid, times.clone());
            }
            Occasion::Ended => {
                self.tasks.exit(pid, tid, time_ns, &mut self.writer);
                self.waits.renamed.remove(&tid);
                if !self.tasks.knows_process(pid) {
                    self.code_changed(pid);
                }
            }
        }
    }

    /// A process has executed a program: what its thread had summed up before is not the new row's.
    pub(super) fn begin_sums_anew(&mut self, pid: u32, tid: u32, now_ns: u64) {
        let Some(so_far) = self.waits.renamed.remove(&pid) else { return };
        let thread = self.tasks.thread(pid, tid, now_ns, &mut self.writer);
        if let Some(sums) = &mut thread.sums {
            *sums = ThreadSums::after(thread.row.id, now_ns, &so_far);
        }
    }

    /// The recording ends: waits that are still open are written as far as they have come.
    pub(crate) fn close_sums(&mut self, now_ns: u64) {
        for thread in self.tasks.threads() {
            let (tid, until_ns) = (thread.row.tid, thread.until(now_ns));
            if let Some(sums) = &mut thread.sums {
                sums.end(until_ns, |wait| self.waits.take(tid, wait), &mut self.writer);
            }
        }
    }
}
