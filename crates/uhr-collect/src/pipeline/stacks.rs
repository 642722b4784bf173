//! The stack of a sample: kernel frames at the leaf, user frames below them, all as one number.

use uhr_ebpf::{Head, KEPT_FRAMES, WalkEnd};
use uhr_model::{Avma, CodeAddress, FrameMode, StackEnding, StackId};
use uhr_unwind::{ProcessMemory, Registers, StackCopy};

use super::Pipeline;
use crate::intern::FrameKey;
use crate::perf::{Addresses, Sample};

/// Stack that comes with a walk, where its first step may be missing. More of it comes to check the walk.
const LEAF_BYTES: usize = 64;

impl Pipeline {
    /// The stack of a sample of a thread: kernel frames at the leaf, user frames below them.
    pub(super) fn stack(
        &mut self,
        sample: &Sample<'_>,
        (pid, near): (u32, u32),
        now_ns: u64,
    ) -> (StackId, StackEnding) {
        let mut user_frames = std::mem::take(&mut self.user_frames);
        user_frames.clear();
        let ending = self.user_stack(sample, pid, now_ns, &mut user_frames);
        let is_cut = cut_middle(&mut user_frames);
        let stack = self.intern((&user_frames, is_cut), sample.kernel_chain, (pid, near), now_ns);
        self.user_frames = user_frames;
        (stack, if is_cut { StackEnding::TooDeep } else { ending })
    }

    /// The stack that the kernel has walked.
    pub(super) fn walked_stack(
        &mut self,
        sample: &uhr_ebpf::Sample<'_>,
        end: WalkEnd,
    ) -> (StackId, StackEnding) {
        let Head { pid, tid, time_ns, .. } = sample.head;
        let mut user_frames = std::mem::take(&mut self.user_frames);
        user_frames.clear();
        let process = self.tasks.process(pid, time_ns, &mut self.writer);
        // Code was replaced, and the kernel did not know of it yet.
        let is_in_doubt = sample.as_of_ns < process.replaced_ns;
        let (unwinder, memory) = (&mut process.unwinder, ProcessMemory::new(pid));
        for frame in sample.frames() {
            let address = Avma(frame.address);
            // A runtime may put the address of code there that it wants to go on with; no call stands before that.
            let is_return = frame.is_return
                && (!frame.from_bp || unwinder.is_behind_call(address, &memory, &mut self.cache));
            user_frames.push(match is_return {
                true => CodeAddress::Return(address),
                false => CodeAddress::Instruction(address),
            });
        }
        let copied = sample.registers.filter(|_| !sample.stack.is_empty()).map(|own| {
            let registers = Registers::new(own.ip, own.sp).with_bp(own.bp);
            (registers, StackCopy { start: Avma(own.sp), bytes: sample.stack })
        });
        // A frame pointer leads past the caller of a function that has no frame.
        if let Some((registers, stack)) = copied
            && sample.frames().nth(1).is_some_and(|second| second.from_bp)
            && let Some(caller) =
                unwinder.caller_without_frame(registers, stack, Some(&memory), &mut self.cache)
        {
            user_frames.insert(1, CodeAddress::Return(caller));
        }
        let ending = match end {
            _ if is_in_doubt => StackEnding::Heuristic,
            WalkEnd::First if sample.left_out > 0 => StackEnding::TooDeep,
            WalkEnd::First => StackEnding::Complete,
            WalkEnd::Unreadable => StackEnding::MemoryUnreadable,
            WalkEnd::TooDeep => StackEnding::TooDeep,
        };
        if let Some((registers, stack)) = copied.filter(|(_, stack)| stack.bytes.len() > LEAF_BYTES) {
            let mut by_copy = Vec::new();
            let by_copy_ending =
                unwinder.unwind(registers, stack, Some(&memory), &mut self.cache, &mut by_copy);
            cut_middle(&mut by_copy);
            self.walk_check.compare((&user_frames, ending), (&by_copy, by_copy_ending));
        }
        let kernel = Addresses::new(sample.kernel);
        let stack = self.intern((&user_frames, sample.left_out > 0), kernel, (pid, tid), time_ns);
        self.user_frames = user_frames;
        (stack, ending)
    }

    /// One number for both parts, of which the user's may lack its middle. What their walk has shown of the process's code goes to
    /// the kernel.
    fn intern(
        &mut self,
        (user_frames, is_cut): (&[CodeAddress<Avma>], bool),
        kernel: Addresses<'_>,
        (pid, near): (u32, u32),
        now_ns: u64,
    ) -> StackId {
        let kernel_frames = self.kernel_frames(kernel, now_ns);
        let process = self.tasks.process(pid, now_ns, &mut self.writer);
        let has_learned = process.unwinder.take_changed_evidence();
        let space = &process.space;
        let frame =
            |code: &CodeAddress<Avma>| space.frame(code.lookup(), matches!(code, CodeAddress::Return(_)));
        let (leaf, root) = user_frames.split_at(if is_cut { user_frames.len() - KEPT_FRAMES / 2 } else { 0 });
        let left_out = is_cut.then_some(FrameKey::LEFT_OUT);
        let (root, leaf) = (root.iter().rev().map(frame), leaf.iter().rev().map(frame));
        let frames: Vec<FrameKey> = root.chain(left_out).chain(leaf).chain(kernel_frames).collect();
        if has_learned {
            self.code_changed(pid);
        }
        self.interner.stack(near, frames.into_iter(), &mut self.writer)
    }

    /// A stack that is the kernel's alone: of an interrupt.
    pub(super) fn kernel_stack(&mut self, chain: Addresses<'_>, now_ns: u64) -> StackId {
        let frames = self.kernel_frames(chain, now_ns);
        // Of interrupts of all kinds.
        self.interner.stack(0, frames.into_iter(), &mut self.writer)
    }

    /// The kernel's frames, the outermost first.
    fn kernel_frames(&mut self, chain: Addresses<'_>, now_ns: u64) -> Vec<FrameKey> {
        if chain.is_empty() {
            return Vec::new();
        }
        let kernel = self.modules.kernel(&mut self.writer);
        let (programs, modules, writer) = (&mut self.kernel_programs, &mut self.modules, &mut self.writer);
        programs.become_as_of(now_ns);
        let frame = |(at, address): (usize, u64)| {
            let address = Avma(address);
            let code = if at == 0 { CodeAddress::Instruction(address) } else { CodeAddress::Return(address) };
            let address = code.lookup().0;
            let module = programs.module(address, modules, writer).unwrap_or(kernel);
            FrameKey { mode: FrameMode::Kernel, module: Some(module), address, is_return: at > 0 }
        };
        let mut frames: Vec<FrameKey> = chain.iter().enumerate().map(frame).collect();
        frames.reverse();
        frames
    }

    fn user_stack(
        &mut self,
        sample: &Sample<'_>,
        pid: u32,
        now_ns: u64,
        out: &mut Vec<CodeAddress<Avma>>,
    ) -> StackEnding {
        // In the middle of an exec or an exit the registers are still those of a program whose memory is gone.
        let is_gone = sample.in_kernel && sample.stack.is_empty() && sample.user_registers.is_some();
        if is_gone {
            return StackEnding::NoUserStack;
        }
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
            let caller = unwinder.caller_without_frame(registers, stack, Some(&memory), &mut self.cache);
            if let Some(Avma(caller)) = caller {
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
}

/// Leaves out the frames in the middle of a very deep stack, as the kernel's walk does. Whether there are any.
fn cut_middle(frames: &mut Vec<CodeAddress<Avma>>) -> bool {
    let is_deep = frames.len() > KEPT_FRAMES;
    if is_deep {
        frames.drain(KEPT_FRAMES / 2..frames.len() - KEPT_FRAMES / 2);
    }
    is_deep
}
