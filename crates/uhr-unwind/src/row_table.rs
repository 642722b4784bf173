#![forbid(unsafe_code)]
//! All rows of a file in the order of their addresses: what the table is made from that a program in the kernel searches.

use std::iter::Peekable;
use std::ops::Range;

use super::entries::Entries;
use super::module::UnwindModule;
use super::rules::Context;
use super::simple_row::SimpleRow;

/// Rows of one file at most: three times those of libtorch. A forged file must not take forever.
const MAX_ROWS: usize = 8 << 20;

impl UnwindModule {
    /// Hands out all its rows, some 15 million a second: stated addresses in rising order, each with the row that holds from
    /// there up to the next. Those of Go's linker are left out: its code is walked by frame pointers.
    pub fn simple_rows(&self, each: &mut dyn FnMut(u64, SimpleRow)) {
        let sections = self.sections();
        // What is known of some code counts more than what is written of it.
        let mut known = self.known_rows().to_vec();
        known.push((self.entry_function(), SimpleRow::First));
        known.retain(|(code, _)| !code.is_empty());
        known.sort_by_key(|(code, _)| code.start);
        let mut order = Order {
            each,
            last: SimpleRow::Uncovered,
            covered: 0,
            known: known.into_iter().peekable(),
            count: 0,
        };
        let mut context = Context::new_in();
        let mut covered = 0;
        let nothing = Entries::default();
        let debug_frame = if self.is_go() { &nothing } else { &sections.debug_frame };
        for (entries, start, offset) in in_order([&sections.eh_frame, debug_frame]) {
            if start < covered {
                continue;
            }
            let end = entries.simple_rows(offset, covered, &mut context, &mut |start, end, row| {
                order.cover(start..end, row)
            });
            covered = end.unwrap_or(covered).max(covered);
        }
        order.finish();
    }
}

/// Puts rows in order, with what is known of some code in the place of what is written of it.
struct Order<'a, Known: Iterator<Item = (Range<u64>, SimpleRow)>> {
    each: &'a mut dyn FnMut(u64, SimpleRow),
    last: SimpleRow,
    /// Everything below has been handed out.
    covered: u64,
    known: Peekable<Known>,
    count: usize,
}

impl<Known: Iterator<Item = (Range<u64>, SimpleRow)>> Order<'_, Known> {
    fn cover(&mut self, range: Range<u64>, row: SimpleRow) {
        self.fill(range.start, SimpleRow::Uncovered);
        self.fill(range.end, row);
    }

    /// Hands out `row` for all that is not covered yet, up to `end`.
    fn fill(&mut self, end: u64, row: SimpleRow) {
        while let Some((code, own)) = self.known.next_if(|(code, _)| code.start < end) {
            if code.start > self.covered {
                self.hand_out(self.covered, row);
            }
            if code.end > self.covered {
                self.hand_out(code.start.max(self.covered), own);
                self.covered = code.end;
            }
        }
        if end > self.covered {
            self.hand_out(self.covered, row);
            self.covered = end;
        }
    }

    fn hand_out(&mut self, address: u64, row: SimpleRow) {
        if row != self.last && self.count < MAX_ROWS {
            (self.each)(address, row);
            self.last = row;
            self.count += 1;
        }
    }

    fn finish(mut self) {
        self.fill(u64::MAX, SimpleRow::Uncovered);
    }
}

/// The entries of both sections by address; of two that begin at the same one the first section's.
fn in_order(sections: [&Entries; 2]) -> impl Iterator<Item = (&Entries, u64, u32)> {
    let [mut first, mut second] =
        sections.map(|entries| entries.all().map(move |(start, offset)| (entries, start, offset)).peekable());
    std::iter::from_fn(move || match (first.peek(), second.peek()) {
        (Some(one), Some(other)) if other.1 < one.1 => second.next(),
        (Some(_), _) => first.next(),
        (None, _) => second.next(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(
        known: Vec<(Range<u64>, SimpleRow)>,
        rows: &[(Range<u64>, SimpleRow)],
    ) -> Vec<(u64, SimpleRow)> {
        let mut out = Vec::new();
        let mut each = |address, row| out.push((address, row));
        let known = known.into_iter().peekable();
        let mut order = Order { each: &mut each, last: SimpleRow::Uncovered, covered: 0, known, count: 0 };
        rows.iter().for_each(|(range, row)| order.cover(range.clone(), *row));
        order.finish();
        out
    }

    const SP: SimpleRow = SimpleRow::FromSp { cfa: 8, bp: crate::SavedBp::Same };

    #[test]
    fn what_is_known_comes_first_and_gaps_are_uncovered() {
        let (none, first) = (SimpleRow::Uncovered, SimpleRow::First);
        assert_eq!(
            ordered(vec![], &[(10..20, SP), (20..30, SP), (40..50, SP)]),
            [(10, SP), (30, none), (40, SP), (50, none)]
        );
        assert_eq!(
            ordered(vec![(15..18, first)], &[(10..20, SP)]),
            [(10, SP), (15, first), (18, SP), (20, none)]
        );
        assert_eq!(ordered(vec![(5..12, first)], &[(10..20, SP)]), [(5, first), (12, SP), (20, none)]);
        assert_eq!(
            ordered(vec![(60..70, first)], &[(10..20, SP)]),
            [(10, SP), (20, none), (60, first), (70, none)]
        );
        // Forged: overlapping and falling addresses.
        let forged = ordered(vec![(15..30, first), (16..18, SP)], &[(10..20, SP), (5..12, SP), (8..25, SP)]);
        assert!(forged.is_sorted_by(|one, next| one.0 < next.0), "{forged:?}");
    }
}
