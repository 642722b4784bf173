//! The cells of a part of a table, while it is counted.

use rustc_hash::FxHashMap;

use super::{By, Owner, Tag};
use crate::QueryError;
use crate::profile::Profile;

#[derive(Debug)]
pub(super) struct Row {
    pub(super) thread: u32,
    pub(super) node: u32,
    pub(super) slot: u16,
    pub(super) tag: u32,
    pub(super) count: u32,
    pub(super) weight: u64,
}

/// The cells of one part of a table. Equal cells of several parts stay apart: merging them would cost more than
/// walking them twice. For the same reason a cell is looked for in one place only, and begun anew where it is not there.
pub(super) struct Part<'a> {
    profile: &'a Profile,
    by: By,
    pub(super) rows: Vec<Row>,
    /// Rows by a hash of what they are: the last one that had it.
    near_rows: Vec<u32>,
    pub(super) tags: FxHashMap<Tag, u32>,
    /// The slot of the last time, and its bounds: times come in order, so that it is most often the next one's too.
    near: (u64, u64, usize),
    last_tag: Option<(Tag, u32)>,
}

/// Bits of a part's hash: the table stays in the second cache (512 KiB).
const NEAR_BITS: u32 = 17;

impl<'a> Part<'a> {
    pub(super) fn new(profile: &'a Profile, by: By) -> Self {
        Self {
            profile,
            by,
            rows: Vec::new(),
            near_rows: vec![u32::MAX; 1 << NEAR_BITS],
            tags: FxHashMap::default(),
            near: (1, 0, 0),
            last_tag: None,
        }
    }

    /// For each of the part's tags, its number among all.
    pub(super) fn numbers_in(&self, all: &[Tag]) -> Vec<u32> {
        let mut numbers = vec![0u32; self.tags.len()];
        for (tag, &at) in &self.tags {
            numbers[at as usize] = all.binary_search(tag).unwrap_or(0) as u32;
        }
        numbers
    }

    /// The slot of a time, or `None` if it lies outside the window. The whole recording holds all its rows, even those
    /// that a clock put a little outside.
    #[inline]
    pub(super) fn slot_of(&mut self, time_ns: u64) -> Option<usize> {
        let range = self.by.slots.range;
        if !range.whole && !(range.start_ns..range.end_ns).contains(&time_ns) {
            return None;
        }
        if !(self.near.0..self.near.1).contains(&time_ns) {
            let slot = self.by.slots.of(time_ns);
            self.near = (self.by.slots.start_of(slot), self.by.slots.start_of(slot + 1), slot);
        }
        Some(self.near.2)
    }

    fn tag(&mut self, tag: Tag) -> u32 {
        match self.last_tag {
            Some((last, id)) if last == tag => id,
            _ => {
                let next = self.tags.len() as u32;
                let id = *self.tags.entry(tag).or_insert(next);
                self.last_tag = Some((tag, id));
                id
            }
        }
    }

    pub(super) fn add(
        &mut self,
        (thread, stack): (u32, u32),
        slot: usize,
        tag: Tag,
        (count, weight): (u32, u64),
    ) -> Result<(), QueryError> {
        let node = self.profile.tree.node(stack).ok_or_else(|| damaged("a stack is missing"))?;
        if thread as usize >= self.profile.owners.threads.len() {
            return Err(damaged("a thread is missing"));
        }
        // Time that is counted without a stack is told by its marker alone.
        let node = if tag.ending.row_key().is_some() { 0 } else { node };
        let thread = match self.by.owner {
            Owner::Nobody => 0,
            Owner::Process => self.profile.owners.first_of_process[thread as usize],
            Owner::Thread => thread,
        };
        let (tag, slot) = (self.tag(tag), slot as u16);
        let what = (u64::from(thread) << 32 | u64::from(node)) ^ u64::from(tag) << 20;
        // Fibonacci hashing: the high bits of the product are well mixed.
        let place = (what.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - NEAR_BITS)) as usize;
        match self.rows.get_mut(self.near_rows[place] as usize) {
            Some(row) if (row.thread, row.node, row.slot, row.tag) == (thread, node, slot, tag) => {
                row.count = row.count.saturating_add(count);
                row.weight = row.weight.saturating_add(weight);
            }
            _ => {
                self.near_rows[place] = self.rows.len() as u32;
                self.rows.push(Row { thread, node, slot, tag, count, weight });
            }
        }
        Ok(())
    }
}

pub(super) fn damaged(what: &str) -> QueryError {
    QueryError::Damaged(what.to_owned())
}

/// Time off CPU: `duration` of the nanoseconds from `start` to `end`, in `count` waits, which stand for `weight`.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) duration: u64,
    pub(super) weight: u64,
    pub(super) count: u32,
}

impl Span {
    /// The part of the weight that lies before `time`, in proportion. Whole numbers that add up whatever the cuts.
    fn before(self, time: u64) -> u64 {
        let length = self.end - self.start;
        let part = time.clamp(self.start, self.end) - self.start;
        (u128::from(self.weight) * u128::from(part) / u128::from(length.max(1))) as u64
    }
}

impl Part<'_> {
    /// Adds time off CPU, clipped to the window and shared among its slots. The waits count where the row begins.
    pub(super) fn add_span(&mut self, owner: (u32, u32), tag: Tag, span: Span) -> Result<(), QueryError> {
        let range = self.by.slots.range;
        if span.end < span.start || span.duration > span.end - span.start {
            return Err(damaged("a wait is longer than the time it took"));
        }
        let overlaps = span.start < range.end_ns && span.end > range.start_ns;
        let is_point = span.start == span.end && (range.start_ns..range.end_ns).contains(&span.start);
        if !range.whole && !overlaps && !is_point {
            return Ok(());
        }
        let first = self.by.slots.of(span.start.max(range.start_ns));
        let last = self.by.slots.of(span.end.saturating_sub(1).max(span.start));
        for slot in first..=last {
            // Of the whole recording the outermost slots take what lies beyond them.
            let from = if range.whole && slot == first { 0 } else { self.by.slots.start_of(slot) };
            let to = if range.whole && slot == last { u64::MAX } else { self.by.slots.start_of(slot + 1) };
            let weight = span.before(to) - span.before(from);
            let count = if slot == first { span.count } else { 0 };
            self.add(owner, slot, tag, (count, weight))?;
        }
        Ok(())
    }
}
