//! Copies of stacks, where a walk did not lead far enough or is to be checked.

use uhr_unwind::SavedBp::Same;
use uhr_unwind::SimpleRow::{First, FromSp, Uncovered};

use super::machine::{From, How, Machine, PAGE};
use super::planted::{CODE, STACK, START};
use crate::abi::{COPY_BYTES, MAX_COPY_BYTES};
use crate::tables::WalkBy;

/// A stack of this many pages, each byte by its place.
fn stack(pages: u64) -> Vec<u8> {
    (0..pages * PAGE).map(|at| (at / 7) as u8).collect()
}

#[test]
fn stacks_are_copied_up_to_their_end_or_to_what_fits() {
    let mut machine = Machine::new();
    let bytes = stack(18);
    machine.put_memory(STACK, &bytes);
    for from_outside in [false, true] {
        for from in [0, 8, 4088, 4096, 5000, 12_288, 12_296, 40_000, 57_344, 57_352, 69_632, 73_720, 73_727] {
            for kernel_frames in [0, 127] {
                let how = How { from_outside, kernel_frames, ..How::default() };
                let taken = machine.sample(From { ip: CODE, sp: STACK + from, bp: 0 }, how);
                let from = from as usize;
                let end = bytes.len().min(from + MAX_COPY_BYTES as usize);
                assert_eq!(taken.sample().stack.len(), end - from);
                assert!(taken.sample().stack == &bytes[from..end], "{from}");
            }
        }
    }
    for sp in [STACK - 1, STACK - PAGE, STACK + 18 * PAGE, 0, u64::MAX, u64::MAX - 100] {
        let taken = machine.sample(From { ip: CODE, sp, bp: 0 }, How::default());
        assert!(taken.sample().stack.is_empty(), "{sp:x}");
    }
}

#[test]
fn a_walk_that_is_to_be_checked_has_its_copy_with_it() {
    let mut machine = Machine::new();
    let leaf = FromSp { cfa: 8, bp: Same };
    let table = machine.rows(&[(CODE, leaf), (START - 1, First), (START + 1, Uncovered)]);
    machine.map(CODE..CODE + 0x1000, WalkBy::Rows(table));
    // As deep as a walk goes, with all that the kernel's stack can have: an event has room for all of it.
    let mut words = vec![CODE + 0x10; 4096];
    words[1021] = START;
    machine.put_stack(STACK, &words);
    machine.put_space();
    let how = How { copies_too: true, kernel_frames: 127, ..How::default() };
    let taken = machine.sample(From { ip: CODE, sp: STACK, bp: 0 }, how);
    let sample = taken.sample();
    assert_eq!(taken.frames().len(), 1023);
    assert_eq!(taken.ending(), "to the first function");
    assert!(sample.stack == &crate::abi::words(&words)[..COPY_BYTES as usize]);
}

#[test]
fn deep_stacks_are_copied_until_rows_are_there_or_where_rows_do_not_help() {
    let mut machine = Machine::new();
    machine.put_memory(STACK, &stack(18));
    let from = From { ip: CODE, sp: STACK + 8, bp: 0 };
    let copied = |machine: &mut Machine, how| machine.sample(from, how).sample().stack.len() as u32;
    assert_eq!(copied(&mut machine, How::default()), MAX_COPY_BYTES, "the process is not known");
    // For others room is left.
    for (bytes_in_ring, expected) in [(1 << 20, MAX_COPY_BYTES), (2 << 20, COPY_BYTES), (8 << 20, COPY_BYTES)]
    {
        assert_eq!(copied(&mut machine, How { bytes_in_ring, ..How::default() }), expected);
    }
    for (asked, expected) in
        [(1024, 1024), (COPY_BYTES - 8, COPY_BYTES - 8), (COPY_BYTES + 8, MAX_COPY_BYTES)]
    {
        assert_eq!(copied(&mut machine, How { copy_bytes: Some(asked), ..How::default() }), expected);
    }
    let ways = [
        (WalkBy::Nothing, MAX_COPY_BYTES), // its rows are being compiled
        (WalkBy::ReadingCode, COPY_BYTES), // of code that has none
    ];
    for (by, expected) in ways {
        machine.remap(CODE..CODE + 0x1000, by);
        for is_deep in [false, true] {
            machine.is_deep = is_deep;
            machine.put_space();
            let expected = if is_deep { MAX_COPY_BYTES } else { expected };
            assert_eq!(copied(&mut machine, How::default()), expected, "{by:?} {is_deep}");
        }
    }
}
