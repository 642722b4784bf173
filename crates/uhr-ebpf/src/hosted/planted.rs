//! Small stacks, word by word, and the frames that each form of row leads to.

use uhr_unwind::SavedBp::{AtCfa, Lost, Same};
use uhr_unwind::SimpleRow::{self, First, FromBp, FromSp, Plt, SavedAtBp, SignalFrame, Uncovered};

use super::machine::{From, Machine, Taken};
use crate::tables::WalkBy;
use crate::{WalkEnd, WalkedFrame};

pub(super) const STACK: u64 = 0x7ffc_0000_1000;
pub(super) const CODE: u64 = 0x40_0000;
/// `_start`, which is the caller of all functions here.
pub(super) const START: u64 = CODE + 0xf00;

/// Walks a stack that begins at `STACK`, by these rows and those of `_start`.
fn walk(rows: &[(u64, SimpleRow)], ip: u64, bp: u64, stack: &[u64]) -> Taken {
    let mut machine = Machine::new();
    let start = [(START - 16, First), (START + 16, Uncovered)];
    let rows: Vec<_> = rows.iter().copied().chain(start).collect();
    let table = machine.rows(&rows);
    machine.map(CODE..CODE + 0x1000, WalkBy::Rows(table));
    machine.put_stack(STACK, stack);
    machine.walk(From { ip, sp: STACK, bp })
}

pub(super) fn instruction(address: u64) -> WalkedFrame {
    WalkedFrame { address, is_return: false, from_bp: false }
}

pub(super) fn returns(address: u64) -> WalkedFrame {
    WalkedFrame { address, is_return: true, from_bp: false }
}

pub(super) fn by_bp(address: u64) -> WalkedFrame {
    WalkedFrame { address, is_return: true, from_bp: true }
}

/// The walk reached `_start` by these frames.
#[track_caller]
fn assert_whole(taken: &Taken, frames: &[WalkedFrame]) {
    let whole: Vec<_> = frames.iter().copied().chain([returns(START)]).collect();
    assert_eq!(taken.frames(), whole, "{}", taken.ending());
    let sample = taken.sample();
    assert_eq!(sample.walk, Some(WalkEnd::First));
    assert_eq!(sample.as_of_ns, super::machine::AS_OF_NS);
    assert!(sample.stack.is_empty(), "a stack that was walked need not be copied");
}

#[test]
fn rows_that_count_from_the_stack_pointer() {
    let leaf = (CODE, FromSp { cfa: 8, bp: Same });
    let saves = (CODE + 0x20, FromSp { cfa: 32, bp: AtCfa(-16) });
    let taken = walk(&[leaf, saves], CODE + 4, 5, &[CODE + 0x24, 1, 2, 0xb0b, START]);
    assert_whole(&taken, &[instruction(CODE + 4), returns(CODE + 0x24)]);
}

#[test]
fn rows_that_count_from_the_frame_pointer() {
    // The leaf has a frame of unknown size, and its caller has one too; the bp of that one is the leaf's saved one.
    let leaf = (CODE, FromBp { cfa: 16, bp: AtCfa(-16) });
    let caller = (CODE + 0x40, FromBp { cfa: 16, bp: AtCfa(-16) });
    let stack = [9, 9, 9, STACK + 7 * 8, CODE + 0x44, 8, 8, 0, START];
    assert_whole(
        &walk(&[leaf, caller], CODE + 4, STACK + 3 * 8, &stack),
        &[instruction(CODE + 4), returns(CODE + 0x44)],
    );
}

#[test]
fn a_caller_that_counts_from_a_frame_pointer_which_the_leaf_left_alone() {
    let leaf = (CODE, FromSp { cfa: 16, bp: Same });
    let caller = (CODE + 0x40, FromBp { cfa: 16, bp: AtCfa(-16) });
    let stack = [1, CODE + 0x44, 2, 3, 4, START];
    assert_whole(
        &walk(&[leaf, caller], CODE + 4, STACK + 4 * 8, &stack),
        &[instruction(CODE + 4), returns(CODE + 0x44)],
    );
}

#[test]
fn functions_that_align_their_frame() {
    // lea 8(%rsp), %r10; and $-32, %rsp; push -8(%r10); push %rbp; mov %rsp, %rbp; push %r10
    let aligns = (CODE, SavedAtBp { cfa: -8, bp: 0 });
    let caller = (CODE + 0x40, FromBp { cfa: 16, bp: AtCfa(-16) });
    let cfa = STACK + 8 * 8;
    //           ......, r10, rbp,            copy, .., .., the address to return to
    let stack = [7, cfa, STACK + 9 * 8, CODE + 0x44, 0, 0, 0, CODE + 0x44, 1, 2, START];
    assert_whole(
        &walk(&[aligns, caller], CODE + 4, STACK + 2 * 8, &stack),
        &[instruction(CODE + 4), returns(CODE + 0x44)],
    );
}

#[test]
fn stubs_of_the_linkage_table_before_and_behind_their_push() {
    let stub = (CODE, Plt { pushed_at: 11 });
    let before = walk(&[stub, (CODE + 32, Uncovered)], CODE + 16 + 10, 0, &[START]);
    assert_whole(&before, &[instruction(CODE + 16 + 10)]);
    let behind = walk(&[stub, (CODE + 32, Uncovered)], CODE + 16 + 11, 0, &[2, START]);
    assert_whole(&behind, &[instruction(CODE + 16 + 11)]);
}

/// A signal's frame as the kernel pushes it, behind the address to return to: `uc_mcontext` at 40, rbp, rsp and rip in it.
pub(super) fn signal_frame(from: From) -> Vec<u64> {
    let mut words = vec![0x51; 120];
    (words[120 / 8], words[160 / 8], words[168 / 8]) = (from.bp, from.sp, from.ip);
    words
}

#[test]
fn a_signal_interrupts_the_first_instruction_of_a_function() {
    let handler = (CODE, FromSp { cfa: 8, bp: Lost });
    let restorer = (CODE + 0x10, SignalFrame);
    // What lies before the interrupted function would lead elsewhere.
    let before = (CODE + 0x20, FromSp { cfa: 4096, bp: Lost });
    let interrupted = (CODE + 0x40, FromSp { cfa: 8, bp: Same });
    let caller = (CODE + 0x60, FromBp { cfa: 16, bp: AtCfa(-16) });
    // On a stack of its own, above the one that was interrupted.
    let below = STACK + 8;
    let mut machine = Machine::new();
    let rows = [handler, restorer, before, interrupted, caller, (START - 1, First), (START + 1, Uncovered)];
    let table = machine.rows(&rows);
    machine.map(CODE..CODE + 0x1000, WalkBy::Rows(table));
    machine.put_stack(below, &[CODE + 0x64, 1, 2, 3, START]);
    let other = STACK + 0x10_0000;
    let saved = From { ip: CODE + 0x40, sp: below, bp: below + 3 * 8 };
    let stack: Vec<u64> = [CODE + 0x14].into_iter().chain(signal_frame(saved)).collect();
    machine.put_stack(other, &stack);
    let taken = machine.walk(From { ip: CODE + 4, sp: other, bp: 0x33 });
    assert_whole(
        &taken,
        &[
            instruction(CODE + 4),
            // The restorer is not called: nothing lies before it.
            instruction(CODE + 0x14),
            instruction(CODE + 0x40),
            returns(CODE + 0x64),
        ],
    );
}

#[test]
fn the_first_function_returns_to_nothing() {
    let taken = walk(&[(CODE, FromSp { cfa: 8, bp: Same }), (CODE + 0x40, Uncovered)], CODE, 0, &[0]);
    assert_eq!(taken.frames(), [instruction(CODE)]);
    assert_eq!(taken.sample().walk, Some(WalkEnd::First));
}

#[test]
fn calls_that_do_not_return_end_their_function() {
    // The address to return to is the first byte of the next function, whose row would lead elsewhere.
    let leaf = (CODE, FromSp { cfa: 8, bp: Same });
    let caller = (CODE + 0x20, FromSp { cfa: 24, bp: Same });
    let next = (CODE + 0x30, FromSp { cfa: 8, bp: Same });
    let taken = walk(&[leaf, caller, next], CODE, 0, &[CODE + 0x30, 1, 2, START]);
    assert_whole(&taken, &[instruction(CODE), returns(CODE + 0x30)]);
}

#[test]
fn a_frame_pointer_that_is_lost_matters_where_it_is_needed() {
    let loses = (CODE, FromSp { cfa: 8, bp: Lost });
    let needs = (CODE + 0x20, FromBp { cfa: 16, bp: AtCfa(-16) });
    let does_not = (CODE + 0x40, FromSp { cfa: 8, bp: Same });
    let restores = (CODE + 0x60, FromSp { cfa: 24, bp: AtCfa(-16) });
    let rows = [loses, needs, does_not, restores];
    let taken = walk(&rows, CODE, STACK + 16, &[CODE + 0x24, 1, 2, START]);
    assert_eq!(taken.ending(), "the frame pointer was lost");
    assert!(taken.frames().is_empty() && !taken.sample().stack.is_empty(), "it is copied instead");
    assert_whole(&walk(&rows, CODE, 0, &[CODE + 0x44, START]), &[instruction(CODE), returns(CODE + 0x44)]);
    let stack = [CODE + 0x64, 0, STACK + 5 * 8, CODE + 0x24, 1, 2, START];
    assert_whole(
        &walk(&rows, CODE, 0, &stack),
        &[instruction(CODE), returns(CODE + 0x64), returns(CODE + 0x24)],
    );
}

#[test]
fn a_saved_frame_pointer_that_was_popped_is_in_its_register_again() {
    // Behind `pop %rbp` compilers go on naming the slot, which lies below the stack pointer now.
    let leaf = (CODE, FromSp { cfa: 8, bp: AtCfa(-16) });
    let caller = (CODE + 0x20, FromBp { cfa: 16, bp: AtCfa(-16) });
    let taken = walk(&[leaf, caller], CODE, STACK + 8, &[CODE + 0x24, 0, START]);
    assert_whole(&taken, &[instruction(CODE), returns(CODE + 0x24)]);
}
