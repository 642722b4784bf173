//! From a record to rows: what each kind of record means for the recording.

use std::io;

use uhr_model::{Avma, CodeAddress, FileOffset, FrameMode, Region, StackEnding, StackId, WaitKind};
use uhr_recording::RecordingWriter;
use uhr_recording::tables::{FaultRow, MappingRow, SampleRow};

use crate::address_space::{Mapped, MappedCode, region_of};
use crate::evidence::{GeneratedNames, is_jitdump};
use crate::intern::{FrameKey, Interner};
use crate::modules::{Identity, Modules};
use crate::perf::{Body, EventKind, FileIdentity, Mapping, NO_TASK, Record, Sample, Stamp};
use crate::procfs;
use crate::tasks::Tasks;
use crate::unwind::{ProcessMemory, Registers, StackCopy, TargetMemory, UnwindCache};
use crate::waits::WaitStack;

/// Mappings of one process are read again from `/proc` at most this often.
const MAPS_PAUSE_NS: u64 = 1_000_000_000;

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
    pub(crate) cpu_stacks: [u64; StackEnding::ALL.len()],
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
    interner: Interner,
    cache: UnwindCache,
    /// Threads that began: where events are opened thread by thread, they have to be attached to.
    pub(crate) began: Vec<u32>,
    user_frames: Vec<CodeAddress<Avma>>,
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
            interner: Interner::default(),
            cache: UnwindCache::new(),
            began: Vec::new(),
            user_frames: Vec::new(),
        }
    }

    /// Takes in one record. Records come in the order of time.
    pub(crate) fn handle(&mut self, record: &Record<'_>) {
        let Stamp { time_ns, pid, tid, cpu } = record.stamp;
        let has_task = pid != 0 && pid != NO_TASK && tid != 0 && tid != NO_TASK;
        match &record.body {
            Body::Sample(sample) if has_task => self.sample(sample, record.stamp, cpu),
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
                self.tasks.exec(*pid, *tid, procfs::name(name), time_ns, &mut self.writer);
            }
            Body::Name { pid, tid, name, is_exec: false } => {
                self.tasks.rename(*pid, *tid, procfs::name(name), time_ns, &mut self.writer);
            }
            Body::Fork(task) => {
                self.began.push(task.tid);
                self.tasks.fork((task.pid, task.tid), task.parent_pid, time_ns, &mut self.writer);
            }
            Body::Exit(task) => self.tasks.exit(task.pid, task.tid, time_ns, &mut self.writer),
            Body::Lost { count } | Body::LostSamples { count } => self.counted.lost += count,
            Body::Throttle => self.counted.throttles += 1,
            Body::Sample(_) | Body::SwitchIn { .. } | Body::SwitchOut { .. } => {
                self.counted.without_task += 1
            }
            Body::Unthrottle | Body::KernelSymbol(_) | Body::BpfProgram(_) => {}
            Body::Unknown { .. } => self.counted.unknown += 1,
        }
    }

    fn sample(&mut self, sample: &Sample<'_>, stamp: Stamp, cpu: u32) {
        let Stamp { time_ns, pid, tid, .. } = stamp;
        self.counted.second_hand += u64::from(sample.is_second_hand);
        let (stack, ending) = self.stack(sample, pid, time_ns);
        let region = sample.address.map(|address| self.region(pid, Avma(address), time_ns));
        let thread = self.tasks.thread(pid, tid, time_ns, &mut self.writer);
        let id = thread.row.id;
        match sample.kind {
            EventKind::Cpu => {
                thread.time.saw_running();
                thread.row.samples += 1;
                self.counted.cpu_samples += 1;
                self.counted.cpu_stacks[usize::from(ending.code())] += 1;
                self.writer.push_sample(SampleRow {
                    time_ns,
                    thread: id,
                    cpu: cpu as u16,
                    stack: stack.0,
                    weight_ns: sample.period,
                    ending: ending.code(),
                });
            }
            EventKind::PageFault => {
                let address = sample.address.unwrap_or(0);
                self.counted.faults += sample.period;
                self.writer.push_fault(FaultRow {
                    time_ns,
                    thread: id,
                    stack: stack.0,
                    ending: ending.code(),
                    address,
                    region: region.unwrap_or(Region::Unknown).code(),
                    weight: sample.period,
                });
            }
            EventKind::Switch | EventKind::SwitchThinned => {
                // The kernel's frames say later what it waits for; see the finish step.
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

    /// The stack of a sample: kernel frames at the leaf, user frames below them.
    fn stack(&mut self, sample: &Sample<'_>, pid: u32, now_ns: u64) -> (StackId, StackEnding) {
        let mut user_frames = std::mem::take(&mut self.user_frames);
        user_frames.clear();
        let ending = self.user_stack(sample, pid, now_ns, &mut user_frames);
        let kernel =
            if sample.kernel_chain.is_empty() { None } else { Some(self.modules.kernel(&mut self.writer)) };
        let kernel_frame = |(at, address): (usize, u64)| {
            let address = Avma(address);
            let code = if at == 0 { CodeAddress::Instruction(address) } else { CodeAddress::Return(address) };
            FrameKey { mode: FrameMode::Kernel, module: kernel, address: code.lookup().0, is_return: at > 0 }
        };
        let mut kernel_frames: Vec<FrameKey> =
            sample.kernel_chain.iter().enumerate().map(kernel_frame).collect();
        kernel_frames.reverse();
        let space = &self.tasks.process(pid, now_ns, &mut self.writer).space;
        let user = user_frames
            .iter()
            .rev()
            .map(|code| space.frame(code.lookup(), matches!(code, CodeAddress::Return(_))));
        let frames: Vec<FrameKey> = user.chain(kernel_frames).collect();
        let stack = self.interner.stack(frames.into_iter(), &mut self.writer);
        self.user_frames = user_frames;
        (stack, ending)
    }

    fn user_stack(
        &mut self,
        sample: &Sample<'_>,
        pid: u32,
        now_ns: u64,
        out: &mut Vec<CodeAddress<Avma>>,
    ) -> StackEnding {
        let memory = ProcessMemory::new(pid);
        let mut chain: Vec<u64> = sample.user_chain.iter().collect();
        if let Some(ip) = chain.first().copied().or(sample.user_registers.map(|regs| regs.ip)) {
            self.know(pid, Avma(ip), now_ns);
        }
        let process = self.tasks.process(pid, now_ns, &mut self.writer);
        let unwinder = &mut process.unwinder;
        if let Some(regs) = sample.user_registers.filter(|regs| !regs.is_32_bit) {
            let stack = StackCopy { start: Avma(regs.sp), bytes: sample.stack };
            let registers = Registers::new(regs.ip, regs.sp).with_bp(regs.bp);
            if chain.is_empty() {
                return unwinder.unwind(registers, stack, Some(&memory), &mut self.cache, out);
            }
            let caller = unwinder.caller_of_leaf(registers, stack, Some(&memory), &mut self.cache);
            if let Some(Avma(caller)) = caller
                && chain.get(1) != Some(&caller)
            {
                chain.insert(1, caller);
            }
        }
        if !chain.is_empty() {
            let (most, cache) = (self.max_stack, &mut self.cache);
            let ending = unwinder.frame_pointer_chain(&chain, most, Some(&memory), cache, out);
            return if sample.chain_is_full { StackEnding::TooDeep } else { ending };
        }
        if let Some(regs) = sample.user_registers {
            out.push(CodeAddress::Instruction(Avma(regs.ip)));
            return StackEnding::NoUnwindInfo;
        }
        // A kernel thread has no program, and its stack is whole without a user part.
        let is_kernel_thread = process.row.executable.is_none() && !sample.kernel_chain.is_empty();
        if is_kernel_thread { StackEnding::Complete } else { StackEnding::NoUserStack }
    }

    /// Makes sure that the mapping of a code address is known: mremap gives no record, and a process that lived before
    /// the recording gave none either.
    fn know(&mut self, pid: u32, address: Avma, now_ns: u64) {
        let process = self.tasks.process(pid, now_ns, &mut self.writer);
        let is_fresh = process.maps_read_ns.is_some_and(|read| now_ns.saturating_sub(read) < MAPS_PAUSE_NS);
        if !is_fresh && !process.unwinder.knows(address) {
            self.read_maps(pid, now_ns);
        }
    }

    fn region(&mut self, pid: u32, address: Avma, now_ns: u64) -> Region {
        let process = self.tasks.process(pid, now_ns, &mut self.writer);
        let region = process.space.region(address);
        let is_fresh = process.maps_read_ns.is_some_and(|read| now_ns.saturating_sub(read) < MAPS_PAUSE_NS);
        if region != Region::Unknown || is_fresh {
            return region;
        }
        self.read_maps(pid, now_ns);
        self.tasks.process(pid, now_ns, &mut self.writer).space.region(address)
    }

    /// Reads the mappings of a living process from `/proc`.
    pub(crate) fn read_maps(&mut self, pid: u32, now_ns: u64) {
        self.tasks.process(pid, now_ns, &mut self.writer).maps_read_ns = Some(now_ns);
        for line in procfs::maps(pid) {
            let identity =
                if line.inode == 0 { Identity::None } else { Identity::Inode(line.device, line.inode) };
            let range = (line.start, line.end);
            self.map(
                pid,
                range,
                line.file_offset,
                &line.path,
                identity,
                line.executable,
                line.shared,
                now_ns,
            );
        }
    }

    fn mapping(&mut self, mapping: &Mapping<'_>, now_ns: u64) {
        let Some(end) = mapping.start.checked_add(mapping.length) else { return };
        let identity = match &mapping.file {
            FileIdentity::BuildId(build_id) => Identity::BuildId(build_id.clone()),
            FileIdentity::Inode { inode: 0, .. } => Identity::None,
            FileIdentity::Inode { major, minor, inode, .. } => {
                Identity::Inode(u64::from(*major) << 32 | u64::from(*minor), *inode)
            }
        };
        let executable = mapping.protection & libc::PROT_EXEC as u32 != 0;
        let range = (mapping.start, end);
        // The first mapping of a kernel image record has pid -1; only processes have mappings here.
        if mapping.pid != NO_TASK && mapping.pid != 0 {
            self.map(
                mapping.pid,
                range,
                mapping.file_offset,
                mapping.path,
                identity,
                executable,
                false,
                now_ns,
            );
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one mapping, from two sources")]
    fn map(
        &mut self,
        pid: u32,
        (start, end): (u64, u64),
        file_offset: u64,
        path: &[u8],
        identity: Identity,
        executable: bool,
        shared: bool,
        now_ns: u64,
    ) {
        let region = region_of(path, shared);
        let process = self.tasks.process(pid, now_ns, &mut self.writer);
        let id = process.row.id;
        if start >= end {
            return;
        }
        let text = String::from_utf8_lossy(path);
        if is_jitdump(&text) {
            self.names.jitdump(process, &text);
        }
        let offset = FileOffset(file_offset);
        let mut mapped = Mapped { end: Avma(end), file_offset: offset, region, code: None };
        if executable {
            let module = match (path, region) {
                (b"[vdso]", _) => self.modules.vdso(&mut self.writer),
                (_, Region::File) => {
                    self.modules.of_file(pid, path, (start, end), identity, &mut self.writer)
                }
                _ => {
                    self.names.look(process);
                    self.modules.generated(id, &mut self.writer)
                }
            };
            process.unwinder.map(Avma(start)..Avma(end), offset, module.unwind.clone());
            let (module, kind, segments) = (module.id, module.kind, module.segments);
            self.writer.push_mapping(MappingRow {
                time_ns: now_ns,
                process: id,
                start,
                end,
                file_offset,
                module: module.0,
            });
            mapped.code = Some(MappedCode { module, kind, segments });
        } else {
            process.unwinder.unmap(Avma(start)..Avma(end));
        }
        process.space.map(Avma(start), mapped);
    }

    /// Reads from outside the stacks of threads that have been waiting for a while without one.
    pub(crate) fn look_at_waiting(&mut self, now_ns: u64, longer_than_ns: u64, most: usize) -> OutsideReads {
        let mut reads = OutsideReads::default();
        let waiting: Vec<(u32, u32)> = self
            .tasks
            .threads()
            .filter(|thread| {
                let since = thread.time.waits_without_stack_since();
                !thread.has_no_events()
                    && since.is_some_and(|since| now_ns.saturating_sub(since) >= longer_than_ns)
            })
            .map(|thread| (thread.pid, thread.row.tid))
            .take(most)
            .collect();
        for (pid, tid) in waiting {
            // Kernel threads have no user stack to read.
            if self.tasks.process(pid, now_ns, &mut self.writer).row.executable.is_none() {
                continue;
            }
            match self.outside_stack(pid, tid, now_ns) {
                Ok(Some(stack)) => {
                    reads.taken += 1;
                    self.tasks
                        .thread(pid, tid, now_ns, &mut self.writer)
                        .time
                        .set_outside_stack(now_ns, stack);
                }
                Ok(None) => reads.moved_on += 1,
                Err(_) => {
                    reads.refused += 1;
                    let refused = WaitStack {
                        stack: StackId(0),
                        ending: StackEnding::NotPermitted,
                        syscall: None,
                        wait: WaitKind::Unknown,
                    };
                    self.tasks
                        .thread(pid, tid, now_ns, &mut self.writer)
                        .time
                        .set_outside_stack(now_ns, refused);
                }
            }
        }
        reads
    }

    /// The stack of a thread that is blocked now. It counts only if the thread is still blocked in the same place when
    /// the stack has been read.
    fn outside_stack(&mut self, pid: u32, tid: u32, now_ns: u64) -> io::Result<Option<WaitStack>> {
        let Some(blocked) = procfs::blocked_in(pid, tid)? else { return Ok(None) };
        self.know(pid, Avma(blocked.ip), now_ns);
        let memory = ProcessMemory::new(pid);
        let process = self.tasks.process(pid, now_ns, &mut self.writer);
        let mut word = [0; 8];
        memory.read(Avma(blocked.sp), &mut word).map_err(|error| error.source)?;
        let found =
            process.unwinder.unwind_blocked(Avma(blocked.ip), Avma(blocked.sp), &memory, &mut self.cache);
        if procfs::blocked_in(pid, tid)? != Some(blocked) {
            return Ok(None);
        }
        let space = &process.space;
        let frames = found
            .frames
            .iter()
            .rev()
            .map(|code| space.frame(code.lookup(), matches!(code, CodeAddress::Return(_))));
        let stack = self.interner.stack(frames, &mut self.writer);
        let wait = blocked.syscall.map_or(WaitKind::PageFault, WaitKind::of_syscall);
        Ok(Some(WaitStack { stack, ending: found.ending, syscall: blocked.syscall, wait }))
    }

    /// Looks again for perf maps, which runtimes may make after they have mapped code.
    pub(crate) fn look_for_names(&mut self) {
        for process in self.tasks.processes() {
            if process.space.has_generated_code() {
                self.names.look(process);
            }
        }
    }
}

/// What became of an attempt to read stacks from outside.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OutsideReads {
    pub(crate) taken: u64,
    pub(crate) moved_on: u64,
    pub(crate) refused: u64,
}
