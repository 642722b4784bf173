//! Tables, mappings, memory and registers that nobody in their right mind would write: whatever they are, a sample comes, it
//! is one, and nothing was read or written beside its place (the sanitizers would end the walker).

use std::collections::BTreeMap;

use super::machine::{From, How, Machine, PAGE};
use super::random::Random;
use crate::abi::{self, CHUNK_WORDS, CODES, HALF_OF_WALK};

const STACK: u64 = 0x7fff_0000_0000;
const PAGES: u64 = 5;
const CODE: u64 = 0x40_0000;
/// Mappings of 4 KiB, one behind the other.
const MAPPINGS: u64 = 6;
/// Words of tables lie here and there: at the beginning, across a border of chunks, at the very end. First an index, then rows.
const PLACES: [usize; 4] = [0, CHUNK_WORDS - 200, 5 * CHUNK_WORDS + 77, abi::CHUNKS * CHUNK_WORDS - 400];
const INDEX: u64 = 100;
const ROWS: u64 = 300;
const WORLDS: u64 = 800;
const SAMPLES: u64 = 8;

/// Makes things of which some are as they should be.
struct Forger {
    random: Random,
    /// One in so many is forged.
    one_in: u64,
}

impl Forger {
    fn forges(&mut self) -> bool {
        self.random.below(self.one_in) == 0
    }

    /// A number that something might stumble over.
    fn odd(&mut self) -> u64 {
        let near = self.random.below(64).wrapping_sub(32);
        let around =
            self.random.pick(&[0_u64, 1 << 15, 1 << 16, 1 << 31, 1 << 32, 1 << 47, 1 << 62, 1 << 63]);
        match self.random.below(4) {
            0 => self.random.next(),
            1 => around.wrapping_add(near),
            2 => STACK + self.random.below(PAGES * PAGE + 64),
            _ => self.random.below(4096),
        }
    }

    /// An address to return to, or to find a frame at.
    fn word(&mut self) -> u64 {
        match self.random.below(100) {
            _ if self.forges() => self.odd(),
            0 => STACK + self.random.below(PAGES * PAGE / 8) * 8,
            _ => CODE + self.random.below(MAPPINGS * 0x1000),
        }
    }

    fn row(&mut self) -> u64 {
        if self.forges() {
            let form = self.random.below(9);
            let cfa = self.random.pick(&[0, 30, 300, 0xff_ffff, 0xff_fffe, 0x80_0000, 0x7f_ffff]);
            let bp = self.random.pick(&[1, 0x8000, 0x8000, 0x7fff]);
            let within = self.random.below(0x1_0000);
            return if form == 8 { self.odd() } else { within | form << 16 | cfa << 24 | bp << 48 };
        }
        let form = if self.random.below(50) == 0 { 2 + self.random.below(2) } else { 1 };
        self.random.below(512)
            | form << 16
            | (1 + self.random.below(4)) << 24
            | self.random.pick(&[0, 0xfffe, 0x8000]) << 48
    }

    /// An entry of an index: where rows are, and how many.
    fn entry(&mut self) -> u64 {
        if self.forges() {
            let at = self.random.pick(&PLACES) as u64 + self.random.below(INDEX + ROWS + 8);
            return self.random.pick(&[0, 127, 128, 1000, 0xffff_ffff]) << 32 | at & 0xffff_ffff;
        }
        let at = self.random.pick(&PLACES) as u64 + INDEX + self.random.below(ROWS - 20);
        (1 + self.random.below(20)) << 32 | at
    }

    fn table(&mut self) -> abi::Table {
        let mut table = abi::Table {
            start: CODE,
            pages: 64,
            index: self.random.pick(&PLACES) as u32 + self.random.below(36) as u32,
        };
        if self.forges() {
            table.start = self.random.pick(&[0, CODE + 0x200, CODE - 1, u64::MAX - 100]);
        }
        if self.forges() {
            table.pages = self.random.pick(&[0, 1, 8, 1 << 20, u32::MAX]);
        }
        if self.forges() {
            table.index = self.odd() as u32;
        }
        table
    }

    fn code(&mut self, start: u64) -> abi::Code {
        let how = self.random.pick(&[1, 1, 1, 3]);
        let table = self.random.below(6) as u32;
        let mut code = abi::Code { start, end: start + 0x1000, bias: 0, root: 0, table, how };
        if self.forges() {
            (code.start, code.end) =
                self.random.pick(&[(start, 0), (0, start), (start, u64::MAX), (start + 8, start)]);
        }
        if self.forges() {
            code.bias = self.random.pick(&[CODE, 0x1000, u64::MAX]);
        }
        if self.forges() {
            code.root = CODE + self.random.below(64);
            code.how = self.random.pick(&[0, 2, 2, 4, 7, u32::MAX]);
        }
        if self.forges() {
            code.table = self.random.pick(&[6, 4095, 4096, u32::MAX]);
        }
        code
    }

    /// Tables and mappings.
    fn put_world(&mut self, machine: &mut Machine) {
        machine.clear();
        for place in PLACES {
            let mut word = |at| if at < INDEX { self.entry() } else { self.row() };
            machine.put_words(place, &(0..INDEX + ROWS).map(&mut word).collect::<Vec<_>>());
        }
        for _ in 0..6 {
            machine.put_table(&self.table());
        }
        let codes: Vec<_> = (0..MAPPINGS).map(|number| self.code(CODE + number * 0x1000)).collect();
        for at in [0, CODES as u64 - MAPPINGS] {
            machine.put_entries(at, &codes);
        }
        let mut space = abi::Space { as_of_ns: 0, first: 0, count: MAPPINGS as u32, version: 1, is_deep: 0 };
        if self.forges() {
            space.version = self.random.pick(&[0, 2, 0x1_0001, u32::MAX]);
        }
        if self.forges() {
            space.first = self.random.pick(&[CODES as u32 - 6, CODES as u32, u32::MAX, 77]);
        }
        if self.forges() {
            space.count = self.random.pick(&[0, 1, 5, 4096, u32::MAX]);
        }
        machine.put_raw_space(&space);
    }

    fn put_memory(&mut self, machine: &mut Machine) {
        machine.forget_memory();
        let words: Vec<u64> = (0..PAGES * PAGE / 8).map(|_| self.word()).collect();
        let (below, above) = abi::words(&words).split_at((2 * PAGE) as usize);
        machine.put_memory(STACK, below);
        // A page in the middle is missing, or there are two.
        let gap = if self.forges() { PAGE } else { 0 };
        machine.put_memory(STACK + 2 * PAGE + gap, above);
    }

    fn registers(&mut self) -> From {
        let sp = if self.forges() { self.odd() } else { STACK + self.random.below(PAGES * PAGE / 16) * 8 };
        let bp = if self.forges() { self.odd() } else { sp.wrapping_add(self.random.below(40) * 8) };
        let ip = if self.forges() { self.odd() } else { CODE + self.random.below(MAPPINGS * 0x1000) };
        From { ip, sp, bp }
    }
}

#[test]
fn forged_tables_and_stacks_do_no_harm() {
    let mut machine = Machine::new();
    let mut endings = BTreeMap::new();
    let mut deepest = 0;
    for world in 0..WORLDS {
        let one_in = [2, 8, 50, 400][world as usize % 4];
        let mut forger = Forger { random: Random::new(world), one_in };
        forger.put_world(&mut machine);
        for _ in 0..SAMPLES {
            forger.put_memory(&mut machine);
            let how = How {
                by_frame_pointers: forger.random.below(16) == 0,
                copies_too: forger.random.below(4) == 0,
                from_outside: forger.random.below(3) == 0,
                kernel_frames: forger.random.pick(&[0, 1, 126, 127]),
                copy_bytes: Some(forger.random.pick(&[64, abi::COPY_BYTES, abi::MAX_COPY_BYTES])),
                ..How::default()
            };
            let taken = machine.sample(forger.registers(), how);
            let sample = taken.sample();
            let frames = sample.kernel.len() + sample.user.len();
            assert!(sample.user.len() <= 2 * HALF_OF_WALK * 8);
            assert!(taken.event.len() >= size_of::<abi::Sample>() + frames + sample.stack.len());
            assert_eq!(sample.kernel.len(), usize::from(how.kernel_frames) * 8);
            deepest = deepest.max(taken.frames().len());
            if sample.walk.is_some() || taken.ending() != "too deep" {
                *endings.entry(taken.ending()).or_insert(0) += 1;
            }
        }
    }
    println!("at most {deepest} frames; {endings:?}");
    // The forger is no good if all walks end at once, or all in the same way.
    assert!(endings.len() >= crate::WALKS.len() - 2, "{endings:?}");
    assert!(deepest > 100, "{deepest}");
}
