#![forbid(unsafe_code)]
//! The registers of one frame, each known or unknown, under their DWARF numbers (x86-64 psABI, figure 3.36).

use std::fmt;

pub(super) const RBX: u8 = 3;
pub(super) const RBP: u8 = 6;
pub(super) const RSP: u8 = 7;
const R12: u8 = 12;
const R15: u8 = 15;
/// The column of the return address; as a register to read it is the instruction pointer.
pub(super) const RIP: u8 = 16;
const COUNT: usize = 17;

/// What a function must leave as it was for its caller, so that it is known in the caller's frame too.
const CALLEE_SAVED: u32 = 1 << RBX | 1 << RBP | 0b1111 << R12;
const _: () = assert!(R15 == R12 + 3);

/// Registers of a thread at one frame. Those that were not sampled are unknown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Registers {
    values: [u64; COUNT],
    known: u32,
}

impl Registers {
    /// Instruction pointer and stack pointer; everything else unknown.
    pub fn new(ip: u64, sp: u64) -> Self {
        let mut this = Self { values: [0; COUNT], known: 0 };
        this.set(RIP, Some(ip));
        this.set(RSP, Some(sp));
        this
    }

    /// The same with a known frame pointer.
    pub fn with_bp(self, bp: u64) -> Self {
        self.with(RBP, bp)
    }

    /// The same with register `number` (DWARF numbers: 3 is rbx, 6 rbp, 10 r10, 12 to 15 r12 to r15) known.
    /// Few functions need more than rbp: stack switches in assembler, and realigned frames in their prologue.
    pub fn with(mut self, number: u8, value: u64) -> Self {
        self.set(number, Some(value));
        self
    }

    /// The instruction pointer.
    pub fn ip(&self) -> u64 {
        self.values[usize::from(RIP)]
    }

    /// The stack pointer.
    pub fn sp(&self) -> u64 {
        self.values[usize::from(RSP)]
    }

    /// The frame pointer, where it is known.
    pub fn bp(&self) -> Option<u64> {
        self.get(RBP)
    }

    pub(super) fn get(&self, number: u8) -> Option<u64> {
        let value = *self.values.get(usize::from(number))?;
        (self.known & 1 << number != 0).then_some(value)
    }

    pub(super) fn set(&mut self, number: u8, value: Option<u64>) {
        let Some(slot) = self.values.get_mut(usize::from(number)) else { return };
        match value {
            Some(value) => {
                *slot = value;
                self.known |= 1 << number;
            }
            None => self.known &= !(1 << number),
        }
    }

    /// What the caller's frame has of these registers before any rule is applied.
    pub(super) fn kept_by_callee(mut self) -> Self {
        self.known &= CALLEE_SAVED | 1 << RSP | 1 << RIP;
        self
    }
}

impl fmt::Debug for Registers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for number in 0..COUNT as u8 {
            if let Some(value) = self.get(number) {
                map.entry(&number, &format_args!("{value:#x}"));
            }
        }
        map.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_knows_only_what_the_callee_must_keep() {
        let regs = Registers::new(1, 2).with_bp(3).with(0, 4).with(12, 5).with(200, 6);
        assert_eq!((regs.ip(), regs.sp(), regs.bp(), regs.get(0)), (1, 2, Some(3), Some(4)));
        assert_eq!(regs.get(200), None);
        let caller = regs.kept_by_callee();
        assert_eq!((caller.bp(), caller.get(0), caller.get(12)), (Some(3), None, Some(5)));
    }
}
