#![forbid(unsafe_code)]
//! The walk from one frame to its caller, and to the caller's caller.

use std::sync::Arc;

use uhr_model::{Avma, CodeAddress, StackEnding};

use super::cache::UnwindCache;
use super::derived::CodeCache;
use super::evidence::Evidence;
use super::mappings::Mappings;
use super::memory::TargetMemory;
use super::module::UnwindModule;
use super::registers::Registers;
use super::row::{Row, Step};
use super::stack::{Miss, StackWords};

/// The longest stack; a longer one ends with [`StackEnding::TooDeep`]. Recursion over data goes thousands of calls deep.
pub const MAX_FRAMES: usize = 8192;

/// A frame to be left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) regs: Registers,
    /// Whether the address is an instruction that was about to run, not one behind a call.
    pub(super) is_interrupted: bool,
    /// Whether it will be entered by a return, though no call stands before it: see `continuation` in `derived.rs`.
    is_continuation: bool,
}

impl Frame {
    pub(super) fn interrupted(regs: Registers) -> Self {
        Self { regs, is_interrupted: true, is_continuation: false }
    }

    pub(super) fn returning(regs: Registers) -> Self {
        Self { regs, is_interrupted: false, is_continuation: false }
    }

    pub(super) fn address(&self) -> CodeAddress<Avma> {
        let address = Avma(self.regs.ip());
        if self.is_interrupted || self.is_continuation {
            CodeAddress::Instruction(address)
        } else {
            CodeAddress::Return(address)
        }
    }
}

/// The code of one frame.
pub(super) struct Place<'a> {
    /// `None` for generated code.
    pub(super) module: Option<&'a UnwindModule>,
    /// The stated address in the module.
    pub(super) stated: u64,
    /// What the call frame information says.
    pub(super) row: Option<Arc<Row>>,
}

/// A walk along one stack.
pub(super) struct Walk<'a> {
    pub(super) mappings: &'a Mappings,
    pub(super) code: &'a mut CodeCache,
    pub(super) evidence: &'a mut Evidence,
    pub(super) memory: Option<&'a dyn TargetMemory>,
    pub(super) stack: StackWords<'a>,
    pub(super) cache: &'a mut UnwindCache,
    pub(super) out: &'a mut Vec<CodeAddress<Avma>>,
    /// How many frames of other stacks were in `out` before.
    pub(super) begin: usize,
}

impl<'a> Walk<'a> {
    /// Walks from `frame` outwards, and leaves in `frame` the one that it could not leave. A [`Miss`] is a caller that
    /// these means did not find; every frame up to there has been pushed.
    pub(super) fn run(&mut self, frame: &mut Frame) -> Result<StackEnding, Miss> {
        loop {
            let Some(place) = self.place(frame) else {
                self.out.push(frame.address());
                return Ok(StackEnding::UnknownMapping);
            };
            let is_signal_frame = self.is_signal_frame(frame, &place);
            // The kernel wrote the address of the code that returns from a signal: no call stands before it.
            frame.is_interrupted |= is_signal_frame;
            self.out.push(frame.address());
            if place.module.is_some_and(|module| module.is_entry_function(place.stated)) {
                return Ok(StackEnding::Complete);
            }
            if place.row.is_none() && self.has_called_main() {
                return Ok(StackEnding::Complete);
            }
            let caller = match self.leave(frame, &place, is_signal_frame)? {
                Step::Caller(caller) => caller,
                Step::First => return Ok(StackEnding::Complete),
            };
            // Only a signal handler may run on another stack than what it interrupted.
            if caller.sp() <= frame.regs.sp() && !is_signal_frame {
                return Ok(StackEnding::NoProgress);
            }
            if self.out.len() - self.begin >= MAX_FRAMES {
                return Ok(StackEnding::TooDeep);
            }
            let is_derived = place.row.is_none() && !is_signal_frame;
            let is_continuation = is_derived
                && self.mappings.find(caller.ip()).is_some()
                && !self.is_return_address(caller.ip());
            *frame = Frame { regs: caller, is_interrupted: is_signal_frame, is_continuation };
        }
    }

    /// Whether the outermost frame so far is that of main's caller. Where no row covers that (musl's is built without), and it
    /// ends the program without returning, nothing says how large it is; what lies beyond is the same in every stack.
    fn has_called_main(&mut self) -> bool {
        match self.out[self.begin..] {
            [.., callee, _] => self.is_in_main(callee),
            _ => false,
        }
    }

    /// One step from a frame, if it can be made. Code that returns from a signal was not called.
    pub(super) fn step_from(&mut self, frame: &Frame) -> Option<Step> {
        let place = self.place(frame)?;
        let is_entry = place.module.is_some_and(|module| module.is_entry_function(place.stated));
        if is_entry || self.is_signal_frame(frame, &place) {
            return None;
        }
        self.leave(frame, &place, false).ok()
    }

    /// The code of a frame; `None` outside all known mappings. Go's rows serve in the innermost function, which may have no
    /// frame pointer at this instruction, and where rbp is not known. Otherwise the frame pointers lead on, also where the
    /// runtime has gone over to another stack, which no row follows.
    fn place(&mut self, frame: &Frame) -> Option<Place<'a>> {
        let mut place = self.place_of(frame.address().lookup())?;
        let goes_by_bp = !frame.is_interrupted && frame.regs.bp().is_some();
        place.row = place.row.filter(|row| !(row.is_of_go && goes_by_bp));
        Some(place)
    }

    /// The code at an address of the process; `None` outside all known mappings.
    pub(super) fn place_of(&mut self, address: Avma) -> Option<Place<'a>> {
        let mapping = self.mappings.find(address.0)?;
        let module = mapping.module();
        let stated = mapping.stated(address.0);
        Some(Place { module, stated, row: module.and_then(|module| self.cache.row(module, stated)) })
    }

    /// Whether a frame is the one that the kernel pushed to run a signal handler. Call frame information says so; where
    /// there is none (musl, Go) the code does. Such code is entered by a return, not behind a call, so the byte before
    /// it can belong to another function, which then ends there.
    fn is_signal_frame(&mut self, frame: &Frame, place: &Place<'_>) -> bool {
        match &place.row {
            Some(row) if row.is_signal_frame => true,
            Some(row) if frame.is_interrupted || !row.is_last_byte => false,
            _ => self.code_around(frame.regs.ip()).is_some_and(|code| code.is_signal_return()),
        }
    }

    fn leave(&mut self, frame: &Frame, place: &Place<'_>, is_signal_frame: bool) -> Result<Step, Miss> {
        match &place.row {
            Some(row) if row.is_of_go && !is_signal_frame => {
                let found = self.by_gos_row(&frame.regs, row).map(Step::Caller);
                found.map_or_else(|| self.derive(frame, place), Ok)
            }
            Some(row) if row.is_signal_frame == is_signal_frame => row.step(&frame.regs, &mut self.stack),
            _ if is_signal_frame => self.leave_signal_frame(&frame.regs),
            _ => {
                let left = self.derive(frame, place);
                // An interrupted function may not have its frame yet, or no more.
                if !frame.is_interrupted && !frame.is_continuation {
                    self.bear_witness(frame, place, &left);
                }
                left
            }
        }
    }

    /// Whether a frame pointer leads to this caller.
    fn leads_to(&mut self, bp: Option<u64>, caller: &Registers) -> bool {
        let Some(bp) = bp else { return false };
        self.stack.word(bp.wrapping_add(8)) == Ok(caller.ip()) && self.stack.word(bp).ok() == caller.bp()
    }

    /// Notes whether the frame pointer led out of a frame the same way.
    fn bear_witness(&mut self, frame: &Frame, place: &Place<'_>, left: &Result<Step, Miss>) {
        let agrees = match left {
            Ok(Step::Caller(caller)) => self.leads_to(frame.regs.bp(), caller),
            // These say nothing about the code.
            Ok(Step::First) | Err(Miss::AboveCopy | Miss::Unreadable) => return,
            Err(Miss::UnknownRegister | Miss::BadRule) => false,
        };
        let gap = match place.module {
            // Of Go it is known, and a frame with a row is no witness of code without.
            Some(module) if module.is_go() => None,
            Some(module) => module.gap(place.stated),
            None => Some(0..u64::MAX),
        };
        if let Some(gap) = gap {
            self.evidence.see(place.module.map(|module| module.id()), gap, agrees);
        }
    }
}
