#![forbid(unsafe_code)]
//! Frames of code that no call frame information covers: generated code, assembler, files that were stripped of it.
//!
//! Tried are what the code does to the stack pointer on its way out ([`super::exits`]); a prologue; the return address on top of
//! the stack, of a function that has pushed nothing; the frame pointer, which comes earlier where the code is known to keep it.
//! What is found counts only if it can be a return address: it lies in executable memory, behind a call.

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use uhr_model::Avma;

use super::code::{Call, CodeAround};
use super::exits::{Exit, MAX_WORK, Search, exits};
use super::memory::TargetMemory;
use super::registers::{RBP, RIP, RSP, Registers};
use super::row::{Row, Step};
use super::stack::Miss;
use super::walk::{Frame, Place, Walk};

/// Addresses whose code is kept, a quarter of a megabyte of a process with much generated code.
const MAX_ADDRESSES: usize = 4096;
/// Addresses whose exits are kept, some 100 bytes each.
const MAX_SEARCHED: usize = 8192;
/// What searches for exits may take, in their own measure, where much was saved up, and what each walk adds: 5 ms and 0.3 ms.
/// A search takes some us, and up to 0.6 ms in large functions and in forged code.
const MAX_SAVED: usize = 8 * MAX_WORK;
const WORK_A_WALK: usize = MAX_WORK / 2;
/// After so many walks what was in vain is tried again, for code may have been written anew.
const WALKS_A_TRY: u32 = 32;
/// How long a function without a frame is at most.
const MAX_FRAMELESS: u64 = 4096;
/// Words of the frame of a thread's first function.
const MAX_START_FRAME: u64 = 16;
/// How far above the stack pointer a frame pointer can be believed without seeing what it points to.
const MAX_FRAME: u64 = 1 << 20;

/// What was read of the code of one process, by address, until the mapping there changes.
#[derive(Debug)]
pub(super) struct CodeCache {
    around: FxHashMap<u64, Option<CodeAround>>,
    exits: FxHashMap<u64, Arc<[Exit]>>,
    /// What searches for them may still take.
    work_left: usize,
    walks: u32,
}

impl Default for CodeCache {
    fn default() -> Self {
        let (around, exits) = (FxHashMap::default(), FxHashMap::default());
        Self { around, exits, work_left: MAX_SAVED, walks: 0 }
    }
}

impl CodeCache {
    /// Other code is there now.
    pub(super) fn forget_in(&mut self, range: Range<Avma>) {
        self.exits.retain(|&address, _| !range.contains(&Avma(address)));
        self.see_growth(range);
    }

    /// Memory with generated code has grown, or was protected otherwise: a JVM does that all the time. Most of the code is still
    /// the same, and of other code the exits lead to no return address and are looked for anew.
    pub(super) fn see_growth(&mut self, range: Range<Avma>) {
        // What is read around an address can begin before it.
        let range = Avma(range.start.0.saturating_sub(CodeAround::AFTER as u64))
            ..Avma(range.end.0.saturating_add(CodeAround::BEFORE as u64));
        self.around.retain(|&address, _| !range.contains(&Avma(address)));
    }

    /// Another stack is walked.
    pub(super) fn begin_walk(&mut self) {
        self.work_left = MAX_SAVED.min(self.work_left + WORK_A_WALK);
        self.walks = self.walks.wrapping_add(1);
    }

    /// Reads anew, next time: the code may have been written anew since. A search takes longer, and is made anew now and then.
    fn forget(&mut self, address: u64) {
        self.around.remove(&address);
        if self.walks.is_multiple_of(WALKS_A_TRY) {
            self.exits.remove(&address);
        }
    }

    fn around(&mut self, memory: &dyn TargetMemory, address: u64) -> Option<CodeAround> {
        if self.around.len() >= MAX_ADDRESSES {
            self.around.clear();
        }
        *self.around.entry(address).or_insert_with(|| read_around(memory, address))
    }

    fn exits(&mut self, memory: &dyn TargetMemory, address: u64) -> Arc<[Exit]> {
        if let Some(known) = self.exits.get(&address) {
            return Arc::clone(known);
        }
        // One that has to be broken off would be begun in each walk, and never end.
        if self.work_left < MAX_WORK {
            return Arc::new([]);
        }
        let read = |at: u64, bytes: &mut [u8]| memory.read(Avma(at), bytes).unwrap_or(0);
        let Search { exits: found, work } = exits(address, read);
        self.work_left = self.work_left.saturating_sub(work);
        let found: Arc<[Exit]> = found.into();
        if self.exits.len() >= MAX_SEARCHED {
            self.exits.clear();
        }
        self.exits.insert(address, Arc::clone(&found));
        found
    }
}

fn read_around(memory: &dyn TargetMemory, address: u64) -> Option<CodeAround> {
    let mut bytes = [0; CodeAround::BEFORE + CodeAround::AFTER];
    let start = address.checked_sub(CodeAround::BEFORE as u64)?;
    if let Ok(got) = memory.read(Avma(start), &mut bytes)
        && let Some(length) = got.checked_sub(CodeAround::BEFORE)
    {
        return CodeAround::new(&bytes, length);
    }
    // Code at the very start of a mapping has nothing readable before it.
    let length = memory.read(Avma(address), &mut bytes[CodeAround::BEFORE..]).ok()?;
    bytes[..CodeAround::BEFORE].fill(0);
    CodeAround::new(&bytes, length)
}

impl Walk<'_> {
    pub(super) fn code_around(&mut self, address: u64) -> Option<CodeAround> {
        self.code.around(self.memory?, address)
    }

    /// Whether a word can be a return address: executable, and behind a call or where a signal handler returns to.
    pub(super) fn is_return_address(&mut self, address: u64) -> bool {
        self.mappings.find(address.wrapping_sub(1)).is_some()
            && (self.memory.is_none()
                || self
                    .code_around(address)
                    .is_some_and(|code| code.call_before(address).is_some() || code.is_signal_return()))
    }

    /// The caller of a frame without call frame information.
    pub(super) fn derive(&mut self, frame: &Frame, place: &Place<'_>) -> Result<Step, Miss> {
        let regs = &frame.regs;
        let mut is_above_copy = false;
        let code = self.code_around(regs.ip());
        if let Some(code) = code {
            if !frame.is_interrupted && (code.ends_the_thread() || code.is_goroutine_exit()) {
                if let Some(module) = place.module.filter(|module| module.is_go()) {
                    self.evidence.see_root(module.id(), Avma(regs.ip()));
                }
                return Ok(Step::First);
            }
            let is_go = place.module.is_some_and(|module| module.is_go());
            if !frame.is_interrupted && is_go && code.is_go_thread_start() {
                return Ok(Step::First);
            }
            // Where frame pointers are kept, they are surer than a way through branches, but for a function that is leaving.
            let file = place.module.map(|module| module.id());
            let has_frames = is_go || self.evidence.keeps_frame_pointer_at(file, place.stated);
            if frame.is_interrupted || !has_frames {
                match self.by_exit(regs, has_frames) {
                    Ok(caller) => return Ok(Step::Caller(caller)),
                    Err(miss) => is_above_copy = miss == Miss::AboveCopy,
                }
            }
            if frame.is_interrupted
                && let Some(pushed) = code.in_prologue()
                && let Some(caller) = self.by_stack_pointer(regs, pushed)
            {
                return Ok(Step::Caller(caller));
            }
            if frame.is_interrupted
                && let Some(caller) = self.by_direct_call(regs)
            {
                return Ok(Step::Caller(caller));
            }
        }
        // Assembler in a file often has no frame at all; generated code nearly always has one.
        let stub = place.module.is_some_and(|module| module.is_stub(place.stated));
        let slots: &[u64] = if stub { &[0, 8, 16] } else { &[0] };
        let by_stack_pointer = |walk: &mut Self| {
            let mut callers = slots.iter().filter(|_| frame.is_interrupted);
            callers.find_map(|&pushed| walk.by_stack_pointer(regs, pushed)).map(Step::Caller)
        };
        let found = if place.module.is_some_and(|module| !module.is_go()) {
            by_stack_pointer(self).map_or_else(|| self.by_frame_pointer(regs, place), Ok)
        } else {
            let found = self.by_frame_pointer(regs, place);
            let found = found.or_else(|miss| by_stack_pointer(self).ok_or(miss));
            found.or_else(|miss| self.by_exit(regs, false).map(Step::Caller).map_err(|_| miss))
        };
        let found = found.or_else(|miss| self.by_thread_end(regs).map(Step::Caller).ok_or(miss));
        if found.is_err() {
            self.code.forget(regs.ip());
        }
        found.map_err(|miss| if is_above_copy { Miss::AboveCopy } else { miss })
    }

    /// By a row that says nothing of rbp: this is the function's own where it has set it up, and its caller's otherwise.
    pub(super) fn by_gos_row(&mut self, regs: &Registers, row: &Row) -> Option<Registers> {
        let Ok(Step::Caller(stated)) = row.step(regs, &mut self.stack) else { return None };
        let mut caller = self.caller(regs, stated.ip(), stated.sp())?;
        let own = stated.sp().checked_sub(16)?;
        if regs.bp() == Some(own) {
            caller.set(RBP, self.stack.word(own).ok());
        }
        Some(caller)
    }

    /// By how the function is left from here on. A call that does not return leads to exits of another function: what they
    /// lead to must be a return address.
    fn by_exit(&mut self, regs: &Registers, only_straight: bool) -> Result<Registers, Miss> {
        let Some(memory) = self.memory else { return Err(Miss::BadRule) };
        let exits = self.code.exits(memory, regs.ip());
        let mut missed = Miss::BadRule;
        for exit in exits.iter() {
            // Behind one that leads out of the copy, what lies in the copy is likelier an old return address.
            if !exit.is_straight && (only_straight || missed == Miss::AboveCopy) {
                continue;
            }
            match self.caller_behind(exit, regs) {
                Ok(caller) => return Ok(caller),
                Err(Miss::AboveCopy) => missed = Miss::AboveCopy,
                Err(_) => {}
            }
        }
        Err(missed)
    }

    fn caller_behind(&mut self, exit: &Exit, regs: &Registers) -> Result<Registers, Miss> {
        let base = if exit.from_bp { regs.bp().ok_or(Miss::UnknownRegister)? } else { regs.sp() };
        let at = base.checked_add_signed(exit.return_address).filter(|&at| at >= regs.sp());
        let at = at.ok_or(Miss::BadRule)?;
        let return_address = self.stack.word(at)?;
        let mut caller = self.caller(regs, return_address, at.wrapping_add(8)).ok_or(Miss::BadRule)?;
        if exit.loses_bp {
            caller.set(RBP, None);
        }
        for (register, offset) in exit.popped() {
            caller.set(register, self.stack.word(base.wrapping_add_signed(offset)).ok());
        }
        Ok(caller)
    }

    /// The function that musl's `clone` runs never returns, so its code does not say how large its frame is. But right above
    /// lies what it would return to, and no other word of the thread leads to code that ends it.
    fn by_thread_end(&mut self, regs: &Registers) -> Option<Registers> {
        (0..MAX_START_FRAME).find_map(|word| {
            let at = regs.sp().checked_add(word * 8)?;
            let return_address = self.stack.word(at).ok()?;
            self.mappings.find(return_address)?;
            let ends = self.code_around(return_address).is_some_and(|code| code.ends_the_thread());
            if ends { self.by_stack_pointer(regs, word * 8) } else { None }
        })
    }

    fn by_stack_pointer(&mut self, regs: &Registers, pushed: u64) -> Option<Registers> {
        let at = regs.sp().checked_add(pushed)?;
        let return_address = self.stack.word(at).ok()?;
        self.caller(regs, return_address, at.checked_add(8)?)
    }

    /// The word on top of the stack is what a call of this very function left there: of a function without a frame,
    /// such as small ones of Go, whose frame pointer is its caller's.
    fn by_direct_call(&mut self, regs: &Registers) -> Option<Registers> {
        let return_address = self.stack.word(regs.sp()).ok()?;
        self.mappings.find(return_address.wrapping_sub(1))?;
        let Call::To(function) = self.code_around(return_address)?.call_before(return_address)? else {
            return None;
        };
        let within = regs.ip().checked_sub(function)?;
        if within < MAX_FRAMELESS { self.by_stack_pointer(regs, 0) } else { None }
    }

    fn by_frame_pointer(&mut self, regs: &Registers, place: &Place<'_>) -> Result<Step, Miss> {
        let bp = regs.bp().ok_or(Miss::UnknownRegister)?;
        if bp == 0 && place.module.is_some_and(|module| module.is_go()) {
            return Ok(Step::First);
        }
        let above = bp.checked_sub(regs.sp()).ok_or(Miss::BadRule)?;
        let at = bp.checked_add(8).ok_or(Miss::BadRule)?;
        let return_address = match self.stack.word(at) {
            Ok(word) => word,
            Err(miss) if above <= MAX_FRAME && bp % 8 == 0 => return Err(miss),
            Err(_) => return Err(Miss::BadRule),
        };
        let saved = self.stack.word(bp)?;
        let sp = at.checked_add(8).ok_or(Miss::BadRule)?;
        let caller = self.caller(regs, return_address, sp);
        let mut caller =
            caller.or_else(|| self.continuation(regs, return_address, sp, saved)).ok_or(Miss::BadRule)?;
        caller.set(RBP, Some(saved));
        Ok(Step::Caller(caller))
    }

    fn caller(&mut self, regs: &Registers, return_address: u64, sp: u64) -> Option<Registers> {
        if !self.is_return_address(return_address) && !self.is_goroutine_exit(return_address) {
            return None;
        }
        let mut caller = regs.kept_by_callee();
        caller.set(RIP, Some(return_address));
        caller.set(RSP, Some(sp));
        Some(caller)
    }

    /// A return address that no call left behind: V8 puts the first instruction of a builtin there when it replaces the
    /// frame of optimised code, so that the builtin goes on where that code would have. It counts where the frame
    /// pointer beside it goes on upwards too. (One in twelve stacks of terser on Node 20.)
    fn continuation(
        &mut self,
        regs: &Registers,
        return_address: u64,
        sp: u64,
        saved: u64,
    ) -> Option<Registers> {
        self.mappings.find(return_address)?;
        let distance = saved.checked_sub(sp)?;
        if distance > MAX_FRAME || !saved.is_multiple_of(8) {
            return None;
        }
        let mut caller = regs.kept_by_callee();
        caller.set(RIP, Some(return_address));
        caller.set(RSP, Some(sp));
        Some(caller)
    }

    fn is_goroutine_exit(&mut self, address: u64) -> bool {
        self.mappings
            .find(address)
            .is_some_and(|mapping| mapping.module().is_some_and(|module| module.is_go()))
            && self.code_around(address).is_some_and(|code| code.is_goroutine_exit())
    }

    /// The frame that the kernel pushed for a signal: when the handler has returned, the stack pointer is at a
    /// `struct ucontext`, whose `sigcontext` begins at 40 (arch/x86/include/uapi/asm/{ucontext,sigcontext}.h).
    pub(super) fn leave_signal_frame(&mut self, regs: &Registers) -> Result<Step, Miss> {
        /// DWARF numbers in the order of `struct sigcontext`: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip.
        const ORDER: [u8; 17] = [8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, RSP, RIP];
        let mut interrupted = *regs;
        for (at, register) in ORDER.into_iter().enumerate() {
            let address = regs.sp().wrapping_add(40 + at as u64 * 8);
            interrupted.set(register, Some(self.stack.word(address)?));
        }
        Ok(Step::Caller(interrupted))
    }
}
