//! Which of the shown rows each cell counts for, so that one more pass over the cells gives every row's share block by
//! block.

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use uhr_model::{Metric, StackEnding};

use crate::cells::Cells;
use crate::group::FrameKeys;
use crate::profile::Profile;
use crate::rollup::{Grouped, Sums, parts};
use crate::select::Selection;
use crate::statistics::{Blocks, Interval};

/// Rows that are looked at together: one bit each.
pub(crate) const ROWS_AT_ONCE: usize = 64;

/// For up to [`ROWS_AT_ONCE`] rows, a bit each: which cells count for their self and their total.
#[derive(Debug)]
pub(crate) struct Membership {
    /// By leaf node; node 0 is not used.
    pub(crate) own: Vec<u64>,
    pub(crate) total: Vec<u64>,
    /// Of time without a frame, in the order of [`FrameKeys::without_frame`].
    pub(crate) frameless: [u64; 4],
    /// By the sample half of the key, where rows have one.
    pub(crate) samples: Option<Vec<u64>>,
}

impl Membership {
    /// No row is met by any node.
    pub(crate) fn none(profile: &Profile) -> Self {
        let nodes = profile.tree.len();
        Self { own: vec![0; nodes], total: vec![0; nodes], frameless: [0; 4], samples: None }
    }

    /// Of rows of groups.
    pub(crate) fn of_rows(
        profile: &Profile,
        selection: &Selection,
        grouped: &Grouped,
        rows: &[(u32, u32, Sums)],
    ) -> Self {
        let mut members = Self::none(profile);
        if let Some(keys) = &grouped.samples {
            let mut bits = vec![0u64; keys.keys.len()];
            rows.iter().enumerate().for_each(|(at, row)| bits[row.0 as usize] |= 1 << at);
            members.samples = Some(bits);
        }
        match &grouped.frames {
            Some(keys) => {
                let mut bits = vec![0u64; keys.keys.len()];
                rows.iter().enumerate().for_each(|(at, row)| bits[row.1 as usize] |= 1 << at);
                members.frameless.copy_from_slice(&bits[..4]);
                members.fill(profile, selection, keys, &bits);
            }
            None => members.fill_all(),
        }
        members
    }

    /// Of rows that are told apart by the sample half of their keys alone: for each key, the bits of its rows.
    pub(crate) fn of_sample_keys(profile: &Profile, bits: Vec<u64>) -> Self {
        let mut members = Self { samples: Some(bits), ..Self::none(profile) };
        members.fill_all();
        members
    }

    /// Every stack counts, and time without one.
    fn fill_all(&mut self) {
        self.own.fill(u64::MAX);
        self.total.fill(u64::MAX);
        self.frameless = [u64::MAX; 4];
    }

    fn fill(&mut self, profile: &Profile, selection: &Selection, keys: &FrameKeys, bits: &[u64]) {
        for node in 1..profile.tree.len() {
            let range = selection.visible_range(profile, node as u32);
            let bits_of = |location: usize| bits[keys.of_location[location] as usize];
            self.own[node] = range.clone().next().map_or(0, bits_of);
            let above = self.total[profile.tree.parent[node] as usize];
            self.total[node] = range.fold(above, |sum, location| sum | bits_of(location));
        }
        // Node 0 stands for no frame at all; it was only the root of the pass.
        (self.own[0], self.total[0]) = (0, 0);
    }

    #[inline]
    fn bits(&self, cells: &Cells, cell: usize, sample_key: Option<&[u32]>) -> (u64, u64) {
        let (own, total) = match cells.node[cell] {
            0 => {
                let ending: StackEnding = cells.tags[cells.tag[cell] as usize].ending;
                let bits = self.frameless[FrameKeys::without_frame(ending) as usize];
                (bits, bits)
            }
            node => (self.own[node as usize], self.total[node as usize]),
        };
        match (&self.samples, sample_key) {
            (Some(bits), Some(keys)) => {
                let bits = bits[keys[cell] as usize];
                (own & bits, total & bits)
            }
            _ => (own, total),
        }
    }
}

/// What rows have in each block.
#[derive(Debug)]
pub(crate) struct Tally {
    blocks: Blocks,
    /// By row, then by block: self and total.
    hits: Vec<[u64; 2]>,
}

impl Tally {
    /// Counts the cells of a selection for `rows` rows.
    pub(crate) fn count(
        cells: &Cells,
        selection: &Selection,
        members: &Membership,
        sample_key: Option<&[u32]>,
        rows: usize,
        metric: Metric,
    ) -> Self {
        let slots = cells.slots.count();
        let sampled = is_sampled(metric) || (0..cells.len()).any(|cell| cells.is_stood_for(cell));
        let empty = || Self {
            blocks: Blocks { totals: vec![0; slots], samples: sampled.then_some(0) },
            hits: vec![[0; 2]; slots * rows],
        };
        let count = |range: std::ops::Range<usize>| {
            let mut tally = empty();
            for cell in range.filter(|cell| selection.has(cells, *cell)) {
                let (slot, weight) = (usize::from(cells.slot[cell]), cells.weight[cell]);
                tally.blocks.totals[slot] = tally.blocks.totals[slot].saturating_add(weight);
                if let Some(samples) = &mut tally.blocks.samples
                    && !cells.is_stood_for(cell)
                {
                    *samples += u64::from(cells.count[cell]);
                }
                let (own, total) = members.bits(cells, cell, sample_key);
                tally.hit(own, 0, slot, weight);
                tally.hit(total, 1, slot, weight);
            }
            tally
        };
        parts(cells.len()).into_par_iter().map(count).reduce(empty, Self::join)
    }

    #[inline]
    fn hit(&mut self, mut bits: u64, kind: usize, slot: usize, weight: u64) {
        let slots = self.blocks.totals.len();
        while bits != 0 {
            let row = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            if let Some(hits) = self.hits.get_mut(row * slots + slot) {
                hits[kind] = hits[kind].saturating_add(weight);
            }
        }
    }

    fn join(mut self, other: Self) -> Self {
        for (sum, more) in self.blocks.totals.iter_mut().zip(other.blocks.totals) {
            *sum = sum.saturating_add(more);
        }
        if let (Some(sum), Some(more)) = (&mut self.blocks.samples, other.blocks.samples) {
            *sum += more;
        }
        for (sum, more) in self.hits.iter_mut().zip(other.hits) {
            *sum = [sum[0].saturating_add(more[0]), sum[1].saturating_add(more[1])];
        }
        self
    }

    /// The intervals of a row's self and total shares.
    pub(crate) fn intervals(&self, row: usize) -> [Interval; 2] {
        let slots = self.blocks.totals.len();
        [0, 1].map(|kind| {
            let hits: Vec<u64> =
                self.hits[row * slots..(row + 1) * slots].iter().map(|hits| hits[kind]).collect();
            self.blocks.interval(&hits)
        })
    }
}

/// Whether the metric is made of samples; the others are measured, so that a block needs no number of them, unless only
/// some waits had their stack taken.
fn is_sampled(metric: Metric) -> bool {
    matches!(metric, Metric::Cpu | Metric::PageFaults)
}
