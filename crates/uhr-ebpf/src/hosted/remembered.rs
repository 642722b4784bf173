//! Rows that the walker remembers from walk to walk: each is that of one address in one state of a process's mappings.

use uhr_unwind::SavedBp::Same;
use uhr_unwind::SimpleRow::{FromSp, Uncovered};

use super::machine::{AS_OF_NS, From, How, Machine};
use super::places::{cfa_of, machine};
use super::planted::{CODE, STACK};
use super::random::Random;
use crate::abi::Space;
use crate::tables::{TableId, WalkBy};

/// A file whose code has so many words of stack.
fn file(machine: &mut Machine, words: i32) -> TableId {
    machine.rows(&[(CODE, FromSp { cfa: words * 8, bp: Same }), (CODE + 0x8000, Uncovered)])
}

#[test]
fn code_that_is_replaced_has_new_rows() {
    let mut machine = machine();
    let files: Vec<TableId> = (1..=20).map(|words| file(&mut machine, words)).collect();
    let code = CODE..CODE + 0x8000;
    machine.map(code.clone(), WalkBy::Nothing);
    for (words, table) in (1..).zip(files) {
        machine.remap(code.clone(), WalkBy::Rows(table));
        machine.put_space();
        for _ in 0..3 {
            assert_eq!(cfa_of(&mut machine, CODE + 0x123), Some(words));
        }
    }
    machine.remap(code, WalkBy::ReadingCode);
    machine.put_space();
    let taken = machine.sample(From { ip: CODE + 0x123, sp: STACK, bp: 0 }, How::default());
    assert_eq!(taken.ending(), "generated code");
}

#[test]
fn versions_are_told_apart_in_all_their_bits() {
    let mut machine = machine();
    let files = [file(&mut machine, 3), file(&mut machine, 4)];
    let code = CODE..CODE + 0x8000;
    machine.map(code.clone(), WalkBy::Nothing);
    for version in [1_u32, 0x1_0001, 0x8000_0001, 0xffff_0001, 0x1_0000, 0, u32::MAX, 1 << 15] {
        for (words, table) in (3..).zip(files) {
            machine.remap(code.clone(), WalkBy::Rows(table));
            machine.put_space();
            let space = |version| Space { as_of_ns: AS_OF_NS, first: 0, count: 2, version, is_deep: 0 };
            // The other file has the version next to it, or one that differs in its highest bit alone.
            let flip = if words == 3 { 0 } else { 1 << 31 };
            machine.put_raw_space(&space(version ^ flip));
            assert_eq!(cfa_of(&mut machine, CODE + 8), Some(words), "{version:x}");
        }
    }
}

#[test]
fn many_addresses_push_each_other_out() {
    let mut machine = machine();
    let rows: Vec<_> = (0..0x400_u64)
        .map(|at| (CODE + at * 32, FromSp { cfa: 8 + (at % 60) as i32 * 8, bp: Same }))
        .chain([(CODE + 0x8000, Uncovered)])
        .collect();
    let table = machine.rows(&rows);
    machine.map(CODE..CODE + 0x8000, WalkBy::Rows(table));
    machine.put_space();
    let mut random = Random::new(3);
    // Four times as many as are remembered, and some of them again and again.
    for _ in 0..20_000 {
        let at = random.below(0x8000) & if random.below(2) == 0 { 0x7fff } else { 0x0ff8 };
        assert_eq!(cfa_of(&mut machine, CODE + at), Some(1 + at / 32 % 60), "{at:x}");
    }
}
