//! Cells: observations counted. One pass turns the observations of a window into the distinct combinations of slot,
//! thread, stack and circumstances with their sums; every question then works on these. A hot program has few of them,
//! however many samples it has.

mod calls;
mod count;
mod part;
mod tag;

use std::sync::OnceLock;

use uhr_model::Metric;

use calls::count_calls;
use count::{count_faults, count_off_cpu, count_samples};
use part::{Part, Row};
pub(crate) use tag::{Details, MAJOR, MappingName, PAGE, REGION, Source, Tag, WakerDetail, errno_of};

use crate::QueryError;
use crate::coverage::Seen;
use crate::profile::Profile;
pub(crate) use crate::window::Slots;

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
    /// Circumstances that matter too.
    pub(crate) details: Details,
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
        if matches!(metric, Metric::Syscalls | Metric::SyscallTime) {
            parts.extend(count_calls(profile, metric, by)?);
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
        self.tags[self.tag[cell] as usize].is_stood_for
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
