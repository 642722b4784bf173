//! `uhr query`: one metric, grouped.

use uhr_model::{Dimension, Metric};

use crate::QueryError;
use crate::answers::{CountedRow, Key, KeyValue, QueryAnswer, QueryRequest, Rows, Shown, share};
use crate::call_windows::CallWindows;
use crate::cells::{By, Cells, Source};
use crate::command::Command;
use crate::coverage::coverage;
use crate::filter::Filters;
use crate::group::{GroupBy, SampleKey};
use crate::membership::{Membership, ROWS_AT_ONCE, Tally};
use crate::profile::Profile;
use crate::question::{Question, Sort};
use crate::resident;
use crate::rollup::{Amount, Grouped, Sums};
use crate::select::Selection;
use crate::statistics::Interval;
use crate::words::{Words, compare};

/// Answers a question by groups.
///
/// # Errors
/// [`QueryError`]: the question is wrong, does not fit the recording, or the recording is damaged.
pub fn query(profile: &Profile, question: &Question, group: &GroupBy) -> Result<QueryAnswer, QueryError> {
    group.check(question.metric, profile)?;
    check_recorded(profile, question.metric)?;
    if question.metric == Metric::Resident {
        return resident::query(profile, question, group);
    }
    if group.has_addresses() {
        profile.machine_code()?;
    }
    let hides_idle = question.hides_idle(group.has(Dimension::Wait));
    let selection = Selection::new(profile, question.metric, &question.filters)?.hiding_idle(hides_idle);
    let slots = group.slots(selection.range)?;
    let details = group.details().and(question.filters.details());
    let by = By { slots, owner: selection.owner(group.owner()), details };
    let cells = profile.cells(question.metric, by)?;
    let grouped = Grouped::new(profile, &cells, &selection, group);
    let page = Page::of(profile, question, group, &cells, &grouped);
    let intervals = intervals(profile, question, group, &cells, &selection, &grouped, &page.rows);
    let rows: Vec<CountedRow> = page
        .keys
        .into_iter()
        .zip(&page.rows)
        .zip(intervals)
        .map(|((key, row), intervals)| counted_row(key, &row.2, grouped.total.weight, intervals))
        .collect();
    let mut coverage = coverage(profile, question.metric, &question.filters, &cells, &selection);
    if group.has_addresses() && question.metric == Metric::Cpu {
        coverage.notes.push(SKID.to_owned());
    }
    if group.has(Dimension::Waker) {
        coverage.notes.extend(not_woken(profile, &cells, &selection, grouped.total));
    }
    if question.metric == Metric::Syscalls
        && let Some(windows) = CallWindows::of(profile, selection.range)?
    {
        coverage.notes.insert(0, windows.note(profile)?);
    }
    if grouped.rows.is_empty() && !question.filters.is_empty() {
        coverage.notes.push("Nothing in the recording fits all the filters together.".to_owned());
    }
    let own: u64 = page.rows.iter().map(|row| row.2.own).fold(0, u64::saturating_add);
    let command = question.command("query", profile).with("group-by", &group.words().join(","));
    let shown = Shown {
        rows: rows.len() as u64,
        of: grouped.rows.len() as u64,
        self_share: share(own, grouped.total.weight),
        more: question.more(command, rows.len(), grouped.rows.len()),
    };
    Ok(QueryAnswer {
        schema: "uhr.query/1",
        ok: true,
        recording: profile.summary(),
        request: request(question, group),
        metric: question.total(grouped.total, selection.hidden(&cells)),
        next: next(profile, question, group, &rows),
        rows: Rows::Counted(rows),
        shown,
        coverage,
    })
}

/// System calls are counted where that was asked for, or in windows; measured only where it was asked for.
fn check_recorded(profile: &Profile, metric: Metric) -> Result<(), QueryError> {
    let is_recorded = match (metric, profile.manifest.settings.syscalls.as_deref()) {
        (Metric::Syscalls, Some("windows")) => {
            let all = Selection::everything(profile).range;
            CallWindows::of(profile, all)?.is_none_or(|windows| !windows.is_empty())
        }
        (Metric::Syscalls | Metric::SyscallTime, how) => how == Some("always"),
        _ => true,
    };
    match is_recorded {
        true => Ok(()),
        false => Err(QueryError::MetricNotRecorded { metric, recording: profile.path.clone() }),
    }
}

pub(crate) fn request(question: &Question, group: &GroupBy) -> QueryRequest {
    QueryRequest {
        metric: question.metric.name().to_owned(),
        group_by: group.words().to_vec(),
        filters: question.filters.clone(),
        idle: question.idle,
        limit: question.limit as u64,
        offset: question.offset as u64,
        sort: question.sort.map(Sort::name),
    }
}

/// Of how much of the waiting it is not known what ended it.
pub(crate) fn not_woken(
    profile: &Profile,
    cells: &Cells,
    selection: &Selection,
    total: Amount,
) -> Option<String> {
    let is_unknown = |cell: &usize| {
        let tag = &cells.tags[cells.tag[*cell] as usize];
        tag.source == Source::Waiting && tag.waker == 0 && selection.has(cells, *cell)
    };
    let unknown = (0..cells.len()).filter(is_unknown);
    let unknown_ns = unknown.map(|cell| cells.weight[cell]).fold(0, u64::saturating_add);
    // Less than a thousandth is not worth a word.
    if unknown_ns <= total.weight / 1000 {
        return None;
    }
    Some(match profile.manifest.settings.sampler.as_str() {
        "ebpf" => format!(
            "Of {:.1} % of this time it is not known what ended the waits: they began before the recording or lasted \
             beyond it, or no look fell on them.",
            share(unknown_ns, total.weight) * 100.0
        ),
        _ => "What ended waits is recorded by the sampler ebpf only.".to_owned(),
    })
}

/// The rows that an answer shows, in order.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) rows: Vec<(u32, u32, Sums)>,
    pub(crate) keys: Vec<Key>,
}

impl Page {
    /// The first rows in the order of the question (see [`Question::sort`]), behind `offset`. Only rows that come into question are
    /// put in words: those above the last one, and those that stand as high as it.
    pub(crate) fn of(
        profile: &Profile,
        question: &Question,
        group: &GroupBy,
        cells: &Cells,
        grouped: &Grouped,
    ) -> Self {
        let by_time = question.sort.is_none() && group.is_timeline();
        let by_total = match question.sort {
            Some(sort) => sort == Sort::Total,
            None => !question.filters.under.is_empty(),
        };
        // Where a row stands: the higher the earlier. Earlier parts of time come first; time without a part, last.
        let size = |row: &(u32, u32, Sums)| {
            let earliness = match grouped.sample_key(row) {
                Some(SampleKey::Like { slot, .. }) if by_time => 1 + u32::from(u16::MAX - slot),
                _ => 0,
            };
            (earliness, if by_total { row.2.total } else { row.2.own })
        };
        let wanted = question.offset.saturating_add(question.limit).min(grouped.rows.len());
        if wanted == 0 {
            return Self { rows: Vec::new(), keys: Vec::new() };
        }
        let mut sizes: Vec<(u32, u64)> = grouped.rows.iter().map(size).collect();
        let (_, &mut last, _) = sizes.select_nth_unstable_by(wanted - 1, |a, b| b.cmp(a));
        let words = Words { profile, slots: cells.slots, whole_names: question.whole_names };
        let key = |row| words.key(group.dimensions(), grouped.sample_key(row), grouped.frame_key(row));
        let mut sorted: Vec<_> =
            grouped.rows.iter().filter(|row| size(row) >= last).map(|row| (key(row), *row)).collect();
        sorted.sort_by(|(key_a, a), (key_b, b)| {
            size(b)
                .cmp(&size(a))
                .then_with(|| compare(key_a, key_b))
                .then_with(|| (a.0, a.1).cmp(&(b.0, b.1)))
        });
        let (keys, rows) = sorted.into_iter().take(wanted).skip(question.offset).unzip();
        Self { rows, keys }
    }
}

/// What the address of a sample is worth.
pub(crate) const SKID: &str = "A sample may count for an instruction behind the costly one (skid); what is called counts \
                               for the call.";

/// Parts of time are not parts of a random whole: their shares have no interval.
const BY_TIME: &str = "by-time";

pub(crate) fn intervals(
    profile: &Profile,
    question: &Question,
    group: &GroupBy,
    cells: &Cells,
    selection: &Selection,
    grouped: &Grouped,
    rows: &[(u32, u32, Sums)],
) -> Vec<[Interval; 2]> {
    if group.has(Dimension::Time) {
        return vec![[Interval::unknown(BY_TIME); 2]; rows.len()];
    }
    let mut intervals = Vec::with_capacity(rows.len());
    for chunk in rows.chunks(ROWS_AT_ONCE) {
        let members = Membership::of_rows(profile, selection, grouped, chunk);
        let keys = grouped.samples.as_ref().map(|keys| keys.of_cell.as_slice());
        let tally = Tally::count(cells, selection, &members, keys, chunk.len(), question.metric);
        intervals.extend((0..chunk.len()).map(|row| tally.intervals(row)));
    }
    intervals
}

fn counted_row(key: Key, sums: &Sums, whole: u64, intervals: [Interval; 2]) -> CountedRow {
    CountedRow {
        key,
        own: sums.own,
        total: sums.total,
        self_share: share(sums.own, whole),
        total_share: share(sums.total, whole),
        self_samples: sums.own_samples,
        total_samples: sums.total_samples,
        self_share_ci95: intervals[0].ends,
        total_share_ci95: intervals[1].ends,
        interval_note: intervals[0].note.or(intervals[1].note),
    }
}

/// Up to three questions that make sense after this one.
fn next(profile: &Profile, question: &Question, group: &GroupBy, rows: &[CountedRow]) -> Vec<String> {
    if rows.is_empty() {
        return next_of_nothing(profile, question, group);
    }
    if matches!(question.metric, Metric::Syscalls | Metric::SyscallTime) {
        return next_of_calls(profile, question, group, rows);
    }
    let mut next = Vec::new();
    // Where a thread left the CPU is the same kernel function for almost every wait.
    let is_wait = matches!(question.metric, Metric::OffCpu | Metric::Runqueue | Metric::Wall);
    let named = rows.iter().find_map(|row| {
        match (row.key.get(Dimension::Function), row.key.get(Dimension::Module)) {
            (Some(KeyValue::Text(_)), Some(KeyValue::Text(module))) if is_wait && module == "[kernel]" => {
                None
            }
            (Some(KeyValue::Text(name)), _) if !name.starts_with('[') => Some(name),
            _ => None,
        }
    });
    if let Some(name) = named {
        next.push(question.command("call-paths", profile).with("function", name).text());
    }
    if let Some(KeyValue::Process { pid, .. }) = rows.first().and_then(|row| row.key.get(Dimension::Process))
        && question.filters.process.is_empty()
    {
        let command = question.command("query", profile).with("process", &pid.to_string());
        next.push(command.with("group-by", "function").text());
    } else if !group.has(Dimension::Function) {
        next.push(question.command("query", profile).with("group-by", "function").text());
    }
    if group.has(Dimension::Function) && !group.has(Dimension::Line) && named.is_some() {
        next.push(question.command("query", profile).with("group-by", "function,file,line").text());
    }
    let is_known =
        |row: &CountedRow| row.key.get(Dimension::Waker).is_some_and(|one| *one != KeyValue::Unknown);
    if rows.iter().any(is_known) && question.filters.circumstance_filters().next().is_none() {
        next.insert(0, Command::new("call-paths", &profile.path).flag("wakers").text());
    }
    if question.metric == Metric::Cpu && question.filters.circumstance_filters().next().is_none() {
        let waits = Question { metric: Metric::OffCpu, ..question.clone() };
        next.push(waits.command("query", profile).with("group-by", "wait").text());
    }
    next.truncate(3);
    next
}

/// Of calls: who makes them, how they end, and what code does.
fn next_of_calls(
    profile: &Profile,
    question: &Question,
    group: &GroupBy,
    rows: &[CountedRow],
) -> Vec<String> {
    let by = |words: &str| question.command("query", profile).with("group-by", words).text();
    let mut next = Vec::new();
    if !group.has(Dimension::Errno) {
        next.push(by("syscall,errno"));
    }
    if !group.has(Dimension::Thread) {
        next.push(by("thread,syscall"));
    }
    if let Some(KeyValue::Text(name)) = rows.first().and_then(|row| row.key.get(Dimension::Syscall))
        && !name.starts_with('[')
    {
        let code = Command::new("query", &profile.path).with("syscall", name);
        next.push(code.with("group-by", "function").text());
    }
    next
}

/// The question that has an answer, where this one has none.
fn next_of_nothing(profile: &Profile, question: &Question, group: &GroupBy) -> Vec<String> {
    let overview = Command::new("overview", &profile.path).text();
    let filters = &question.filters;
    let wider = if question.offset > 0 || filters.is_empty() {
        filters.clone()
    } else if filters.function.is_empty() {
        Filters::default()
    } else {
        // What a function does not do itself, it may have done below it.
        let under = filters.under.iter().chain(&filters.function).cloned().collect();
        Filters { under, function: Vec::new(), ..filters.clone() }
    };
    if question.offset == 0 && filters.is_empty() {
        return vec![overview];
    }
    let wider = Question { filters: wider, ..question.clone() };
    let command = wider.command("query", profile).with("group-by", &group.words().join(","));
    vec![command.text(), overview]
}
