//! From a record to rows: what each kind of record means for the recording.

mod events;
mod mappings;
mod outside;
mod stacks;

use rustc_hash::FxHashSet;
use uhr_model::{Avma, CodeAddress, StackEnding, StackId, WaitKind};
use uhr_recording::RecordingWriter;
use uhr_recording::tables::{FaultRow, SampleRow};
use uhr_unwind::UnwindCache;

use crate::anonymous_names::AnonymousNames;
use crate::call_sums::CallSums;
use crate::evidence::GeneratedNames;
use crate::intern::Interner;
use crate::kernel_programs::KernelPrograms;
use crate::kernel_tables::KernelTables;
use crate::mapping_names::{MappingNames, SharedNames};
use crate::modules::Modules;
use crate::page_size::PageSizes;
use crate::perf::{Body, EventKind, NO_TASK, Record, Sample, Stamp};
use crate::procfs;
use crate::tasks::Tasks;
use crate::waits::WaitStack;
use crate::walk_check::WalkCheck;
use events::Waits;
use mappings::Memory;

/// What was counted on the way.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) cpu_samples: u64,
    pub(crate) faults: u64,
    pub(crate) switches: u64,
    pub(crate) lost: u64,
    pub(crate) throttles: u64,
    pub(crate) malformed: u64,
    pub(crate) without_task: u64,
    pub(crate) unknown: u64,
    pub(crate) second_hand: u64,
    pub(crate) after_exit: u64,
    pub(crate) cpu_stacks: [u64; StackEnding::ALL.len()],
    /// Time and page faults of samples from before the recording.
    pub(crate) early_cpu_ns: u64,
    pub(crate) early_faults: u64,
}

impl Counted {
    /// Counts a sample that was taken while events were still being switched on. False for one that only brings the stack of a
    /// wait, which goes on.
    fn see_early(&mut self, sample: &Sample<'_>) -> bool {
        match sample.kind {
            EventKind::Cpu => self.early_cpu_ns += sample.period,
            EventKind::PageFault => self.early_faults += sample.period,
            EventKind::Switch | EventKind::SwitchThinned | EventKind::Sideband => return false,
        }
        true
    }
}

/// Turns records into rows.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) writer: RecordingWriter,
    pub(crate) tasks: Tasks,
    pub(crate) modules: Modules,
    pub(crate) names: GeneratedNames,
    pub(crate) counted: Counted,
    pub(crate) max_stack: usize,
    /// Rows of processes whose mappings may not be read.
    pub(crate) hidden_maps: FxHashSet<u32>,
    page_sizes: PageSizes,
    anonymous_names: AnonymousNames,
    pub(crate) mapping_names: MappingNames,
    /// eBPF programs of anybody, which are in the kernel's parts of stacks.
    pub(crate) kernel_programs: KernelPrograms,
    shared_names: SharedNames,
    interner: Interner,
    cache: UnwindCache,
    /// Threads that began: where events are opened thread by thread, they have to be attached to.
    pub(crate) began: Vec<u32>,
    user_frames: Vec<CodeAddress<Avma>>,
    /// Where programs in the kernel take the samples: what is kept between their events.
    pub(crate) waits: Waits,
    /// And system calls.
    pub(crate) calls: CallSums,
    /// Page faults that one of their samples stands for.
    pub(crate) fault_period: u64,
    /// What those programs walk stacks by.
    pub(crate) kernel_tables: Option<KernelTables>,
    /// Those walks, compared, where that is asked for.
    pub(crate) walk_check: WalkCheck,
    /// The time of the latest record.
    handled_ns: u64,
}

impl Pipeline {
    pub(crate) fn new(writer: RecordingWriter, tasks: Tasks, max_stack: usize) -> Self {
        Self {
            writer,
            tasks,
            modules: Modules::default(),
            names: GeneratedNames::default(),
            counted: Counted::default(),
            max_stack,
            hidden_maps: FxHashSet::default(),
            page_sizes: PageSizes::default(),
            anonymous_names: AnonymousNames::new(),
            mapping_names: MappingNames::default(),
            kernel_programs: KernelPrograms::default(),
            shared_names: SharedNames::default(),
            interner: Interner::default(),
            cache: UnwindCache::new(),
            began: Vec::new(),
            user_frames: Vec::new(),
            waits: Waits::default(),
            calls: CallSums::default(),
            fault_period: 1,
            kernel_tables: None,
            walk_check: WalkCheck::default(),
            handled_ns: 0,
        }
    }

    /// Takes in one record. Records come in the order of time.
    pub(crate) fn handle(&mut self, record: &Record<'_>) {
        let Stamp { pid, tid, cpu, .. } = record.stamp;
        let time_ns = record.stamp.time_ns.max(self.tasks.since_ns());
        if let Body::Sample(sample) = &record.body
            && record.stamp.time_ns < time_ns
            && self.counted.see_early(sample)
        {
            return;
        }
        self.handled_ns = self.handled_ns.max(time_ns);
        let is_of_task =
            matches!(record.body, Body::Sample(_) | Body::SwitchIn { .. } | Body::SwitchOut { .. });
        if is_of_task && self.tasks.has_ended(tid, time_ns) {
            self.counted.after_exit += 1;
            return;
        }
        if self.tasks.is_stranger(&record.body) {
            return;
        }
        let has_task = pid != 0 && pid != NO_TASK && tid != 0 && tid != NO_TASK;
        match &record.body {
            Body::Sample(sample) if has_task => self.sample(sample, Stamp { time_ns, pid, tid, cpu }),
            Body::SwitchIn { .. } if has_task => {
                self.counted.switches += 1;
                self.tasks
                    .thread(pid, tid, time_ns, &mut self.writer)
                    .time
                    .switch_in(time_ns, &mut self.writer);
            }
            Body::SwitchOut { is_preempted, .. } if has_task => {
                self.counted.switches += 1;
                self.tasks
                    .thread(pid, tid, time_ns, &mut self.writer)
                    .time
                    .switch_out(time_ns, *is_preempted);
            }
            Body::Mapping(mapping) => self.mapping(mapping, time_ns),
            Body::Name { pid, tid, name, is_exec: true } => {
                if let Some(tables) = &mut self.kernel_tables {
                    tables.see_exec(*pid);
                }
                self.tasks.exec(*pid, *tid, procfs::name(name), time_ns, &mut self.writer);
                self.begin_sums_anew(*pid, *tid, time_ns);
            }
            Body::Name { pid, tid, name, is_exec: false } => {
                self.code_changed(*pid);
                self.tasks.rename(*pid, *tid, procfs::name(name), time_ns, &mut self.writer);
            }
            Body::Fork(task) => {
                self.began.push(task.tid);
                let parent = (task.parent_pid, task.parent_tid);
                self.tasks.fork((task.pid, task.tid), parent, time_ns, &mut self.writer);
                if let Some(tables) = &mut self.kernel_tables
                    && task.pid != task.parent_pid
                {
                    tables.see_fork(task.parent_pid, task.pid);
                }
            }
            // Sums come once more, when the thread leaves its CPU for the last time.
            Body::Exit(task) if self.tasks.has_sums() => self.tasks.saw_exit(task.tid, time_ns),
            Body::Exit(task) => self.tasks.exit(task.pid, task.tid, time_ns, &mut self.writer),
            Body::Lost { count } | Body::LostSamples { count } => self.counted.lost += count,
            Body::Throttle => self.counted.throttles += 1,
            // The idle task has pid 0, and switches whenever a CPU has nothing to do.
            Body::Sample(_) | Body::SwitchIn { .. } | Body::SwitchOut { .. } if pid == 0 => {}
            Body::Sample(_) | Body::SwitchIn { .. } | Body::SwitchOut { .. } => {
                self.counted.without_task += 1
            }
            Body::KernelSymbol(symbol) => self.kernel_programs.see(symbol, time_ns),
            // They are asked for.
            Body::BpfProgram(_) | Body::Unthrottle => {}
            Body::Unknown { .. } => self.counted.unknown += 1,
        }
    }

    fn sample(&mut self, sample: &Sample<'_>, stamp: Stamp) {
        let Stamp { time_ns, pid, tid, .. } = stamp;
        self.counted.second_hand += u64::from(sample.is_second_hand);
        let (stack, ending) = self.stack(sample, (pid, tid), time_ns);
        match sample.kind {
            EventKind::Cpu => {
                self.tasks.thread(pid, tid, time_ns, &mut self.writer).time.saw_running();
                self.push_cpu(stamp, (stack, ending), sample.period, None);
            }
            EventKind::PageFault => {
                let address = Avma(sample.address.unwrap_or(0));
                let memory = self.memory_at(pid, address, sample.period, time_ns);
                self.push_fault(stamp, (stack, ending), memory, sample.period, false);
            }
            EventKind::Switch | EventKind::SwitchThinned => {
                // The kernel's frames say later what it waits for; see the finish step.
                let thread = self.tasks.thread(pid, tid, time_ns, &mut self.writer);
                thread.time.set_switch_stack(WaitStack {
                    stack,
                    ending,
                    syscall: None,
                    wait: WaitKind::Unknown,
                });
            }
            EventKind::Sideband => {}
        }
    }

    /// A thread was seen on a CPU.
    fn push_cpu(
        &mut self,
        Stamp { time_ns, pid, tid, cpu }: Stamp,
        (stack, ending): (StackId, StackEnding),
        weight_ns: u64,
        syscall: Option<u32>,
    ) {
        let thread = self.tasks.thread(pid, tid, time_ns, &mut self.writer);
        thread.row.samples += 1;
        let thread = thread.row.id;
        self.counted.cpu_samples += 1;
        self.counted.cpu_stacks[usize::from(ending.code())] += 1;
        self.writer.push_sample(SampleRow {
            time_ns,
            thread,
            cpu: cpu as u16,
            stack: stack.0,
            weight_ns,
            ending: ending.code(),
            syscall,
        });
    }

    /// A thread touched memory that was not there.
    fn push_fault(
        &mut self,
        Stamp { time_ns, pid, tid, .. }: Stamp,
        (stack, ending): (StackId, StackEnding),
        memory: Memory,
        weight: u64,
        major: bool,
    ) {
        let thread = self.tasks.thread(pid, tid, time_ns, &mut self.writer).row.id;
        self.counted.faults += weight;
        self.writer.push_fault(FaultRow {
            time_ns,
            thread,
            stack: stack.0,
            ending: ending.code(),
            address: memory.address,
            region: memory.region.code(),
            mapping: memory.name,
            weight,
            major,
            page: memory.page.code(),
        });
    }
}
