//! Frame pointers: of code without rows, and alone, as `--unwind fp` follows them.

use uhr_unwind::SavedBp::{AtCfa, Same};
use uhr_unwind::SimpleRow::{First, FromSp, Uncovered};

use super::machine::{From, How, Machine, PAGE};
use super::planted::{CODE, STACK, START, by_bp, instruction, returns};
use crate::tables::WalkBy;
use crate::{WalkEnd, WalkedFrame};

/// Code whose rows cover the first 0x40 bytes and `_start`; a page of generated code behind it.
fn machine() -> Machine {
    let mut machine = Machine::new();
    let table = machine.rows(&[
        (CODE, FromSp { cfa: 8, bp: Same }),
        (CODE + 0x20, FromSp { cfa: 16, bp: AtCfa(-16) }),
        (CODE + 0x40, Uncovered),
        (START - 1, First),
        (START + 1, Uncovered),
    ]);
    machine.map(CODE..CODE + 0x1000, WalkBy::RowsOrFramePointers(table));
    machine.map(CODE + 0x1000..CODE + 0x2000, WalkBy::FramePointers);
    machine
}

#[test]
fn code_without_rows_that_keeps_frame_pointers() {
    let mut machine = machine();
    let bps = [STACK + 3 * 8, STACK + 6 * 8];
    let stack = [CODE + 0x84, 1, 2, bps[1], CODE + 0x1084, 3, 0, CODE + 0x24, 0, START];
    machine.put_stack(STACK, &stack);
    let taken = machine.walk(From { ip: CODE, sp: STACK, bp: bps[0] });
    let frames =
        [instruction(CODE), returns(CODE + 0x84), by_bp(CODE + 0x1084), by_bp(CODE + 0x24), returns(START)];
    assert_eq!(taken.frames(), frames);
    assert_eq!(taken.sample().walk, Some(WalkEnd::First));
    assert!(taken.sample().stack.is_empty(), "the leaf had a row");
}

#[test]
fn the_top_of_the_stack_comes_with_a_leaf_that_only_a_frame_pointer_leads_out_of() {
    let mut machine = machine();
    let stack: Vec<u64> = [5, STACK, START].into_iter().chain(100..200).collect();
    machine.put_stack(STACK, &stack);
    for kernel_frames in [0, 127] {
        machine.put_space();
        let how = How { kernel_frames, ..How::default() };
        let taken = machine.sample(From { ip: CODE + 0x1010, sp: STACK, bp: STACK + 8 }, how);
        assert_eq!(taken.frames(), [instruction(CODE + 0x1010), by_bp(START)]);
        assert_eq!(taken.sample().stack, crate::abi::words(&stack[..8]));
    }
}

#[test]
fn frame_pointers_that_lead_nowhere_are_not_followed() {
    let mut machine = machine();
    machine.put_stack(STACK, &[STACK + 64, 0, 1, 2, 3]);
    // Below the stack pointer, not in memory, not a multiple of 8, and an address to return to that is 0.
    for bp in [STACK - 8, STACK + PAGE, STACK + 3, 1 << 47, 0, u64::MAX, STACK] {
        let taken = machine.walk(From { ip: CODE + 0x1010, sp: STACK, bp });
        assert_eq!(taken.ending(), "generated code", "{bp:x}");
    }
}

#[test]
fn goroutines_end_where_their_first_function_returns_to() {
    let mut machine = machine();
    machine.map(CODE + 0x2000..CODE + 0x3000, WalkBy::FramePointers).root = Some(CODE + 0x2801);
    machine.put_stack(STACK, &[0, CODE + 0x2801]);
    let taken = machine.walk(From { ip: CODE + 0x2010, sp: STACK, bp: STACK });
    assert_eq!(taken.frames(), [instruction(CODE + 0x2010), by_bp(CODE + 0x2801)]);
    assert_eq!(taken.sample().walk, Some(WalkEnd::First));
}

#[test]
fn go_goes_over_to_a_stack_that_lies_below_a_few_times() {
    let mut machine = machine();
    let go = CODE + 0x2000;
    machine.map(go..go + 0x1000, WalkBy::FramePointers).root = Some(go + 0x801);
    // One stack a page, each frame's caller on the one below.
    let stacks = |number: u64| -> Vec<(u64, Vec<u64>)> {
        let frame = |at: u64| (STACK - at * PAGE, vec![STACK - (at + 1) * PAGE, go + 0x10 + at]);
        let last = (STACK - number * PAGE, vec![0, go + 0x801]);
        (0..number).map(frame).chain([last]).collect()
    };
    for number in 1..8 {
        machine.forget_memory();
        for (at, words) in stacks(number) {
            machine.put_stack(at, &words);
        }
        let taken = machine.walk(From { ip: go, sp: STACK, bp: STACK });
        if number <= 4 {
            let between = (0..number).map(|at| by_bp(go + 0x10 + at));
            let whole: Vec<_> =
                [instruction(go)].into_iter().chain(between).chain([by_bp(go + 0x801)]).collect();
            assert_eq!(taken.frames(), whole, "{number}");
        } else {
            assert_eq!(taken.ending(), "generated code", "a chain that goes down for ever is none");
        }
    }
}

/// What `--unwind fp` gives.
fn chain(machine: &mut Machine, from: From) -> (Vec<u64>, bool, Vec<u8>) {
    let taken = machine.sample(from, How { by_frame_pointers: true, ..How::default() });
    let sample = taken.sample();
    (
        taken.frames().iter().map(|frame: &WalkedFrame| frame.address).collect(),
        sample.is_full,
        sample.stack.to_vec(),
    )
}

#[test]
fn a_chain_of_frame_pointers() {
    let mut machine = Machine::new();
    let stack = [1, STACK + 32, 0xa1, 3, STACK + 64, 0xa2, 7, 8, 0, 0];
    machine.put_stack(STACK, &stack);
    let from = From { ip: 0xa0, sp: STACK, bp: STACK + 8 };
    let (frames, is_full, top) = chain(&mut machine, from);
    assert_eq!((frames, is_full), (vec![0xa0, 0xa1, 0xa2], false));
    assert_eq!(top, crate::abi::words(&stack[..8]), "where a function without a frame has its caller");
    for bp in [STACK - 8, STACK + PAGE, STACK + 3, 1 << 47, 0, u64::MAX] {
        assert_eq!(chain(&mut machine, From { bp, ..from }).0, [0xa0], "{bp:x}");
    }
}

#[test]
fn a_chain_is_as_long_as_fits() {
    // Frames so far apart that each needs a window of its own, and so close that they share one.
    for distance in [16, 48, 2048, 4096, 10_000] {
        for length in [125, 126, 127, 300] {
            let mut machine = Machine::new();
            let mut words = vec![0; (length * distance / 8 + 2) as usize];
            for frame in 0..length {
                let at = (frame * distance / 8) as usize;
                words[at] = STACK + (frame + 1) * distance;
                words[at + 1] = 0xa001 + frame;
            }
            machine.put_stack(STACK, &words);
            let (frames, is_full, _) = chain(&mut machine, From { ip: 0xa000, sp: STACK, bp: STACK });
            let whole: Vec<u64> = (0..(length + 1).min(127)).map(|frame| 0xa000 + frame).collect();
            assert_eq!(frames, whole, "{distance} {length}");
            assert_eq!(is_full, length + 1 >= 127);
        }
    }
}

#[test]
fn a_chain_ends_with_the_memory() {
    let mut machine = Machine::new();
    // The last whole frame ends with the page; of the next only its first word would be there.
    let mut words = vec![0; 512];
    (words[508], words[509]) = (STACK + 510 * 8, 0xa1);
    (words[510], words[511]) = (STACK + 511 * 8, 0xa2);
    machine.put_stack(STACK, &words);
    let at = STACK + 508 * 8;
    let (frames, _, top) = chain(&mut machine, From { ip: 0xa0, sp: at, bp: at });
    assert_eq!(frames, [0xa0, 0xa1, 0xa2]);
    assert!(top.is_empty(), "less than that is left of the stack");
}
