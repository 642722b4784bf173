//! A table of rows as the walker in the kernel searches it (`bpf/unwind_rows.h`): a word a row, and those of each page of
//! code together.

use uhr_unwind::{SavedBp, SimpleRow};

use crate::abi;

/// Code of so many bytes is one page.
const PAGE_BYTES: u64 = 1 << abi::PAGE_BITS;
/// What a table covers at most: forged addresses must not cost memory. Ten times the largest programs.
const MAX_PAGES: u64 = (4 << 30) / PAGE_BYTES;

/// The rows of one file, by page.
pub(super) struct Pages {
    /// The stated address of the first page.
    pub(super) start: u64,
    /// All rows.
    pub(super) words: Vec<u64>,
    /// Where those of each page end.
    pub(super) ends: Vec<u32>,
}

impl Pages {
    /// `rows` in the order of their addresses, each valid up to the next. `None`: there is none, or they lie too far apart.
    pub(super) fn new(rows: &[(u64, SimpleRow)]) -> Option<Self> {
        let covered = |row: &&(u64, SimpleRow)| row.1 != SimpleRow::Uncovered;
        let start = rows.iter().find(covered)?.0 & !(PAGE_BYTES - 1);
        let end = rows.last()?.0;
        if end <= start || (end - start) / PAGE_BYTES >= MAX_PAGES {
            return None;
        }
        let mut pages = Self { start, words: Vec::with_capacity(rows.len()), ends: Vec::new() };
        let mut current = abi::ROW_NONE << 16;
        let mut rows = rows.iter().skip_while(|row| !covered(row)).peekable();
        for number in 0..(end - start).div_ceil(PAGE_BYTES) {
            let first = pages.words.len();
            let page = start + number * PAGE_BYTES;
            pages.words.push(current);
            while let Some(&(address, row)) = rows.next_if(|row| row.0 < page + PAGE_BYTES) {
                current = word_of(row);
                if address == page {
                    pages.words.truncate(first);
                }
                pages.words.push(current | (address - page));
            }
            // Real code does not come near that.
            if pages.words.len() - first > abi::ROWS_OF_PAGE {
                pages.words.truncate(first);
                pages.words.push(abi::ROW_COMPLEX << 16);
            }
            pages.ends.push(pages.words.len() as u32);
        }
        Some(pages)
    }
}

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

    #[test]
    fn each_page_begins_with_the_row_that_holds_there() {
        let rows = [
            (0, SimpleRow::Uncovered),
            (0x1010, SP),
            (0x1200, SimpleRow::First),
            (0x1210, SP),
            (0x1600, SimpleRow::Uncovered),
        ];
        let pages = Pages::new(&rows).unwrap();
        assert_eq!(pages.start, 0x1000);
        assert_eq!(pages.ends, [2, 4, 5]);
        assert_eq!(pages.words, [0, SP_WORD | 0x10, 6 << 16, SP_WORD | 0x10, SP_WORD]);
        assert!(Pages::new(&rows[..1]).is_none());
        assert!(Pages::new(&[(0, SP), (u64::MAX, SimpleRow::Uncovered)]).is_none());
    }

    #[test]
    fn a_page_with_too_many_rows_is_too_complex() {
        let row = |at| (at, if at % 2 == 0 { SP } else { SimpleRow::First });
        let rows: Vec<_> = (0..0x180).map(row).chain([(0x600, SimpleRow::Uncovered)]).collect();
        let pages = Pages::new(&rows).unwrap();
        assert_eq!(pages.words, [7 << 16, 6 << 16, 6 << 16]);
    }
}
