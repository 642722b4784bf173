#![forbid(unsafe_code)]
//! Frame-pointer chains as the kernel walks them: whether they are whole.
//!
//! The kernel stops where rbp leads nowhere, and cannot say whether that was the end. It rarely is the outermost
//! function: libc's own start-up code is mostly built without frame pointers. A chain counts as complete if it reaches
//! `main`'s caller or the code that runs a thread's function, because what lies beyond is the same in every stack.

use uhr_model::{Avma, CodeAddress, StackEnding};

use super::cache::UnwindCache;
use super::code::Call;
use super::memory::TargetMemory;
use super::process::ProcessUnwinder;
use super::registers::Registers;
use super::row::Step;
use super::stack::{StackCopy, StackWords};
use super::walk::{Frame, Walk};

impl ProcessUnwinder {
    /// Takes a chain that the kernel delivered (user addresses only, without its context marks), pushes its frames to
    /// `out` and says whether it is whole. `max_stack` is the limit that the kernel walked under
    /// (`kernel.perf_event_max_stack`, or what the event asked for).
    pub fn frame_pointer_chain(
        &mut self,
        chain: &[u64],
        max_stack: usize,
        code: Option<&dyn TargetMemory>,
        cache: &mut UnwindCache,
        out: &mut Vec<CodeAddress<Avma>>,
    ) -> StackEnding {
        let Some((&ip, callers)) = chain.split_first() else { return StackEnding::NoUserStack };
        let begin = out.len();
        out.push(CodeAddress::Instruction(Avma(ip)));
        out.extend(callers.iter().map(|&address| CodeAddress::Return(Avma(address))));
        let nothing = StackWords::of_copy(StackCopy { start: Avma(0), bytes: &[] });
        let mut walk = self.start_walk(nothing, code, cache, out);
        let whole = walk.outermost(begin);
        match whole {
            // What follows the outermost function is what rbp held for another purpose.
            Some(outermost) => out.truncate(outermost + 1),
            None if chain.len() >= max_stack => return StackEnding::TooDeep,
            None => return StackEnding::BrokenFramePointers,
        }
        StackEnding::Complete
    }
}

impl ProcessUnwinder {
    /// The caller of the innermost function, if a chain lacks it: where that function has no frame at this instruction. That is
    /// in its first instructions, and all through functions that call nothing, from which compilers leave the frame out
    /// (Go; gcc 12 whatever it is told). `stack` may be short: such a function has little on it.
    ///
    /// What tells is where the return address lies, not what it is: a function that calls itself from one place has
    /// the same one twice.
    pub fn caller_without_frame(
        &mut self,
        regs: Registers,
        stack: StackCopy<'_>,
        code: Option<&dyn TargetMemory>,
        cache: &mut UnwindCache,
    ) -> Option<Avma> {
        let mut no_frames = Vec::new();
        let frame = Frame::interrupted(regs);
        let mut walk = self.start_walk(StackWords::of_copy(stack), code, cache, &mut no_frames);
        match walk.step_from(&frame)? {
            Step::Caller(caller) => {
                let is_in_chain = regs.bp().and_then(|bp| bp.checked_add(16)) == Some(caller.sp());
                (!is_in_chain).then(|| Avma(caller.ip()))
            }
            Step::First => None,
        }
    }
}

impl Walk<'_> {
    /// The frame of a chain beyond which nothing is missing.
    fn outermost(&mut self, begin: usize) -> Option<usize> {
        let last = self.out.len().checked_sub(1)?;
        (begin..=last).rev().find(|&at| {
            self.is_first_function(self.out[at]) || (at > begin && self.is_in_main(self.out[at - 1]))
        })
    }

    fn is_first_function(&mut self, address: CodeAddress<Avma>) -> bool {
        let Some(place) = self.place_of(address.lookup()) else { return false };
        if let Some(row) = &place.row
            && row.ends_the_stack()
        {
            return true;
        }
        if place.module.is_some_and(|module| module.is_entry_function(place.stated)) {
            return true;
        }
        let CodeAddress::Return(Avma(address)) = address else { return false };
        let is_go = place.module.is_some_and(|module| module.is_go());
        self.code_around(address).is_some_and(|code| {
            code.call_before(address) == Some(Call::ThreadStart)
                || (is_go && (code.is_goroutine_exit() || code.is_go_thread_start()))
        })
    }

    pub(super) fn is_in_main(&mut self, address: CodeAddress<Avma>) -> bool {
        self.place_of(address.lookup())
            .is_some_and(|place| place.module.is_some_and(|module| module.is_main(place.stated)))
    }
}
