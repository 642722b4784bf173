//! Which samples and waits count, by what they were in: the filters by kind of wait, system call and waker, and whether
//! idle waits are hidden.

use uhr_model::{Dimension, Metric, WaitKind, syscall_number};

use crate::QueryError;
use crate::cells::{Source, Tag};
use crate::filter::Filters;
use crate::profile::Profile;
use crate::resolve::{named, unknown};

/// What circumstances have to be.
#[derive(Debug, Clone, Default)]
pub(crate) struct Circumstances {
    waits: Vec<WaitKind>,
    syscalls: Vec<u32>,
    /// Which wakers, by their row, if not all.
    wakers: Option<Vec<bool>>,
    /// Whether waits for work are left out.
    pub(crate) hides_idle: bool,
}

impl Circumstances {
    /// Resolves the filters.
    pub(crate) fn new(profile: &Profile, metric: Metric, filters: &Filters) -> Result<Self, QueryError> {
        let is_of = |filter: &str| match filter {
            "wait" => matches!(metric, Metric::OffCpu | Metric::Runqueue | Metric::Wall),
            "waker" => matches!(metric, Metric::OffCpu | Metric::Wall),
            _ => !matches!(metric, Metric::PageFaults | Metric::Resident),
        };
        if let Some(filter) = filters.circumstance_filters().find(|filter| !is_of(filter)) {
            return Err(QueryError::FilterNotOfMetric { filter, metric, recording: profile.path.clone() });
        }
        if let Some(filter) = filters.stack_filter().filter(|_| !metric.has_stacks()) {
            return Err(QueryError::FilterNotOfMetric { filter, metric, recording: profile.path.clone() });
        }
        let wait =
            |word: &String| WaitKind::from_name(word).ok_or_else(|| QueryError::UnknownWait(word.clone()));
        let syscall = |word: &String| {
            let number = syscall_number(word).or_else(|| word.parse().ok());
            number.ok_or_else(|| QueryError::UnknownSyscall(word.clone()))
        };
        Ok(Self {
            waits: filters.wait.iter().map(wait).collect::<Result<_, _>>()?,
            syscalls: filters.syscall.iter().map(syscall).collect::<Result<_, _>>()?,
            wakers: wakers(profile, metric, filters)?,
            hides_idle: false,
        })
    }

    /// Whether a sample or wait counts.
    #[inline]
    pub(crate) fn fit(&self, tag: &Tag) -> bool {
        !(self.hides_idle && tag.is_idle()) && self.pass_filters(tag)
    }

    /// Whether it would count if nothing were hidden.
    pub(crate) fn pass_filters(&self, tag: &Tag) -> bool {
        let is_wait = tag.source == Source::Waiting;
        self.waits.iter().all(|kind| is_wait && kind.code() == tag.kind)
            && self.syscalls.iter().all(|number| tag.syscall == Some(*number))
            && self.wakers.as_ref().is_none_or(|wakers| is_wait && wakers[tag.waker as usize])
    }
}

fn wakers(profile: &Profile, metric: Metric, filters: &Filters) -> Result<Option<Vec<bool>>, QueryError> {
    if filters.waker.is_empty() {
        return Ok(None);
    }
    let (wakers, owners) = (&profile.wakers, &profile.owners);
    let rows = || 0..wakers.len() as u32;
    let mut keep = vec![true; wakers.len()];
    for text in &filters.waker {
        let ids = rows().map(|row| [wakers.tid(row, owners), None]);
        let names = rows().map(|row| wakers.name(row, owners));
        let fits = named(text, ids, names).ok_or_else(|| unknown(profile, metric, Dimension::Waker, text))?;
        keep.iter_mut().zip(fits).for_each(|(keep, fits)| *keep &= fits);
    }
    Ok(Some(keep))
}
