//! Where rows and mappings are found: at the borders of pages, of chunks, of mappings, and among as many as fit.

use uhr_unwind::SavedBp::Same;
use uhr_unwind::SimpleRow::{First, FromSp, Uncovered};

use super::machine::{From, Machine};
use super::planted::{CODE, STACK, instruction, returns};
use super::random::Random;
use crate::WalkEnd;
use crate::abi::{self, CHUNK_WORDS, CODES_OF_ONE, ROWS_OF_PAGE};
use crate::tables::WalkBy;

/// Addresses whose code nobody calls. The words of the stack are such, each with its place: the frame above the leaf tells
/// which word the leaf's row led to.
const TELLS: u64 = 0x1_0000;
const WORDS: u64 = 256;

/// A stack of such words.
pub(super) fn machine() -> Machine {
    let mut machine = Machine::new();
    let table = machine.rows(&[(TELLS - 16, First), (TELLS + 0x1000, Uncovered)]);
    machine.map(TELLS - 16..TELLS + 0x1000, WalkBy::Rows(table));
    machine.put_stack(STACK, &(0..WORDS).map(|at| TELLS + at).collect::<Vec<_>>());
    machine
}

/// The words between the stack pointer and the CFA, by the row of an address. `None`: it has no row.
pub(super) fn cfa_of(machine: &mut Machine, ip: u64) -> Option<u64> {
    let taken = machine.sample(From { ip, sp: STACK, bp: 0 }, super::machine::How::default());
    match taken.ending() {
        "to the first function" => Some(taken.addresses()[1] - TELLS + 1),
        "no call frame information" => None,
        other => panic!("{ip:x}: {other}"),
    }
}

/// The CFA of the row of a number: neighbours differ.
fn words(number: usize) -> u64 {
    1 + number as u64 % (WORDS - 1)
}

/// Takes in rows that begin at these addresses and end at the last, and looks each of them up at its first byte, its last and
/// in between.
fn assert_found(machine: &mut Machine, starts: &[u64]) {
    let (end, starts) = starts.split_last().unwrap();
    let row = |number: usize| FromSp { cfa: words(number) as i32 * 8, bp: Same };
    let rows = starts.iter().enumerate().map(|(number, at)| (*at, row(number)));
    let table = machine.rows(&rows.chain([(*end, Uncovered)]).collect::<Vec<_>>());
    machine.map(starts[0].saturating_sub(0x1000)..end + 0x1000, WalkBy::Rows(table));
    machine.put_space();
    for (number, at) in starts.iter().enumerate() {
        let last = starts.get(number + 1).unwrap_or(end) - 1;
        for address in [*at, last, at.midpoint(last)] {
            assert_eq!(cfa_of(machine, address), Some(words(number)), "row {number} at {address:x}");
        }
    }
    // Before the first row, in its page and before, and behind the last.
    for outside in [starts[0] - 1, starts[0] - 0x1000, *end, end + 0xfff] {
        assert_eq!(cfa_of(machine, outside), None, "{outside:x}");
    }
}

#[test]
fn rows_at_the_borders_of_pages() {
    for end in [CODE + 0x1000, CODE + 0x1001, CODE + 0xfff] {
        for first in [CODE, CODE + 1, CODE + 0x1ff] {
            let starts = [first, CODE + 0x200, CODE + 0x3ff, CODE + 0x400, CODE + 0x401, CODE + 0xe01, end];
            assert_found(&mut machine(), &starts);
        }
    }
}

#[test]
fn pages_with_as_many_rows_as_fit() {
    let rows = ROWS_OF_PAGE as u64;
    let page = |page: u64| (0..rows).map(move |row| CODE + page * 0x200 + row * 4);
    assert_found(&mut machine(), &page(0).chain(page(1)).chain(page(5)).collect::<Vec<_>>());
}

#[test]
fn tables_that_lie_across_chunks() {
    let mut random = Random::new(1);
    let mut at = CODE;
    let starts: Vec<u64> = (0..600)
        .map(|_| {
            at += 1 + random.below(90);
            at
        })
        .collect();
    // The index, then the rows, come to lie across the border: some 60 pages and 600 rows.
    for before in [0, 1, 30, 59, 60, 61, 70, 120, 300, 500, 700] {
        let mut machine = machine();
        machine.skip_to_word((CHUNK_WORDS - before) as u32);
        assert_found(&mut machine, &starts);
    }
}

#[test]
fn what_lies_behind_an_index_is_not_a_part_of_it() {
    let mut machine = machine();
    let row = abi::ROW_SP << 16 | 3 << 24;
    // The index of another table begins there.
    machine.put_words(1000, &[1 << 32 | 1002, 1 << 32 | 1002, row]);
    let table = machine.put_table(&abi::Table { start: CODE, pages: 1, index: 1000 });
    machine.map(CODE - 0x1000..CODE + 0x1000, WalkBy::Rows(table));
    machine.put_space();
    assert_eq!(cfa_of(&mut machine, CODE + 0x1ff), Some(3));
    assert_eq!(cfa_of(&mut machine, CODE + 0x200), None);
    assert_eq!(cfa_of(&mut machine, CODE - 1), None);
}

#[test]
fn files_are_mapped_elsewhere_than_they_state() {
    for bias in [0x5555_5555_4000, 1 << 46, 0_u64.wrapping_sub(0x1000)] {
        let mut machine = machine();
        let table = machine.rows(&[(CODE + 0x40, FromSp { cfa: 40, bp: Same }), (CODE + 0x80, Uncovered)]);
        let at = CODE.wrapping_add(bias);
        machine.map(at..at + 0x1000, WalkBy::Rows(table)).bias = bias;
        machine.put_space();
        assert_eq!(cfa_of(&mut machine, at + 0x3f), None);
        assert_eq!(cfa_of(&mut machine, at + 0x40), Some(5));
        assert_eq!(cfa_of(&mut machine, at + 0x7f), Some(5));
        assert_eq!(cfa_of(&mut machine, at + 0x80), None);
    }
}

#[test]
fn a_process_with_any_number_of_mappings() {
    for count in [1, 2, 3, 100, 4094, CODES_OF_ONE - 1] {
        let mut machine = machine();
        let row = |words: i32| [(0, FromSp { cfa: words * 8, bp: Same }), (0x1000, Uncovered)];
        let tables: Vec<_> = (1..=7).map(|words| machine.rows(&row(words))).collect();
        let start = |number: usize| CODE + number as u64 * 0x3000;
        for number in 0..count {
            let code = machine.map(start(number)..start(number) + 0x800, WalkBy::Rows(tables[number % 7]));
            code.bias = start(number);
        }
        machine.put_space();
        for number in (0..count).step_by(1 + count / 200).chain([count - 1]) {
            let words = Some(1 + number as u64 % 7);
            assert_eq!(cfa_of(&mut machine, start(number)), words, "{number} of {count}");
            assert_eq!(cfa_of(&mut machine, start(number) + 0x7ff), words);
            for outside in [start(number) - 1, start(number) + 0x800] {
                let taken = machine.walk(From { ip: outside, sp: STACK, bp: 0 });
                assert_eq!(taken.ending(), "the code was not known");
            }
        }
    }
}

#[test]
fn frames_of_several_files_in_one_stack() {
    let mut machine = machine();
    let row = [(0x10, FromSp { cfa: 16, bp: Same }), (0x100, Uncovered)];
    let tables = [machine.rows(&row), machine.rows(&row)];
    let (one, other) = (CODE, CODE + 0x10_0000);
    for (at, table) in [one, other].into_iter().zip(tables) {
        machine.map(at..at + 0x1000, WalkBy::Rows(table)).bias = at;
    }
    machine.forget_memory();
    let callers = [one + 0x20, other + 0x30, other + 0x40, one + 0x50];
    let stack: Vec<u64> = callers.iter().chain([&TELLS]).flat_map(|caller| [0, *caller]).collect();
    machine.put_stack(STACK, &stack);
    let taken = machine.walk(From { ip: other + 0x10, sp: STACK, bp: 0 });
    let whole = callers.into_iter().chain([TELLS]).map(returns);
    assert_eq!(taken.frames(), [instruction(other + 0x10)].into_iter().chain(whole).collect::<Vec<_>>());
    assert_eq!(taken.sample().walk, Some(WalkEnd::First));
}
