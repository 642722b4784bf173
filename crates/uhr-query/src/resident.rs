//! Resident memory: levels over time instead of sums. Each process is polled; between two polls it has what it had at
//! the first. A group of several processes has what they have together.

use rustc_hash::FxHashMap;
use uhr_model::{Dimension, Metric};
use uhr_recording::tables::Resident;

use crate::QueryError;
use crate::answers::{Coverage, Key, MetricTotal, QueryAnswer, ResidentBytes, Rows, Shown};
use crate::cells::{Cells, Source, Tag};
use crate::coverage::coverage;
use crate::group::{GroupBy, SampleKey};
use crate::profile::Profile;
use crate::query::request;
use crate::question::Question;
use crate::select::Selection;
use crate::window::{Slots, TimeRange};
use crate::words::{Words, compare};

/// Resident bytes of one process at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Level {
    pub(crate) time_ns: u64,
    pub(crate) process: u32,
    pub(crate) bytes: u64,
}

/// Every poll, in the order of time; the end of a process counts as a poll of nothing.
pub(crate) fn levels(profile: &Profile) -> Result<Vec<Level>, QueryError> {
    const COLUMNS: &[&str] = &["time_ns", "process", "anonymous_bytes", "file_bytes", "shared_bytes"];
    let processes = &profile.owners.processes;
    let parts = profile.observations.read(COLUMNS, |rows: &Resident, range| {
        let lengths =
            [rows.process.len(), rows.anonymous_bytes.len(), rows.file_bytes.len(), rows.shared_bytes.len()];
        if lengths.into_iter().any(|length| length != rows.time_ns.len()) {
            return Err(QueryError::Damaged("resident lacks a column".to_owned()));
        }
        range
            .map(|row| match processes.get(rows.process[row] as usize) {
                None => Err(QueryError::Damaged("a process is missing".to_owned())),
                Some(_) => Ok(Level {
                    time_ns: rows.time_ns[row],
                    process: rows.process[row],
                    bytes: rows.anonymous_bytes[row]
                        .saturating_add(rows.file_bytes[row])
                        .saturating_add(rows.shared_bytes[row]),
                }),
            })
            .collect::<Result<Vec<_>, _>>()
    })?;
    let mut levels: Vec<Level> = parts.concat();
    let mut polled = vec![false; processes.len()];
    levels.iter().for_each(|level| polled[level.process as usize] = true);
    for (process, row) in processes.iter().enumerate().filter(|(at, _)| polled[*at]) {
        if let Some(time_ns) = row.end_ns {
            // A poll that raced with the end is none.
            levels.retain(|level| level.process as usize != process || level.time_ns < time_ns);
            levels.push(Level { time_ns, process: process as u32, bytes: 0 });
        }
    }
    levels.sort_unstable();
    Ok(levels)
}

/// What a group had over some time.
#[derive(Debug, Clone, Copy, Default)]
struct Course {
    /// Processes that are there now, and what they have.
    alive: u32,
    now: u64,
    since_ns: u64,
    min: Option<u64>,
    max: u64,
    last: u64,
    byte_time: u128,
    time: u64,
}

impl Course {
    /// Counts the time up to `until`, while something is there.
    fn pass(&mut self, from: u64, until: u64) {
        let from = from.max(self.since_ns);
        if self.alive == 0 || until < from {
            return;
        }
        self.min = Some(self.min.map_or(self.now, |min| min.min(self.now)));
        self.max = self.max.max(self.now);
        self.last = self.now;
        self.byte_time += u128::from(self.now) * u128::from(until - from);
        self.time += until - from;
    }

    fn bytes(&self, key: Key) -> ResidentBytes {
        let mean = if self.time == 0 { self.last } else { (self.byte_time / u128::from(self.time)) as u64 };
        ResidentBytes { key, min: self.min.unwrap_or(0), mean, max: self.max, last: self.last }
    }

    /// Begins a new part of time with what is there.
    fn next_part(&self) -> Self {
        Self { alive: self.alive, now: self.now, since_ns: self.since_ns, ..Self::default() }
    }
}

/// The courses of groups of processes in a window, by group and slot; and how many polls there were.
fn courses(
    levels: &[Level],
    group_of: &[Option<u32>],
    slots: Slots,
    is_cut: bool,
) -> (FxHashMap<(u32, u16), Course>, u64) {
    let mut by_group: FxHashMap<u32, Vec<Level>> = FxHashMap::default();
    for level in levels {
        if let Some(group) = group_of[level.process as usize] {
            by_group.entry(group).or_default().push(*level);
        }
    }
    let (mut found, mut polls) = (FxHashMap::default(), 0);
    for (group, levels) in by_group {
        let mut had: FxHashMap<u32, u64> = FxHashMap::default();
        let mut course = Course::default();
        let mut at = 0;
        for slot in 0..if is_cut { slots.count() } else { 1 } {
            let part = match is_cut {
                true => (slots.start_of(slot), slots.start_of(slot + 1)),
                false => (slots.range.start_ns, slots.range.end_ns),
            };
            let is_last = slots.range.whole && part.1 == slots.range.end_ns;
            while let Some(level) = levels.get(at).filter(|level| level.time_ns < part.1 || is_last) {
                course.pass(part.0, level.time_ns.clamp(part.0, part.1));
                polls += u64::from(level.time_ns >= part.0 && level.bytes > 0);
                let before = had.insert(level.process, level.bytes).unwrap_or(0);
                course.now = course.now.saturating_sub(before).saturating_add(level.bytes);
                course.alive = had.values().filter(|bytes| **bytes > 0).count() as u32;
                course.since_ns = level.time_ns;
                at += 1;
            }
            course.pass(part.0, part.1);
            if course.min.is_some() {
                found.insert((group, slot as u16), course);
            }
            course = course.next_part();
        }
    }
    (found, polls)
}

/// Answers a question about resident memory.
pub(crate) fn query(
    profile: &Profile,
    question: &Question,
    group: &GroupBy,
) -> Result<QueryAnswer, QueryError> {
    let unfit = question.filters.stack_filter().or((!question.filters.thread.is_empty()).then_some("thread"));
    if let Some(filter) = unfit {
        let recording = profile.path.clone();
        return Err(QueryError::FilterNotOfMetric { filter, metric: Metric::Resident, recording });
    }
    let selection = Selection::new(profile, Metric::Resident, &question.filters)?;
    let slots = group.slots(selection.range)?;
    let levels = levels(profile)?;
    if levels.is_empty() {
        let recording = profile.path.clone();
        return Err(QueryError::MetricNotRecorded { metric: Metric::Resident, recording });
    }
    let thread_of = thread_of_groups(profile, group, &selection);
    let group_of: Vec<Option<u32>> = thread_of.iter().map(|at| at.map(|(group, _)| group)).collect();
    let thread_of: FxHashMap<u32, u32> = thread_of.into_iter().flatten().collect();
    let (courses, polls) = courses(&levels, &group_of, slots, group.has(Dimension::Time));
    let words = Words { profile, slots, whole_names: question.whole_names };
    let mut rows: Vec<(u16, ResidentBytes)> = courses
        .iter()
        .filter_map(|((group_id, slot), course)| {
            let thread = *thread_of.get(group_id)?;
            let key = words.key(
                group.dimensions(),
                Some(SampleKey::Like { thread, tag: NO_TAG, slot: *slot }),
                None,
            );
            Some((*slot, course.bytes(key)))
        })
        .collect();
    let by_time = question.sort.is_none() && group.is_timeline();
    let part = |slot: u16| if by_time { slot } else { 0 };
    rows.sort_by(|(slot_a, a), (slot_b, b)| {
        part(*slot_a)
            .cmp(&part(*slot_b))
            .then_with(|| b.max.cmp(&a.max))
            .then_with(|| compare(&a.key, &b.key))
    });
    let of = rows.len();
    let rows: Vec<_> =
        rows.into_iter().map(|(_, row)| row).skip(question.offset).take(question.limit).collect();
    let command = question.command("query", profile).with("group-by", &group.words().join(","));
    let shown = Shown {
        rows: rows.len() as u64,
        of: of as u64,
        self_share: if of == 0 { 0.0 } else { rows.len() as f64 / of as f64 },
        more: question.more(command, rows.len(), of),
    };
    Ok(QueryAnswer {
        schema: "uhr.query/1",
        ok: true,
        recording: profile.summary(),
        request: request(question, group),
        metric: MetricTotal {
            name: "resident".to_owned(),
            unit: "bytes".to_owned(),
            total: None,
            idle_hidden: None,
            samples: polls,
        },
        rows: Rows::Resident(rows),
        shown,
        coverage: resident_coverage(profile, question, &selection),
        next: next(profile, question, group),
    })
}

const NO_TAG: Tag = Tag::new(Source::Sampled, uhr_model::StackEnding::Complete, 0);

/// For each process in the selection, its group and a thread that stands for the group.
fn thread_of_groups(profile: &Profile, group: &GroupBy, selection: &Selection) -> Vec<Option<(u32, u32)>> {
    let owners = &profile.owners;
    let mut groups: FxHashMap<(u32, &str), (u32, u32)> = FxHashMap::default();
    let mut found = vec![None; owners.processes.len()];
    for (thread, row) in owners.threads.iter().enumerate() {
        if !selection.has_thread(thread as u32) {
            continue;
        }
        let process = if group.has(Dimension::Process) { row.process } else { 0 };
        let command = if group.has(Dimension::Command) {
            owners.processes[row.process as usize].name.as_str()
        } else {
            ""
        };
        let next = groups.len() as u32;
        found[row.process as usize] =
            Some(*groups.entry((process, command)).or_insert((next, thread as u32)));
    }
    found
}

fn resident_coverage(profile: &Profile, question: &Question, selection: &Selection) -> Coverage {
    let none = Cells::none(Slots::blocks(selection.range));
    let mut coverage = coverage(profile, Metric::Resident, &question.filters, &none, selection);
    coverage.notes.pop();
    coverage.notes.push("Memory is polled: peaks between two polls are not seen.".to_owned());
    coverage
}

fn next(profile: &Profile, question: &Question, group: &GroupBy) -> Vec<String> {
    let by = if group.has(Dimension::Time) { "process" } else { "time" };
    let faults = Question { metric: Metric::PageFaults, ..question.clone() };
    vec![
        question.command("query", profile).with("group-by", by).text(),
        faults.command("query", profile).with("group-by", "region,function").text(),
    ]
}

/// First, largest and last level of each process in a window, largest first.
pub(crate) fn growth(
    profile: &Profile,
    selection: &Selection,
    range: TimeRange,
) -> Result<Vec<(u32, u64, u64, u64)>, QueryError> {
    let mut found: FxHashMap<u32, (u64, u64, u64)> = FxHashMap::default();
    let mut wanted = vec![false; profile.owners.processes.len()];
    for (thread, row) in profile.owners.threads.iter().enumerate() {
        wanted[row.process as usize] |= selection.has_thread(thread as u32);
    }
    for level in
        levels(profile)?.into_iter().filter(|level| level.bytes > 0 && wanted[level.process as usize])
    {
        if range.whole || (range.start_ns..range.end_ns).contains(&level.time_ns) {
            let bytes = level.bytes;
            let one = found.entry(level.process).or_insert((bytes, bytes, bytes));
            *one = (one.0, one.1.max(bytes), bytes);
        }
    }
    let mut all: Vec<_> =
        found.into_iter().map(|(process, (first, peak, last))| (process, first, peak, last)).collect();
    all.sort_unstable_by_key(|(process, _, peak, _)| (std::cmp::Reverse(*peak), *process));
    Ok(all)
}
