#![forbid(unsafe_code)]
//! All rows of a file in the order of their addresses: what the table is made from that a program in the kernel searches.

use std::ops::Range;

use gimli::UnwindContext;

use super::code::CodeAround;
use super::entries::Entries;
use super::module::UnwindModule;
use super::simple_row::SimpleRow;

/// Rows of one file at most: three times those of libtorch. A forged file must not cost memory.
const MAX_ROWS: usize = 8 << 20;

/// The rows of one file.
#[derive(Clone, Default, Debug)]
pub struct RowTable {
    /// Each holds from its address on up to the next one's. The first and the last are [`SimpleRow::Uncovered`].
    rows: Vec<(u64, SimpleRow)>,
    /// Rows that the simple form cannot say.
    too_complex: usize,
}

impl RowTable {
    /// Stated addresses and rows.
    pub fn rows(&self) -> &[(u64, SimpleRow)] {
        &self.rows
    }

    /// How many of them the simple form cannot say.
    pub fn too_complex(&self) -> usize {
        self.too_complex
    }

    /// The row of the code byte at a stated address.
    pub fn find(&self, address: u64) -> SimpleRow {
        let at = self.rows.partition_point(|&(start, _)| start <= address);
        at.checked_sub(1).map_or(SimpleRow::Uncovered, |at| self.rows[at].1)
    }

    /// Appends a row; what it covers must lie behind everything before.
    fn push(&mut self, range: Range<u64>, row: SimpleRow) {
        let from = self.rows.last().map_or(0, |&(start, _)| start);
        if range.is_empty() || range.start < from || self.rows.len() >= MAX_ROWS {
            return;
        }
        self.too_complex += usize::from(row == SimpleRow::TooComplex);
        if self.rows.last().is_some_and(|&(start, _)| start == range.start) {
            self.rows.pop();
        }
        if self.rows.last().is_none_or(|&(_, last)| last != row) {
            self.rows.push((range.start, row));
        }
        self.rows.push((range.end, SimpleRow::Uncovered));
    }

    /// Gives a range a row of its own, whatever was there.
    fn set(&mut self, range: Range<u64>, row: SimpleRow) {
        if range.is_empty() {
            return;
        }
        let behind = self.find(range.end);
        let first = self.rows.partition_point(|&(start, _)| start < range.start);
        let last = self.rows.partition_point(|&(start, _)| start <= range.end);
        self.rows.splice(first..last, [(range.start, row), (range.end, behind)]);
    }
}

impl UnwindModule {
    /// Compiles all its rows. Takes some 100 ns a row.
    pub fn row_table(&self) -> RowTable {
        let sections = self.sections();
        let mut table = RowTable::default();
        let mut context = UnwindContext::new();
        let mut covered = 0;
        for (entries, start, offset) in in_order(sections.both()) {
            if start < covered {
                continue;
            }
            let end =
                entries.simple_rows(offset, &mut context, &mut |start, end, row| table.push(start..end, row));
            covered = end.unwrap_or(covered).max(covered);
        }
        let entry = self.entry_function();
        table.set(entry.clone(), SimpleRow::First);
        for range in self.signal_returns() {
            // A signal handler returns there, so no call stands before it: the byte before is looked up.
            table.set(range.start.saturating_sub(1)..range.end, SimpleRow::SignalFrame);
        }
        table
    }
}

/// The entries of both sections by address; of two that begin at the same one the first section's.
fn in_order(sections: [&Entries; 2]) -> impl Iterator<Item = (&Entries, u64, u32)> {
    let [mut first, mut second] = sections
        .map(|entries| entries.all().iter().map(move |&(start, offset)| (entries, start, offset)).peekable());
    std::iter::from_fn(move || match (first.peek(), second.peek()) {
        (Some(one), Some(other)) if other.1 < one.1 => second.next(),
        (Some(_), _) => first.next(),
        (None, _) => second.next(),
    })
}

/// Where code that returns from a signal handler stands in these bytes.
pub(super) fn signal_returns(code: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let forms = CodeAround::SIGNAL_RETURNS;
    forms.into_iter().flat_map(move |form| {
        let at = code.windows(form.len()).enumerate().filter(move |(_, bytes)| *bytes == form);
        at.map(move |(at, _)| at..at + form.len())
    })
}
