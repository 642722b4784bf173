#![forbid(unsafe_code)]
//! Code that is known by its bytes, because no call frame information covers it, or not as it would have to.

use std::ops::Range;

use uhr_model::object::Machine;

use super::aarch64;
use super::code::CodeAround;
use super::simple_row::SimpleRow;

/// What a file can have of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holds {
    pub(super) machine: Machine,
    /// A libc, or the kernel's part of one.
    pub(super) is_libc: bool,
    /// Code of Go beside code of C.
    pub(super) is_cgo: bool,
}

/// The ranges of some bytes, counted from their beginning, that a row holds for. Of code that was called, that is where the call
/// before the return address stands.
pub(super) fn known_code(holds: Holds, code: &[u8]) -> impl Iterator<Item = (Range<i64>, SimpleRow)> {
    let signal_returns: &[&[u8]] = match holds.machine {
        _ if !holds.is_libc => &[],
        Machine::X86_64 => &CodeAround::SIGNAL_RETURNS,
        Machine::Aarch64 => &[aarch64::SIGNAL_RETURN],
        Machine::Other => &[],
    };
    // The kernel lets signal handlers return there, so no call stands before it: the byte before is looked up.
    let signal_returns = signal_returns.iter().flat_map(move |form| {
        places(code, form).map(|at| (at - 1..at + form.len() as i64, SimpleRow::SignalFrame))
    });
    let thread_starts: &[&[u8]] = if holds.is_cgo { &[CodeAround::GO_THREAD_START] } else { &[] };
    let thread_starts = thread_starts
        .iter()
        .flat_map(move |form| places(code, form).map(|at| (at..at + 2, SimpleRow::First)));
    signal_returns.chain(thread_starts)
}

fn places(code: &[u8], form: &'static [u8]) -> impl Iterator<Item = i64> {
    let windows = code.windows(form.len()).enumerate();
    windows.filter(move |(_, bytes)| *bytes == form).map(|(at, _)| at as i64)
}
