//! Cells: observations counted. One pass turns the observations of a window into the distinct combinations of slot,
//! thread, stack and circumstances with their sums; every question then works on these. A hot program has few of them,
//! however many samples it has.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;
use uhr_model::{Metric, StackEnding};
use uhr_recording::tables::{Faults, OffCpu, Samples};

use crate::QueryError;
use crate::coverage::Seen;
use crate::profile::Profile;
pub(crate) use crate::window::Slots;

/// Where a cell's observations came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Source {
    /// On CPU, or a page fault: sampled.
    Sampled,
    /// A wait.
    Waiting,
    /// Runnable, but not running.
    Runnable,
}

/// The circumstances of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tag {
    pub(crate) source: Source,
    pub(crate) ending: StackEnding,
    /// Code of the kind of wait, or of the kind of memory that faulted.
    pub(crate) kind: u8,
    /// Number of the system call that it waited in.
    pub(crate) syscall: Option<u32>,
}

/// Counted observations, as parallel columns.
#[derive(Debug)]
pub(crate) struct Cells {
    pub(crate) slots: Slots,
    /// Row of `threads`: as the cells' [`Owner`] says, a thread, one that stands for its process, or 0.
    pub(crate) thread: Vec<u32>,
    /// Node of the stack tree.
    pub(crate) node: Vec<u32>,
    pub(crate) slot: Vec<u16>,
    /// Index into `tags`.
    pub(crate) tag: Vec<u32>,
    /// Samples, or waits.
    pub(crate) count: Vec<u32>,
    /// In the metric's unit.
    pub(crate) weight: Vec<u64>,
    /// Sorted.
    pub(crate) tags: Vec<Tag>,
    /// What [`crate::coverage`] sees in all of them; worked out once.
    pub(crate) seen: OnceLock<Seen>,
}

/// What observations are counted by, besides their stack and circumstances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct By {
    pub(crate) slots: Slots,
    /// Whose they are, as far as it matters. The less is told apart, the fewer cells there are.
    pub(crate) owner: Owner,
}

/// Whose observations are told apart, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// Nobody's.
    Nobody,
    /// Those of processes: the first thread of a process stands for all of them.
    Process,
    /// Those of threads.
    Thread,
}

impl Cells {
    /// Counts the observations of `metric`.
    pub(crate) fn count(profile: &Profile, metric: Metric, by: By) -> Result<Self, QueryError> {
        let mut parts = Vec::new();
        if matches!(metric, Metric::Cpu | Metric::Wall) {
            parts.extend(count_samples(profile, by)?);
        }
        if matches!(metric, Metric::OffCpu | Metric::Runqueue | Metric::Wall) {
            parts.extend(count_off_cpu(profile, metric, by)?);
        }
        if metric == Metric::PageFaults {
            parts.extend(count_faults(profile, by)?);
        }
        Ok(Self::join(by.slots, parts))
    }

    /// Without any.
    pub(crate) fn none(slots: Slots) -> Self {
        Self::join(slots, Vec::new())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.weight.len()
    }

    /// Whether these are waits without a stack whose time was given to others of their like that have one.
    #[inline]
    pub(crate) fn is_stood_for(&self, cell: usize) -> bool {
        self.weight[cell] == 0
            && self.count[cell] > 0
            && self.tags[self.tag[cell] as usize].ending == StackEnding::NotSampled
    }

    fn join(slots: Slots, parts: Vec<Part>) -> Self {
        let mut tags: Vec<Tag> = parts.iter().flat_map(|part| part.tags.keys().copied()).collect();
        tags.sort_unstable();
        tags.dedup();
        let tag_of: Vec<Vec<u32>> = parts.iter().map(|part| part.numbers_in(&tags)).collect();
        let (ids, sums) = rayon::join(
            || rayon::join(|| column(&parts, |_, row| row.thread), || column(&parts, |_, row| row.node)),
            || rayon::join(|| column(&parts, |_, row| row.count), || column(&parts, |_, row| row.weight)),
        );
        let (slot, tag) = rayon::join(
            || column(&parts, |_, row| row.slot),
            || column(&parts, |part, row| tag_of[part][row.tag as usize]),
        );
        Self {
            slots,
            thread: ids.0,
            node: ids.1,
            slot,
            tag,
            count: sums.0,
            weight: sums.1,
            tags,
            seen: OnceLock::new(),
        }
    }
}

/// One value of every row of every part.
fn column<T>(parts: &[Part], value: impl Fn(usize, &Row) -> T) -> Vec<T> {
    let mut values = Vec::with_capacity(parts.iter().map(|part| part.rows.len()).sum());
    for (at, part) in parts.iter().enumerate() {
        values.extend(part.rows.iter().map(|row| value(at, row)));
    }
    values
}

#[derive(Debug)]
struct Row {
    thread: u32,
    node: u32,
    slot: u16,
    tag: u32,
    count: u32,
    weight: u64,
}

/// The cells of one part of a table. Equal cells of several parts stay apart: merging them would cost more than
/// walking them twice. For the same reason a cell is looked for in one place only, and begun anew where it is not there.
struct Part<'a> {
    profile: &'a Profile,
    by: By,
    rows: Vec<Row>,
    /// Rows by a hash of what they are: the last one that had it.
    near_rows: Vec<u32>,
    tags: FxHashMap<Tag, u32>,
    /// The slot of the last time, and its bounds: times come in order, so that it is most often the next one's too.
    near: (u64, u64, usize),
    last_tag: Option<(Tag, u32)>,
}

/// Bits of a part's hash: the table stays in the second cache (512 KiB).
const NEAR_BITS: u32 = 17;

impl<'a> Part<'a> {
    fn new(profile: &'a Profile, by: By) -> Self {
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
    fn numbers_in(&self, all: &[Tag]) -> Vec<u32> {
        let mut numbers = vec![0u32; self.tags.len()];
        for (tag, &at) in &self.tags {
            numbers[at as usize] = all.binary_search(tag).unwrap_or(0) as u32;
        }
        numbers
    }

    /// The slot of a time, or `None` if it lies outside the window. The whole recording holds all its rows, even those
    /// that a clock put a little outside.
    #[inline]
    fn slot_of(&mut self, time_ns: u64) -> Option<usize> {
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

    fn add(
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

fn damaged(what: &str) -> QueryError {
    QueryError::Damaged(what.to_owned())
}

fn ending(code: u8) -> Result<StackEnding, QueryError> {
    StackEnding::from_code(code).ok_or_else(|| damaged("a stack's ending is unknown"))
}

fn whole(table: &str, rows: usize, columns: &[usize]) -> Result<(), QueryError> {
    match columns.iter().all(|&length| length == rows) {
        true => Ok(()),
        false => Err(QueryError::Damaged(format!("{table} lacks a column"))),
    }
}

fn count_samples(profile: &Profile, by: By) -> Result<Vec<Part<'_>>, QueryError> {
    const COLUMNS: &[&str] = &["time_ns", "thread", "stack", "weight_ns", "ending"];
    profile.observations.read(COLUMNS, |rows: &Samples, range| {
        let lengths = [rows.thread.len(), rows.stack.len(), rows.weight_ns.len(), rows.ending.len()];
        whole("samples", rows.time_ns.len(), &lengths)?;
        let mut part = Part::new(profile, by);
        for row in range {
            let Some(slot) = part.slot_of(rows.time_ns[row]) else { continue };
            let ending = ending(rows.ending[row])?;
            let tag = Tag { source: Source::Sampled, ending, kind: 0, syscall: None };
            let samples = u32::from(!ending.is_without_sample());
            part.add((rows.thread[row], rows.stack[row]), slot, tag, (samples, rows.weight_ns[row]))?;
        }
        Ok(part)
    })
}

fn count_faults(profile: &Profile, by: By) -> Result<Vec<Part<'_>>, QueryError> {
    const COLUMNS: &[&str] = &["time_ns", "thread", "stack", "ending", "region", "weight"];
    profile.observations.read(COLUMNS, |rows: &Faults, range| {
        let lengths =
            [rows.thread.len(), rows.stack.len(), rows.ending.len(), rows.region.len(), rows.weight.len()];
        whole("faults", rows.time_ns.len(), &lengths)?;
        let mut part = Part::new(profile, by);
        for row in range {
            let Some(slot) = part.slot_of(rows.time_ns[row]) else { continue };
            let (ending, kind) = (ending(rows.ending[row])?, rows.region[row]);
            let tag = Tag { source: Source::Sampled, ending, kind, syscall: None };
            part.add((rows.thread[row], rows.stack[row]), slot, tag, (1, rows.weight[row]))?;
        }
        Ok(part)
    })
}

fn count_off_cpu(profile: &Profile, metric: Metric, by: By) -> Result<Vec<Part<'_>>, QueryError> {
    const COLUMNS: &[&str] = &[
        "start_ns",
        "end_ns",
        "duration_ns",
        "weight_ns",
        "count",
        "thread",
        "stack",
        "ending",
        "runnable",
        "wait",
        "syscall",
    ];
    profile.observations.read(COLUMNS, |rows: &OffCpu, range| {
        let lengths = [
            rows.end_ns.len(),
            rows.duration_ns.len(),
            rows.weight_ns.len(),
            rows.count.len(),
            rows.thread.len(),
        ];
        let more =
            [rows.stack.len(), rows.ending.len(), rows.runnable.len(), rows.wait.len(), rows.syscall.len()];
        whole("offcpu", rows.start_ns.len(), &[&lengths[..], &more[..]].concat())?;
        let mut part = Part::new(profile, by);
        for row in range {
            let source = if rows.runnable[row] { Source::Runnable } else { Source::Waiting };
            let wanted = match metric {
                Metric::OffCpu => source == Source::Waiting,
                Metric::Runqueue => source == Source::Runnable,
                _ => true,
            };
            if wanted {
                let (ending, kind, syscall) = (ending(rows.ending[row])?, rows.wait[row], rows.syscall[row]);
                let span = Span {
                    start: rows.start_ns[row],
                    end: rows.end_ns[row],
                    duration: rows.duration_ns[row],
                    weight: rows.weight_ns[row],
                    count: rows.count[row],
                };
                let tag = Tag { source, ending, kind, syscall };
                part.add_span((rows.thread[row], rows.stack[row]), tag, span)?;
            }
        }
        Ok(part)
    })
}

/// Time off CPU: `duration` of the nanoseconds from `start` to `end`, in `count` waits, which stand for `weight`.
#[derive(Clone, Copy)]
struct Span {
    start: u64,
    end: u64,
    duration: u64,
    weight: u64,
    count: u32,
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
    fn add_span(&mut self, owner: (u32, u32), tag: Tag, span: Span) -> Result<(), QueryError> {
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
