//! A table of rows as the walker in the kernel searches it (`bpf/unwind_rows.h`): a word a row, and those of each page of
//! code together.

use std::borrow::Cow;

use uhr_unwind::{Aarch64Frame, Aarch64Saved, SavedBp, SimpleRow};

use crate::abi;

/// Code of so many bytes is one page.
const PAGE_BYTES: u64 = 1 << abi::PAGE_BITS;
/// What a table covers at most: forged addresses must not cost memory. Four times the largest programs.
const MAX_PAGES: u64 = (1 << 30) / PAGE_BYTES;

/// The number of a word, and the words from there on.
type Run<'a> = (usize, Cow<'a, [u64]>);

/// The rows of one file as the walker takes them.
#[derive(Debug, Default)]
pub struct PackedRows {
    /// The stated address of the first page.
    start: u64,
    /// All rows, those of a page in one block: a large file has 20 MB of them, and one vector would need twice that as it grows.
    blocks: Vec<Vec<u64>>,
    /// How many each page has.
    counts: Vec<u8>,
    /// Those of the present page.
    page: Vec<u64>,
    /// The row that holds now.
    current: u64,
}

/// Words of a block.
const BLOCK_WORDS: usize = 1 << 16;

impl PackedRows {
    /// Of rows that come in the order of their addresses, each valid up to the next, the last one [`SimpleRow::Uncovered`]. What
    /// lies too far apart is left out.
    pub fn new(rows: impl FnOnce(&mut dyn FnMut(u64, SimpleRow))) -> Self {
        let mut packed = Self { current: NONE, ..Self::default() };
        rows(&mut |address, row| packed.push(address, row));
        packed.end_page();
        packed
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Bytes that they take where the walker looks, at most.
    pub fn bytes(&self) -> usize {
        self.most_words() as usize * size_of::<u64>()
    }

    /// How many words a table of them takes at most: the rows of a page lie in one chunk, so some words stay empty at the end
    /// of each.
    pub(crate) fn most_words(&self) -> u32 {
        let words = self.counts.len() + self.blocks.iter().map(Vec::len).sum::<usize>();
        (words + (1 + words / abi::CHUNK_WORDS) * abi::ROWS_OF_PAGE) as u32
    }

    /// A table of them that begins at the word `start`: as the walker is told of it, and its words.
    pub(crate) fn placed(&self, start: u32) -> (abi::Table, Vec<Run<'_>>) {
        let mut next = start as usize + self.counts.len();
        let mut index = Vec::with_capacity(self.counts.len());
        let mut runs = Vec::new();
        let mut counts = self.counts.iter().map(|&count| usize::from(count));
        for block in &self.blocks {
            let (mut run_at, mut begin, mut end) = (next, 0, 0);
            while end < block.len()
                && let Some(count) = counts.next()
            {
                let rest = abi::CHUNK_WORDS - next % abi::CHUNK_WORDS;
                if count > rest {
                    runs.push((run_at, Cow::from(&block[begin..end])));
                    next += rest;
                    (run_at, begin) = (next, end);
                }
                index.push((count as u64) << 32 | next as u64);
                (next, end) = (next + count, end + count);
            }
            runs.push((run_at, Cow::from(&block[begin..end])));
        }
        let table = abi::Table { start: self.start, pages: self.counts.len() as u32, index: start };
        runs.push((start as usize, Cow::from(index)));
        (table, runs)
    }

    fn push(&mut self, address: u64, row: SimpleRow) {
        let word = word_of(row);
        if self.is_empty() && self.page.is_empty() {
            if word == NONE {
                return;
            }
            self.start = address & !(PAGE_BYTES - 1);
            self.page.push(NONE);
        }
        let Some(page) = address.checked_sub(self.start).map(|distance| distance / PAGE_BYTES) else {
            return;
        };
        if page >= MAX_PAGES {
            return;
        }
        while (self.counts.len() as u64) < page {
            self.end_page();
            self.page.push(self.current);
        }
        let within = address % PAGE_BYTES;
        if within == 0 {
            self.page.clear();
        }
        self.page.push(word | within);
        self.current = word;
    }

    fn end_page(&mut self) {
        // Real code does not come near that.
        if self.page.len() > abi::ROWS_OF_PAGE {
            self.page.clear();
            self.page.push(abi::ROW_COMPLEX << 16);
        }
        let Ok(count) = u8::try_from(self.page.len()) else { return };
        if count == 0 {
            return;
        }
        match self.blocks.last_mut().filter(|block| block.len() + self.page.len() <= BLOCK_WORDS) {
            Some(block) => block.append(&mut self.page),
            None => {
                let mut block = Vec::with_capacity(if self.blocks.is_empty() { 0 } else { BLOCK_WORDS });
                block.append(&mut self.page);
                self.blocks.push(block);
            }
        }
        self.counts.push(count);
    }
}

const NONE: u64 = abi::ROW_NONE << 16;

/// A row without its address.
fn word_of(row: SimpleRow) -> u64 {
    try_word_of(row).unwrap_or(abi::ROW_COMPLEX << 16)
}

fn try_word_of(row: SimpleRow) -> Option<u64> {
    let (form, cfa, bp) = match row {
        SimpleRow::Uncovered => (abi::ROW_NONE, 0, 0),
        SimpleRow::TooComplex => (abi::ROW_COMPLEX, 0, 0),
        SimpleRow::First => (abi::ROW_FIRST, 0, 0),
        SimpleRow::SignalFrame => (abi::ROW_SIGNAL, 0, 0),
        SimpleRow::FromSp { cfa, bp } => (abi::ROW_SP, words(cfa)?, place_of(bp)?),
        SimpleRow::FromBp { cfa, bp } => (abi::ROW_BP, words(cfa)?, place_of(bp)?),
        SimpleRow::SavedAtBp { cfa, bp } => (abi::ROW_SAVED, words(cfa)?, i16::try_from(words(bp)?).ok()?),
        SimpleRow::Plt { pushed_at } => (abi::ROW_PLT, i32::from(pushed_at), 0),
        SimpleRow::Aarch64(frame) => return word_of_aarch64(frame),
    };
    let cfa = (-(1 << 23)..1 << 23).contains(&cfa).then_some(cfa as u32 & 0xff_ffff)?;
    Some(form << 16 | u64::from(cfa) << 24 | u64::from(bp as u16) << 48)
}

fn word_of_aarch64(frame: Aarch64Frame) -> Option<u64> {
    let (saved, at) = match frame.saved {
        Aarch64Saved::Nothing => (0, 0),
        Aarch64Saved::ReturnAddress(at) => (abi::ROW_A64_RETURN_ADDRESS, at),
        Aarch64Saved::Fp(at) => (abi::ROW_A64_FP, at),
        Aarch64Saved::Both(at) => (abi::ROW_A64_RETURN_ADDRESS | abi::ROW_A64_FP, at),
    };
    let form = abi::ROW_A64
        | saved
        | if frame.from_fp { abi::ROW_A64_FROM_FP } else { 0 }
        | if frame.is_signed { abi::ROW_A64_SIGNED } else { 0 };
    let field = |bytes: u32| (bytes.is_multiple_of(8) && bytes < 8 << 20).then_some(u64::from(bytes / 8));
    Some(form << 16 | field(frame.cfa)? << 24 | field(at)? << 44)
}

fn place_of(bp: SavedBp) -> Option<i16> {
    match bp {
        SavedBp::Same => Some(0),
        SavedBp::Lost => Some(abi::BP_NOWHERE),
        // 0 is taken; nothing is saved at the CFA itself, which is the caller's.
        SavedBp::AtCfa(offset) => {
            i16::try_from(words(offset)?).ok().filter(|&at| at != 0 && at != abi::BP_NOWHERE)
        }
    }
}

/// Bytes in words of 8.
fn words(bytes: i32) -> Option<i32> {
    (bytes % 8 == 0).then_some(bytes / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SP: SimpleRow = SimpleRow::FromSp { cfa: 16, bp: SavedBp::AtCfa(-16) };
    const SP_WORD: u64 = 0xfffe_0000_0201_0000;

    #[test]
    fn words_of_rows() {
        assert_eq!(word_of(SP), SP_WORD);
        assert_eq!(word_of(SimpleRow::SavedAtBp { cfa: -8, bp: 0 }), 0x0000_ffff_ff03_0000);
        assert_eq!(word_of(SimpleRow::FromBp { cfa: 12, bp: SavedBp::Same }), 7 << 16, "not whole words");
        assert_eq!(word_of(SimpleRow::FromSp { cfa: i32::MAX & !7, bp: SavedBp::Same }), 7 << 16);
        assert_eq!(word_of(SimpleRow::FromSp { cfa: 8, bp: SavedBp::Lost }) >> 48, 0x8000);
    }

    #[test]
    fn words_of_aarch64_rows() {
        let word = |from_fp, cfa, saved, is_signed| {
            word_of(SimpleRow::Aarch64(Aarch64Frame { from_fp, cfa, saved, is_signed }))
        };
        assert_eq!(word(false, 0, Aarch64Saved::Nothing, false), 0x08_0000);
        assert_eq!(word(true, 16, Aarch64Saved::Both(8), true), 0x0000_1000_02f8_0000);
        assert_eq!(word(false, 504_640, Aarch64Saved::ReturnAddress(504_568), false), 0x0f65_f0f6_6828_0000);
        assert_eq!(word(false, 16, Aarch64Saved::Fp(16), false), 0x0000_2000_0248_0000);
        assert_eq!(word(false, 8 << 20, Aarch64Saved::Nothing, false), abi::ROW_COMPLEX << 16);
        assert_eq!(word(false, 20, Aarch64Saved::Nothing, false), abi::ROW_COMPLEX << 16);
    }

    impl PackedRows {
        /// The rows of each page.
        fn pages(&self) -> Vec<Vec<u64>> {
            let mut rows = self.blocks.concat().into_iter();
            self.counts.iter().map(|&count| rows.by_ref().take(usize::from(count)).collect()).collect()
        }
    }

    fn packed(rows: &[(u64, SimpleRow)]) -> PackedRows {
        PackedRows::new(|each| rows.iter().for_each(|&(address, row)| each(address, row)))
    }

    #[test]
    fn each_page_begins_with_the_row_that_holds_there() {
        let rows = [(0x1010, SP), (0x1200, SimpleRow::First), (0x1210, SP), (0x1610, SimpleRow::Uncovered)];
        let pages = packed(&rows);
        assert_eq!(pages.start, 0x1000);
        let [first, second] = [vec![0, SP_WORD | 0x10], vec![6 << 16, SP_WORD | 0x10]];
        assert_eq!(pages.pages(), [first, second, vec![SP_WORD], vec![SP_WORD, 0x10]]);
        assert!(packed(&[]).is_empty());
        let far = packed(&[(0, SP), (u64::MAX, SimpleRow::Uncovered)]);
        assert_eq!(far.pages(), [vec![SP_WORD]]);
    }

    #[test]
    fn pages_go_on_from_block_to_block() {
        let row = |at: u64| (at * 8, if at.is_multiple_of(2) { SP } else { SimpleRow::First });
        let end = BLOCK_WORDS as u64 * 3 + 17;
        let pages = packed(&(0..end).map(row).chain([(end * 8, SimpleRow::Uncovered)]).collect::<Vec<_>>());
        assert_eq!(pages.blocks.len(), 4);
        let seen: Vec<u64> = pages.pages().into_iter().flatten().map(|word| word & 0xff_ffff).collect();
        let expected = (0..end).map(|at| ([1, 6][at as usize % 2] << 16) | (at * 8 % 512));
        assert!(seen.into_iter().eq(expected.chain([end * 8 % 512])));
    }

    #[test]
    fn a_page_with_too_many_rows_is_too_complex() {
        let row = |at| (at, if at % 2 == 0 { SP } else { SimpleRow::First });
        let rows: Vec<_> = (0..0x180).map(row).chain([(0x410, SimpleRow::Uncovered)]).collect();
        let pages = packed(&rows);
        let words: Vec<u64> = pages.pages().into_iter().flatten().collect();
        assert_eq!(words, [7 << 16, 6 << 16, 6 << 16, 0x10]);
    }
}
