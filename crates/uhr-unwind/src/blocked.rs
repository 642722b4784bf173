#![forbid(unsafe_code)]
//! The stack of a thread that is blocked in a system call, of which only the instruction and stack pointers are known
//! (`/proc/PID/task/TID/syscall`).
//!
//! Most code leaves its frames by the stack pointer alone, so the walk gets far, and often to the end, without rbp.
//! Where a frame is counted from a register that no inner frame has saved, the stack is searched upwards for a saved
//! frame pointer with a return address behind it, and what follows is marked as not proven.

use uhr_model::{Avma, CodeAddress, StackEnding};

use super::cache::UnwindCache;
use super::code::Call;
use super::memory::TargetMemory;
use super::process::ProcessUnwinder;
use super::registers::Registers;
use super::stack::{Miss, StackWords};
use super::walk::{Frame, Walk};

/// How far up a search goes, in bytes: more than nearly every frame (a large one holds a buffer of 64 KiB).
const SEARCH: u64 = 128 << 10;
/// How far above its place a saved frame pointer may point.
const MAX_SAVED_DISTANCE: u64 = 1 << 20;

/// The stack of a blocked thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockedStack {
    /// The frames, the innermost first.
    pub frames: Vec<CodeAddress<Avma>>,
    /// How many of them, from the innermost on, are proven.
    pub proven: usize,
    /// Why it ended: [`StackEnding::Heuristic`] where frames beyond the proven ones were found by a search.
    pub ending: StackEnding,
}

/// How well a return address fits the function that it would be the caller of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
enum Fit {
    /// It calls another function, which may have jumped on to this one.
    Loose,
    /// It calls through a pointer or a stub, or this very function.
    Close,
}

impl ProcessUnwinder {
    /// Unwinds a thread that is blocked. Its stack is read in `memory` while it is; whoever calls makes sure
    /// afterwards that the thread has not run meanwhile, else the frames are of no moment at all.
    pub fn unwind_blocked(
        &mut self,
        ip: Avma,
        sp: Avma,
        memory: &dyn TargetMemory,
        cache: &mut UnwindCache,
    ) -> BlockedStack {
        let mut frames = Vec::new();
        let mut proven = None;
        let mut frame = Frame::interrupted(Registers::new(ip.0, sp.0));
        let stack = StackWords::of_still_thread(sp.0, memory);
        let mut walk = self.start_walk(stack, Some(memory), cache, &mut frames);
        let ending = loop {
            match walk.run(&mut frame) {
                Err(Miss::UnknownRegister) => {
                    let Some(caller) = walk.search_caller(&frame) else { break StackEnding::NoUnwindInfo };
                    proven.get_or_insert(walk.out.len());
                    frame = Frame::returning(caller);
                }
                ending => break ending.unwrap_or_else(Miss::ending),
            }
        };
        let ending = if proven.is_some() { StackEnding::Heuristic } else { ending };
        BlockedStack { proven: proven.unwrap_or(frames.len()), frames, ending }
    }
}

impl Walk<'_> {
    /// The nearest place above a frame that looks like what `call` and `push %rbp` leave behind.
    fn search_caller(&mut self, frame: &Frame) -> Option<Registers> {
        let place = self.place_of(frame.address().lookup())?;
        let function = place.row.as_ref().map(|row| row.function_start);
        let in_process = function.map(|start| frame.address().lookup().0.wrapping_sub(place.stated - start));
        let is_main = place.module.is_some_and(|module| module.is_main(place.stated));
        let sp = frame.regs.sp();
        let mut loose = None;
        for slot in (sp..sp.saturating_add(SEARCH)).step_by(8) {
            let (Ok(saved), Ok(return_address)) = (self.stack.word(slot), self.stack.word(slot + 8)) else {
                break;
            };
            // What libc keeps in rbp while it calls main is anything.
            let distance = saved.wrapping_sub(slot + 8);
            if !is_main && (distance == 0 || distance > MAX_SAVED_DISTANCE) {
                continue;
            }
            let found = Registers::new(return_address, slot + 16).with_bp(saved);
            match self.fit(return_address, in_process) {
                Some(Fit::Close) => return Some(found),
                Some(Fit::Loose) => loose = loose.or(Some(found)),
                None => {}
            }
        }
        loose
    }

    /// Whether `address` is behind a call, and whether that can be a call of the function at `callee`.
    fn fit(&mut self, address: u64, callee: Option<u64>) -> Option<Fit> {
        self.mappings.find(address.wrapping_sub(1))?;
        match self.code_around(address)?.call_before(address)? {
            Call::To(target) if callee.is_none_or(|callee| callee == target) || self.is_stub(target) => {
                Some(Fit::Close)
            }
            Call::To(_) => Some(Fit::Loose),
            Call::Indirect | Call::ThreadStart => Some(Fit::Close),
        }
    }

    fn is_stub(&self, address: u64) -> bool {
        self.mappings.find(address).is_some_and(|mapping| {
            mapping.module().is_some_and(|module| module.is_stub(mapping.stated(address)))
        })
    }
}
