//! The largest rows of each kind.

use rustc_hash::FxHashMap;
use uhr_model::{Dimension, FrameMode, Metric, StackEnding};

use super::{FUNCTIONS, LEAST_FUNCTION, LEAST_SHARE, ROWS};
use crate::answers::{Calls, Faults, Key, KeyValue, OverviewRow, Top, Waits, rounded, share};
use crate::cells::Cells;
use crate::group::{FrameKey, FrameKeys, GroupBy, MARKERS};
use crate::profile::{Location, Profile};
use crate::query::Page;
use crate::question::Question;
use crate::rollup::{Amount, Grouped, node_sums};
use crate::select::Selection;
use crate::words::{Words, compare};

/// Where CPU time went.
pub(super) fn cpu(profile: &Profile, question: &Question, selection: &Selection, cells: &Cells) -> Top {
    let by = |dimension| rows(profile, question, selection, cells, &[dimension]);
    let (processes, total) = by(Dimension::Process);
    Top {
        total_ns: total.weight,
        processes,
        threads: by(Dimension::Thread).0,
        modes: by(Dimension::Mode).0,
        modules: by(Dimension::Module).0,
        functions: by(Dimension::Function).0,
        // Time that is in none is the rest.
        syscalls: by(Dimension::Syscall).0.into_iter().filter(is_named).collect(),
        containers: by(Dimension::Container).0.into_iter().filter(is_named).collect(),
        pods: by(Dimension::Pod).0.into_iter().filter(is_named).collect(),
    }
}

/// What threads waited for.
pub(super) fn waits(profile: &Profile, question: &Question, selection: &Selection, cells: &Cells) -> Waits {
    let question = Question { metric: Metric::OffCpu, ..question.clone() };
    let (kinds, total) = rows(profile, &question, selection, cells, &[Dimension::Wait]);
    let selection = &selection.clone().hiding_idle(true);
    let idle_ns = selection.hidden(cells).weight;
    let by = |dimension| rows(profile, &question, selection, cells, &[dimension]).0;
    let named = |dimension| by(dimension).into_iter().filter(is_named).collect();
    Waits {
        total_ns: total.weight,
        count: total.samples,
        idle_ns,
        idle_share: share(idle_ns, total.weight),
        kinds,
        syscalls: named(Dimension::Syscall),
        functions: callers_of_kernel(profile, &question, selection, cells),
        wakers: named(Dimension::Waker),
    }
}

/// Whether it is about something that has a name.
fn is_named(row: &OverviewRow) -> bool {
    row.key.0.iter().all(|(_, value)| match value {
        KeyValue::Unknown => false,
        KeyValue::Text(text) => !text.starts_with('['),
        _ => true,
    })
}

/// System calls, by kind and by how they failed.
pub(super) fn calls(
    profile: &Profile,
    question: &Question,
    selection: &Selection,
    cells: &Cells,
) -> Option<Calls> {
    let counted = profile.manifest.settings.syscalls.clone()?;
    let question = Question { metric: Metric::Syscalls, ..question.clone() };
    let (calls, total) = rows(profile, &question, selection, cells, &[Dimension::Syscall]);
    let by_error = rows(profile, &question, selection, cells, &[Dimension::Syscall, Dimension::Errno]).0;
    let failed = |row: &OverviewRow| row.key.get(Dimension::Errno) != Some(&KeyValue::from("ok"));
    let seconds = selection.range.length_ns().max(1) as f64 / 1e9;
    (total.samples > 0).then(|| Calls {
        total: total.weight,
        a_second: rounded(total.weight as f64 / seconds),
        counted,
        calls: calls.into_iter().filter(is_named).collect(),
        errors: by_error.into_iter().filter(failed).collect(),
    })
}

/// Page faults by kind of memory and by function.
pub(super) fn faults(profile: &Profile, question: &Question, selection: &Selection, cells: &Cells) -> Faults {
    let question = Question { metric: Metric::PageFaults, ..question.clone() };
    let by = |dimension| rows(profile, &question, selection, cells, &[dimension]);
    let (regions, total) = by(Dimension::Region);
    Faults { total: total.weight, samples: total.samples, regions, functions: by(Dimension::Function).0 }
}

fn rows(
    profile: &Profile,
    question: &Question,
    selection: &Selection,
    cells: &Cells,
    dimensions: &[Dimension],
) -> (Vec<OverviewRow>, Amount) {
    let group = GroupBy::of(dimensions);
    let grouped = Grouped::new(profile, cells, selection, &group);
    // By self here, whatever the filters: the parts of an overview add up.
    let question = Question { filters: crate::Filters::default(), ..question.clone() };
    let page = Page::of(profile, &question, &group, cells, &grouped);
    let whole = grouped.total.weight;
    let rows = page.keys.into_iter().zip(&page.rows);
    let most = match dimensions == [Dimension::Function] && question.metric == Metric::Cpu {
        true => (FUNCTIONS, LEAST_FUNCTION),
        false => (ROWS, LEAST_SHARE),
    };
    (large(rows.map(|(key, row)| (key, row.2.own)), whole, most), grouped.total)
}

fn large(
    rows: impl Iterator<Item = (Key, u64)>,
    whole: u64,
    (most, least): (usize, f64),
) -> Vec<OverviewRow> {
    rows.map(|(key, own)| OverviewRow { key, own, self_share: share(own, whole) })
        .filter(|row| row.own > 0 && row.self_share >= least)
        .take(most)
        .collect()
}

/// The functions that wait: of each stack the innermost one that is not in the kernel. The kernel's own last function
/// is the same for almost every wait.
fn callers_of_kernel(
    profile: &Profile,
    question: &Question,
    selection: &Selection,
    cells: &Cells,
) -> Vec<OverviewRow> {
    let sums = node_sums(profile, cells, selection);
    let nodes = profile.tree.len();
    let mut inner: Vec<Option<Location>> = vec![None; nodes];
    let mut by_function: FxHashMap<Option<u32>, Amount> = FxHashMap::default();
    for node in 1..nodes {
        let locations = selection.visible_locations(profile, node as u32);
        let user = locations.iter().find(|location| location.mode != FrameMode::Kernel).copied();
        inner[node] = user.or(inner[profile.tree.parent[node] as usize]);
        by_function.entry(inner[node].map(|location| location.function)).or_default().add(sums[node]);
    }
    let words = Words { profile, slots: cells.slots, whole_names: question.whole_names };
    let dimensions = [Dimension::Function];
    let key = |frame| words.key(&dimensions, None, Some(frame));
    let like = |function| Location::of_function(function);
    let kernel_threads = || {
        let threads = KeyValue::from("[kernel threads]");
        Key(vec![(Dimension::Function, threads.clone()), (Dimension::Module, threads)])
    };
    let mut rows: Vec<(Key, u64)> = by_function
        .into_iter()
        .map(|(function, amount)| match function {
            Some(function) => (key(FrameKey::Like(like(function))), amount.weight),
            None => (kernel_threads(), amount.weight),
        })
        .collect();
    rows.push((key(FrameKey::NoFrame), sums[nodes].weight));
    for ending in MARKERS {
        rows.push((key(FrameKey::Marker(ending)), frameless(&sums[nodes..], ending)));
    }
    rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| compare(&a.0, &b.0)));
    let whole = sums.iter().map(|amount| amount.weight).fold(0, u64::saturating_add);
    large(rows.into_iter(), whole, (ROWS, LEAST_SHARE))
}

fn frameless(sums: &[Amount], ending: StackEnding) -> u64 {
    sums.get(FrameKeys::without_frame(ending) as usize).map_or(0, |amount| amount.weight)
}
