#![forbid(unsafe_code)]
//! Room for the rules of one row of call frame information while it is read.

use gimli::{Register, RegisterRule, UnwindContext, UnwindContextStorage, UnwindTableRow};

/// Registers that one row has rules for, at most: a signal's frame has 17 of them on x86-64, and 33 on aarch64.
const REGISTERS: usize = 40;
/// Rows that an entry remembers at once, and its own.
const ROWS: usize = 4;

/// Room for as many registers as real rows name. gimli's own has some for 192, and copies all of it for each entry: two thirds of
/// the time that it took to compile rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FewRegisters;

impl UnwindContextStorage<usize> for FewRegisters {
    type Rules = [(Register, RegisterRule<usize>); REGISTERS];
    type Stack = Box<[UnwindTableRow<usize, Self>; ROWS]>;
}

/// What evaluates entries, one after the other.
pub(super) type Context = UnwindContext<usize, FewRegisters>;

/// One row.
pub(super) type Rules = UnwindTableRow<usize, FewRegisters>;
