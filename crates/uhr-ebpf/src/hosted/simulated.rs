//! Stacks of programs that were made up: functions of all kinds call each other, as deep as chance wills, and the walk has to
//! find the very chain of calls.

use std::ops::Range;

use uhr_unwind::SavedBp::{AtCfa, Same};
use uhr_unwind::SimpleRow::{self, First, FromBp, FromSp, SavedAtBp, SignalFrame, Uncovered};

use super::machine::{From, How, Machine, PAGE};
use super::planted::{by_bp, instruction, returns, signal_frame};
use super::random::Random;
use crate::WalkedFrame;
use crate::abi::{CHUNK_WORDS, HALF_OF_WALK};
use crate::tables::WalkBy;

const TOP: u64 = 0x7fff_ffff_e000;
const CODE: u64 = 0x10_0000;

/// What a function does with the stack, after the call has pushed where it returns to.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// `_start`.
    First,
    /// Leaves rbp alone, and has so many words.
    Plain(u64),
    /// Saves rbp, and uses it for something else.
    Saves(u64),
    /// `push %rbp; mov %rsp, %rbp`, and a frame of any size.
    Frame,
    /// The same without a row.
    Uncovered,
    /// Aligns its frame, with the CFA saved in it.
    Aligns,
    /// Returns from signal handlers.
    Restorer,
}

struct Function {
    code: Range<u64>,
    kind: Kind,
}

impl Function {
    fn row(&self) -> SimpleRow {
        match self.kind {
            Kind::First => First,
            Kind::Plain(words) => FromSp { cfa: 8 + words as i32 * 8, bp: Same },
            Kind::Saves(words) => FromSp { cfa: 16 + words as i32 * 8, bp: AtCfa(-16) },
            Kind::Frame => FromBp { cfa: 16, bp: AtCfa(-16) },
            Kind::Uncovered => Uncovered,
            Kind::Aligns => SavedAtBp { cfa: -8, bp: 0 },
            Kind::Restorer => SignalFrame,
        }
    }
}

/// The first function is `_start`, the second the restorer.
fn functions(random: &mut Random) -> Vec<Function> {
    let mut at = CODE + random.below(0x400);
    let kinds = [Kind::First, Kind::Restorer].into_iter().map(Some).chain((0..60).map(|_| None));
    let place = |kind: Option<Kind>| {
        let words = random.below(40);
        let made = [
            Kind::Plain(words),
            Kind::Saves(words),
            Kind::Frame,
            Kind::Uncovered,
            Kind::Aligns,
            Kind::Plain(words * 40),
        ];
        let kind = kind.unwrap_or_else(|| random.pick(&made));
        let start = at + if random.below(4) == 0 { random.below(0x900) } else { 0 };
        at = start + 2 + random.below(300);
        Function { code: start..at, kind }
    };
    kinds.map(place).collect()
}

/// A thread that calls, and what the walk along its stack has to find.
struct Thread {
    sp: u64,
    bp: u64,
    /// From `TOP` downwards.
    stack: Vec<u64>,
    /// The outermost first, without the innermost.
    frames: Vec<WalkedFrame>,
}

impl Thread {
    fn push(&mut self, word: u64) {
        self.sp -= 8;
        let at = ((TOP - self.sp) / 8 - 1) as usize;
        self.stack.resize(self.stack.len().max(at + 1), 0x5555);
        self.stack[at] = word;
    }

    fn reserve(&mut self, words: u64) {
        for _ in 0..words {
            self.push(0xdead);
        }
    }

    fn call(&mut self, function: &Function, from: u64, random: &mut Random) {
        let found = if function.kind == Kind::Uncovered { by_bp(from) } else { returns(from) };
        self.frames.push(found);
        let cfa = self.sp;
        self.push(from);
        match function.kind {
            Kind::Plain(words) => self.reserve(words),
            Kind::Saves(words) => {
                self.push(self.bp);
                self.reserve(words);
                self.bp = random.pick(&[0, 1, self.sp, self.sp + 64, u64::MAX, CODE]);
            }
            Kind::Frame | Kind::Uncovered => {
                self.push(self.bp);
                self.bp = self.sp;
                self.reserve(random.below(60));
            }
            Kind::Aligns => {
                self.reserve(self.sp % 64 / 8);
                self.push(from);
                self.push(self.bp);
                self.bp = self.sp;
                self.push(cfa);
                self.reserve(random.below(60));
            }
            Kind::First | Kind::Restorer => {}
        }
    }

    /// A signal comes at `ip`, and its handler begins.
    fn interrupt(&mut self, ip: u64, restorer: u64, handler: &Function, random: &mut Random) {
        self.frames.push(instruction(ip));
        let interrupted = From { ip, sp: self.sp, bp: self.bp };
        self.reserve(16);
        for word in signal_frame(interrupted).into_iter().rev() {
            self.push(word);
        }
        self.call(handler, restorer, random);
        if let Some(frame) = self.frames.last_mut() {
            frame.is_return = false;
        }
    }
}

/// Calls until there are so many frames. Gives the thread and its innermost instruction.
fn run(functions: &[Function], frames: usize, random: &mut Random) -> (Thread, u64) {
    let mut thread = Thread { sp: TOP, bp: 0, stack: Vec::new(), frames: Vec::new() };
    thread.reserve(random.below(20));
    let mut current = &functions[0];
    while thread.frames.len() + 1 < frames {
        let callee = &functions[2 + random.below(functions.len() as u64 - 2) as usize];
        let length = current.code.end - current.code.start;
        // In code without rows only a call is sure to stand behind its prologue.
        if random.below(30) == 0 && thread.frames.len() + 2 < frames {
            let restorer = functions[1].code.start + 1;
            thread.interrupt(current.code.start + random.below(length), restorer, callee, random);
        } else {
            thread.call(callee, current.code.start + 1 + random.below(length), random);
        }
        current = callee;
    }
    let ip = current.code.start + random.below(current.code.end - current.code.start);
    (thread, ip)
}

#[test]
fn made_up_programs_are_walked_by_the_calls_that_they_made() {
    let mut machine = Machine::new();
    for seed in 0..400 {
        let mut random = Random::new(seed);
        machine.clear();
        machine.skip_to_word((CHUNK_WORDS as u64 - random.below(300)) as u32);
        let functions = functions(&mut random);
        let mut rows = Vec::new();
        for function in &functions {
            rows.extend([(function.code.start, function.row()), (function.code.end, Uncovered)]);
        }
        // Where functions touch, the second row of an address is the one that holds.
        rows.dedup_by(|later, earlier| {
            later.0 == earlier.0 && {
                earlier.1 = later.1;
                true
            }
        });
        let table = machine.rows(&rows);
        machine.map(CODE..CODE + 0x10_0000, WalkBy::RowsOrFramePointers(table));
        machine.put_space();
        let frames = match seed % 8 {
            0 => 2 * HALF_OF_WALK,
            1 => 2 * HALF_OF_WALK + random.below(2000) as usize,
            _ => 1 + random.below(60) as usize,
        };
        let (mut thread, ip) = run(&functions, frames, &mut random);
        thread.stack.resize(thread.stack.len().next_multiple_of(PAGE as usize / 8), 0);
        thread.stack.reverse();
        let bytes = crate::abi::words(&thread.stack);
        machine.put_memory(TOP - bytes.len() as u64, bytes);
        let how = How { from_outside: seed % 2 == 0, kernel_frames: (seed % 128) as u16, ..How::default() };
        let taken = machine.sample(From { ip, sp: thread.sp, bp: thread.bp }, how);
        let mut whole: Vec<_> =
            [instruction(ip)].into_iter().chain(thread.frames.into_iter().rev()).collect();
        let left_out = whole.len().saturating_sub(2 * HALF_OF_WALK);
        whole.drain(HALF_OF_WALK.min(whole.len())..(HALF_OF_WALK + left_out).min(whole.len()));
        assert_eq!(taken.sample().left_out as usize, left_out);
        assert_eq!(taken.ending(), "to the first function", "{seed}, after {:?}", taken.frames().last());
        assert!(taken.frames() == whole, "{seed}");
    }
}
