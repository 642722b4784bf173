//! Copies of stacks, where a walk did not lead far enough or is to be checked.

use uhr_unwind::SavedBp::Same;
use uhr_unwind::SimpleRow::{First, FromSp, Uncovered};

use super::machine::{From, How, Machine, PAGE};
use super::planted::{CODE, STACK, START};
use crate::MAX_COPY_BYTES;
use crate::tables::WalkBy;

/// A stack of this many pages, each byte by its place.
fn stack(pages: u64) -> Vec<u8> {
    (0..pages * PAGE).map(|at| (at / 7) as u8).collect()
}

#[test]
fn stacks_are_copied_up_to_their_end_or_to_what_fits() {
    let mut machine = Machine::new();
    let bytes = stack(6);
    machine.put_memory(STACK, &bytes);
    for from_outside in [false, true] {
        for from in [0, 8, 4088, 4096, 5000, 8192, 8200, 12_000, 20_000, 24_568, 24_575] {
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
    for sp in [STACK - 1, STACK - PAGE, STACK + 6 * PAGE, 0, u64::MAX, u64::MAX - 100] {
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
    assert!(sample.stack == &crate::abi::words(&words)[..MAX_COPY_BYTES as usize]);
}
