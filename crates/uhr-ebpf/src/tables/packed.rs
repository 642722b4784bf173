//! A table of rows as the walker in the kernel searches it (`bpf/unwind_rows.h`): a word a row, and those of each page of
//! code together.

use std::borrow::Cow;
use std::ops::Range;

use uhr_unwind::{SavedBp, SimpleRow};

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
    /// All rows.
    words: Vec<u64>,
    /// Where those of each page end.
    ends: Vec<u32>,
    /// Where those of the present page begin.
    begin: usize,
    /// The row that holds now.
    current: u64,
}

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
        self.ends.is_empty()
    }

    /// How many words a table of them takes at most: the rows of a page lie in one chunk, so some words stay empty at the end
    /// of each.
    pub(crate) fn most_words(&self) -> u32 {
        let words = self.ends.len() + self.words.len();
        (words + (1 + words / abi::CHUNK_WORDS) * abi::ROWS_OF_PAGE) as u32
    }

    /// A table of them that begins at the word `start`: as the walker is told of it, and its words.
    pub(crate) fn placed(&self, start: u32) -> (abi::Table, Vec<Run<'_>>) {
        let (mut next, mut begin) = (start as usize + self.ends.len(), 0);
        let mut index = Vec::with_capacity(self.ends.len());
        let mut runs: Vec<(usize, Range<usize>)> = Vec::new();
        for &end in &self.ends {
            let rows = begin..end as usize;
            let rest = abi::CHUNK_WORDS - next % abi::CHUNK_WORDS;
            next += if rows.len() > rest { rest } else { 0 };
            match runs.last_mut() {
                Some((at, run)) if *at + run.len() == next => run.end = rows.end,
                _ => runs.push((next, rows.clone())),
            }
            index.push((rows.len() as u64) << 32 | next as u64);
            next += rows.len();
            begin = rows.end;
        }
        let table = abi::Table { start: self.start, pages: self.ends.len() as u32, index: start };
        let rows = runs.into_iter().map(|(at, run)| (at, Cow::from(&self.words[run])));
        (table, rows.chain([(start as usize, Cow::from(index))]).collect())
    }

    fn push(&mut self, address: u64, row: SimpleRow) {
        let word = word_of(row);
        if self.words.is_empty() {
            if word == NONE {
                return;
            }
            self.start = address & !(PAGE_BYTES - 1);
            self.words.push(NONE);
        }
        let Some(page) = address.checked_sub(self.start).map(|distance| distance / PAGE_BYTES) else {
            return;
        };
        if page >= MAX_PAGES {
            return;
        }
        while (self.ends.len() as u64) < page {
            self.end_page();
            self.words.push(self.current);
        }
        let within = address % PAGE_BYTES;
        if within == 0 {
            self.words.truncate(self.begin);
        }
        self.words.push(word | within);
        self.current = word;
    }

    fn end_page(&mut self) {
        let rows = self.words.len() - self.begin;
        if rows == 0 {
            return;
        }
        // Real code does not come near that.
        if rows > abi::ROWS_OF_PAGE {
            self.words.truncate(self.begin);
            self.words.push(abi::ROW_COMPLEX << 16);
        }
        self.ends.push(self.words.len() as u32);
        self.begin = self.words.len();
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
    };
    let cfa = (-(1 << 23)..1 << 23).contains(&cfa).then_some(cfa as u32 & 0xff_ffff)?;
    Some(form << 16 | u64::from(cfa) << 24 | u64::from(bp as u16) << 48)
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

    fn packed(rows: &[(u64, SimpleRow)]) -> PackedRows {
        PackedRows::new(|each| rows.iter().for_each(|&(address, row)| each(address, row)))
    }

    #[test]
    fn each_page_begins_with_the_row_that_holds_there() {
        let rows = [(0x1010, SP), (0x1200, SimpleRow::First), (0x1210, SP), (0x1610, SimpleRow::Uncovered)];
        let pages = packed(&rows);
        assert_eq!(pages.start, 0x1000);
        assert_eq!(pages.words, [0, SP_WORD | 0x10, 6 << 16, SP_WORD | 0x10, SP_WORD, SP_WORD, 0x10]);
        assert_eq!(pages.ends, [2, 4, 5, 7]);
        assert!(packed(&[]).is_empty());
        let far = packed(&[(0, SP), (u64::MAX, SimpleRow::Uncovered)]);
        assert_eq!(far.words, [SP_WORD]);
    }

    #[test]
    fn a_page_with_too_many_rows_is_too_complex() {
        let row = |at| (at, if at % 2 == 0 { SP } else { SimpleRow::First });
        let rows: Vec<_> = (0..0x180).map(row).chain([(0x410, SimpleRow::Uncovered)]).collect();
        let pages = packed(&rows);
        assert_eq!(pages.words, [7 << 16, 6 << 16, 6 << 16, 0x10]);
    }
}
