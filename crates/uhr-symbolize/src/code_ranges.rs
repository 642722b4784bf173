//! Code of a runtime by address, where newer code replaces older code at the same place.

use std::collections::BTreeMap;

/// Which piece of code is at an address. Pieces are named by the caller's row numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct CodeRanges {
    /// Start to end and row, without overlap.
    ranges: BTreeMap<u64, (u64, usize)>,
}

impl CodeRanges {
    /// Puts `row` at `start..end`. What was there before loses these bytes and keeps the rest.
    pub(crate) fn insert(&mut self, start: u64, end: u64, row: usize) {
        if start >= end {
            return;
        }
        while let Some((&old_start, &(old_end, old_row))) = self.ranges.range(..end).next_back() {
            if old_end <= start {
                break;
            }
            self.ranges.remove(&old_start);
            if old_end > end {
                self.ranges.insert(end, (old_end, old_row));
            }
            if old_start < start {
                self.ranges.insert(old_start, (start, old_row));
            }
        }
        self.ranges.insert(start, (end, row));
    }

    /// The row at an address.
    pub(crate) fn find(&self, address: u64) -> Option<usize> {
        let (_, &(end, row)) = self.ranges.range(..=address).next_back()?;
        (address < end).then_some(row)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against the plainest description: one cell an address, written in order.
        #[test]
        fn the_last_writer_wins(writes in proptest::collection::vec((0u64..64, 0u64..20), 0..40)) {
            let mut cells = [None; 100];
            let mut ranges = CodeRanges::default();
            for (row, &(start, size)) in writes.iter().enumerate() {
                ranges.insert(start, start + size, row);
                cells[start as usize..(start + size) as usize].fill(Some(row));
            }
            for (address, cell) in cells.iter().enumerate() {
                prop_assert_eq!(ranges.find(address as u64), *cell);
            }
        }
    }
}
