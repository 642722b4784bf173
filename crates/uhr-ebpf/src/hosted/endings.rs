//! Where walks end, and that their stacks are copied where that is before the first function.

use uhr_unwind::SavedBp::Same;
use uhr_unwind::SimpleRow::{First, FromBp, FromSp, SignalFrame, TooComplex, Uncovered};

use super::machine::{AS_OF_NS, From, How, Machine, PAGE};
use super::planted::{CODE, STACK, START, instruction, returns};
use crate::tables::WalkBy;
use crate::{WALKS, WalkEnd};

const LEAF: uhr_unwind::SimpleRow = FromSp { cfa: 8, bp: Same };

/// A leaf at `CODE`, code of other kinds from `CODE + 0x1000` on, a page each.
fn machine() -> Machine {
    let mut machine = Machine::new();
    let table = machine.rows(&[
        (CODE, LEAF),
        (CODE + 0x20, TooComplex),
        (CODE + 0x40, FromBp { cfa: 16, bp: Same }),
        (CODE + 0x60, SignalFrame),
        (CODE + 0x80, Uncovered),
        (START - 1, First),
        (START + 1, Uncovered),
    ]);
    machine.map(CODE..CODE + 0x1000, WalkBy::Rows(table));
    machine.map(CODE + 0x1000..CODE + 0x2000, WalkBy::Nothing);
    machine.map(CODE + 0x2000..CODE + 0x3000, WalkBy::ReadingCode);
    machine
}

#[test]
fn code_that_rows_do_not_lead_out_of() {
    let mut machine = machine();
    let mut ending = |caller: u64, stack: &[u64]| {
        machine.forget_memory();
        let words: Vec<u64> = [caller].iter().chain(stack).copied().collect();
        machine.put_stack(STACK, &words);
        let taken = machine.walk(From { ip: CODE, sp: STACK, bp: STACK - 8 });
        let sample = taken.sample();
        assert!(sample.walk.is_none() && sample.user.is_empty());
        assert_eq!(sample.stack.len(), PAGE as usize, "up to the end of the stack");
        assert_eq!(sample.stack[..8], caller.to_ne_bytes());
        taken.ending()
    };
    assert_eq!(ending(CODE + 0x24, &[]), "a row of another form");
    assert_eq!(ending(CODE + 0x44, &[]), "the stack pointer did not move");
    assert_eq!(ending(CODE + 0x84, &[]), "no call frame information");
    assert_eq!(ending(CODE + 0x1004, &[]), "the file's rows were not there yet");
    assert_eq!(ending(CODE + 0x2004, &[]), "generated code");
    assert_eq!(ending(CODE + 0x3004, &[]), "the code was not known");
    assert_eq!(ending(CODE - 4, &[]), "the code was not known");
    assert_eq!(ending(1, &[]), "the code was not known");
    assert_eq!(ending(u64::MAX, &[]), "the code was not known");
}

#[test]
fn processes_that_are_not_known() {
    let mut machine = machine();
    machine.put_stack(STACK, &[START]);
    let from = From { ip: CODE, sp: STACK, bp: 0 };
    assert_eq!(machine.sample(from, How::default()).ending(), "the process was not known yet");
    machine.put_space();
    let mut of_exec = |exec_ns| machine.sample(from, How { exec_ns, ..How::default() }).ending();
    assert_eq!(of_exec(AS_OF_NS), "to the first function");
    assert_eq!(of_exec(AS_OF_NS + 1), "the process was not known yet");
}

#[test]
fn stacks_that_cannot_be_read() {
    let mut machine = machine();
    // The last word of the page, and the next page is not there.
    let edge = STACK + PAGE - 8;
    machine.put_stack(STACK, &vec![CODE + 4; 512]);
    let taken = machine.walk(From { ip: CODE, sp: edge, bp: 0 });
    assert_eq!(taken.frames(), [instruction(CODE), returns(CODE + 4)]);
    assert_eq!(taken.sample().walk, Some(WalkEnd::Unreadable));
    for sp in [STACK + PAGE, STACK - 8, 0, u64::MAX - 7, 1 << 47] {
        // There is no stack at all, as in the middle of an exec.
        let taken = machine.walk(From { ip: CODE, sp, bp: 0 });
        let sample = taken.sample();
        assert!(sample.walk.is_none() && sample.user.is_empty() && sample.stack.is_empty(), "{sp:x}");
    }
    // A stack pointer that is not a multiple of 8 is nobody's.
    let taken = machine.walk(From { ip: CODE, sp: STACK + 1, bp: 0 });
    assert_eq!(taken.sample().walk, Some(WalkEnd::Unreadable));
}

#[test]
fn a_signal_frame_that_cannot_be_read() {
    let mut machine = machine();
    let edge = STACK + PAGE - 8;
    machine.put_stack(STACK, &vec![CODE + 0x64; 512]);
    let taken = machine.walk(From { ip: CODE, sp: edge, bp: 0 });
    assert_eq!(taken.frames(), [instruction(CODE), instruction(CODE + 0x64)]);
    assert_eq!(taken.sample().walk, Some(WalkEnd::Unreadable));
}

#[test]
fn the_words_for_endings_are_those_of_the_programs() {
    let names: Vec<&str> = include_str!("../../bpf/abi.h")
        .lines()
        .skip_while(|line| !line.starts_with("enum uhr_ending"))
        .take_while(|line| !line.contains("UHR_ENDINGS"))
        .filter(|line| line.contains(" = ") && !line.contains("UHR_GAVE_UP"))
        .collect();
    assert_eq!(names.len(), WALKS.len());
    for (number, (name, (is_copied, _))) in names.iter().zip(WALKS).enumerate() {
        assert!(name.contains(&format!("= {number},")), "{name}");
        assert_eq!(is_copied, number >= 3, "{name}");
    }
}

#[test]
fn the_kernels_frames_come_before_those_of_the_program() {
    let mut machine = machine();
    machine.put_stack(STACK, &[CODE + 4, START]);
    machine.put_space();
    for kernel_frames in [1, 127] {
        let how = How { kernel_frames, ..How::default() };
        let taken = machine.sample(From { ip: CODE, sp: STACK, bp: 0 }, how);
        let sample = taken.sample();
        let kernel: Vec<u64> = (0..u64::from(kernel_frames)).map(|at| u64::MAX - at).collect();
        assert_eq!(sample.kernel, crate::abi::words(&kernel));
        assert_eq!(taken.frames(), [instruction(CODE), returns(CODE + 4), returns(START)]);
    }
}

#[test]
fn stacks_as_deep_as_fits_and_deeper() {
    let mut machine = machine();
    // 8,192 steps are made, and of the frames that they find 512 are kept at each end.
    for depth in [1023_usize, 1024, 1025, 1026, 1535, 1536, 1537, 3000, 8191, 8192, 8193, 9000] {
        machine.forget_memory();
        let stack: Vec<u64> = (2..depth as u64).map(|at| CODE + 1 + at % 0x1f).chain([START]).collect();
        machine.put_stack(STACK, &stack);
        let taken = machine.walk(From { ip: CODE, sp: STACK, bp: 0 });
        let whole = [instruction(CODE)].into_iter().chain(stack.into_iter().map(returns));
        let found: Vec<_> = whole.take(8192).collect();
        let left_out = found.len().saturating_sub(1024);
        let middle = 512.min(found.len());
        let kept = [&found[..middle], &found[middle + left_out..]].concat();
        assert!(taken.frames() == kept, "{depth}");
        assert_eq!(taken.sample().left_out as usize, left_out);
        let end = if depth <= 8192 { WalkEnd::First } else { WalkEnd::TooDeep };
        assert_eq!(taken.sample().walk, Some(end), "{depth}");
    }
}

/// Each frame is as large as what is read at a time.
#[test]
fn a_root_that_lies_very_far_above_is_not_looked_for() {
    let mut machine = Machine::new();
    let table = machine.rows(&[(CODE, FromSp { cfa: 2048, bp: Same }), (CODE + 0x20, Uncovered)]);
    machine.map(CODE..CODE + 0x1000, WalkBy::Rows(table));
    let stack: Vec<u64> = (1..=2000 * 256).map(|word| if word % 256 == 0 { CODE + 1 } else { 0 }).collect();
    machine.put_stack(STACK, &stack);
    let taken = machine.walk(From { ip: CODE, sp: STACK, bp: 0 });
    let (sample, frames) = (taken.sample(), taken.frames().len() as u32 + taken.sample().left_out);
    assert_eq!(sample.walk, Some(WalkEnd::TooDeep));
    assert!((1024..1032).contains(&frames), "{frames}");
}
