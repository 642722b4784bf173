//! What share of the truth an answer rests on, and what one has to know to read it.

use std::collections::BTreeMap;

use uhr_model::{Metric, StackEnding};
use uhr_recording::{SampleLedger, State};

use crate::answers::{Coverage, share};
use crate::cells::{Cells, Source};
use crate::filter::Filters;
use crate::profile::Profile;
use crate::select::Selection;
use crate::window::seconds;

/// The coverage of an answer. It looks at process, thread and time filters only.
pub(crate) fn coverage(
    profile: &Profile,
    metric: Metric,
    filters: &Filters,
    cells: &Cells,
    selection: &Selection,
) -> Coverage {
    let seen = match selection.has_thread_filter() {
        true => &Seen::new(profile, cells, selection),
        false => cells.seen.get_or_init(|| Seen::new(profile, cells, selection)),
    };
    let is_part = selection.has_thread_filter() || !selection.range.whole;
    let ledger = ledger(profile, metric, seen, is_part);
    let explained = [ledger.captured, ledger.lost, ledger.throttled, ledger.not_visible, ledger.too_short];
    let explained = explained.into_iter().fold(0, u64::saturating_add);
    // Timers also run early: what was seen was to be expected.
    let expected = ledger.expected.max(explained);
    let mut coverage = Coverage {
        expected,
        captured: ledger.captured,
        lost: ledger.lost,
        throttled: ledger.throttled,
        not_visible: ledger.not_visible,
        too_short: ledger.too_short,
        drift: expected - explained,
        stacks_complete_share: if metric.has_stacks() { share(seen.complete, seen.stacks) } else { 1.0 },
        truncated: seen.truncated.clone(),
        symbolized_share: if metric.has_stacks() { share(seen.symbolized, seen.with_frame) } else { 1.0 },
        notes: Vec::new(),
    };
    notes(profile, metric, filters, is_part, &mut coverage.notes);
    if seen.stood_for > 0 {
        let without = seen.truncated.get(StackEnding::NotSampled.name()).copied().unwrap_or(0);
        coverage.notes.push(format!(
            "Of {} waits {} had their stack taken; they stand for others of the same thread{} and length.",
            seen.samples,
            seen.samples - seen.stood_for - without,
            if profile.manifest.settings.wait_stacks == "clock" { ", system call" } else { "" },
        ));
    }
    let hidden = selection.hidden(cells);
    if hidden.weight > 0 {
        coverage.notes.push(format!(
            "Idle waits are hidden: {} in {} for work (event loops, pools, servers that accept, threads of the \
             kernel); --idle shows them.",
            seconds(hidden.weight),
            if hidden.samples == 1 { "1 wait".to_owned() } else { format!("{} waits", hidden.samples) }
        ));
    }
    if seen.rows == 0 {
        coverage.notes.push(format!("There is no {} in this part of the recording.", metric.name()));
    }
    coverage
}

/// What the observations themselves say.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    rows: u64,
    weight: u64,
    /// Samples (or waits): all, those that should have a stack, those whose stack is whole.
    samples: u64,
    stacks: u64,
    complete: u64,
    truncated: BTreeMap<String, u64>,
    /// Those that have a frame, and those whose leaf has a name.
    with_frame: u64,
    symbolized: u64,
    not_visible_ns: u64,
    too_short_ns: u64,
    /// Waits without a stack that others stand for.
    stood_for: u64,
}

impl Seen {
    fn new(profile: &Profile, cells: &Cells, selection: &Selection) -> Self {
        let mut seen = Self::default();
        let mut by_tag = vec![0u64; cells.tags.len()];
        let mut named = vec![false; profile.tree.len()];
        for node in 1..profile.tree.len() {
            let leaf = profile.code.of(profile.tree.frame[node]).first();
            named[node] = leaf.is_some_and(|leaf| profile.code.functions[leaf.function as usize].named);
        }
        for cell in (0..cells.len()).filter(|cell| selection.has_thread(cells.thread[*cell])) {
            let count = u64::from(cells.count[cell]);
            seen.rows += 1;
            seen.weight = seen.weight.saturating_add(cells.weight[cell]);
            if cells.is_stood_for(cell) {
                seen.stood_for += count;
                seen.samples += count;
                continue;
            }
            by_tag[cells.tag[cell] as usize] += count;
            if cells.node[cell] != 0 {
                seen.with_frame += count;
                seen.symbolized += count * u64::from(named[cells.node[cell] as usize]);
            }
            match cells.tags[cells.tag[cell] as usize].ending {
                StackEnding::KernelNotVisible => add(&mut seen.not_visible_ns, cells.weight[cell]),
                StackEnding::TooShortToSample => add(&mut seen.too_short_ns, cells.weight[cell]),
                _ => (),
            }
        }
        for (tag, count) in cells.tags.iter().zip(by_tag).filter(|(_, count)| *count > 0) {
            if tag.source == Source::Counted {
                seen.samples += count;
                continue;
            }
            match tag.ending {
                StackEnding::TooShortToSample | StackEnding::KernelNotVisible => continue,
                StackEnding::Complete => seen.complete += count,
                ending => *seen.truncated.entry(ending.name().to_owned()).or_default() += count,
            }
            seen.stacks += count;
            seen.samples += count;
        }
        seen
    }
}

fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

fn ledger(profile: &Profile, metric: Metric, seen: &Seen, is_part: bool) -> SampleLedger {
    let ledger = &profile.manifest.ledger;
    let whole = match metric {
        Metric::Cpu | Metric::Wall => ledger.cpu,
        Metric::PageFaults => ledger.faults,
        Metric::OffCpu | Metric::Runqueue => SampleLedger {
            expected: seen.samples.saturating_add(ledger.records_lost),
            captured: seen.samples,
            lost: ledger.records_lost,
            ..SampleLedger::default()
        },
        Metric::Syscalls | Metric::SyscallTime => SampleLedger {
            expected: seen.samples.saturating_add(ledger.syscalls_lost),
            captured: seen.samples,
            lost: ledger.syscalls_lost,
            ..SampleLedger::default()
        },
        Metric::Resident => SampleLedger::default(),
    };
    // Until a recording has ended nobody has counted what there should be.
    let is_counted = matches!(profile.manifest.state, State::Captured | State::Complete);
    if (!is_part && is_counted) || metric == Metric::Resident {
        return whole;
    }
    let frequency = u64::from(profile.manifest.settings.frequency_hz);
    let samples_in = |ns: u64| (u128::from(ns) * u128::from(frequency) / 1_000_000_000) as u64;
    match metric {
        Metric::Cpu if frequency > 0 => SampleLedger {
            expected: samples_in(seen.weight),
            captured: seen.samples,
            not_visible: samples_in(seen.not_visible_ns),
            too_short: samples_in(seen.too_short_ns),
            ..SampleLedger::default()
        },
        _ => SampleLedger { expected: seen.samples, captured: seen.samples, ..SampleLedger::default() },
    }
}

fn notes(profile: &Profile, metric: Metric, filters: &Filters, is_part: bool, notes: &mut Vec<String>) {
    let manifest = &profile.manifest;
    match manifest.state {
        State::Recording => notes.push(
            "The recording is still being made: this is what it holds so far, without the waits that have not ended."
                .to_owned(),
        ),
        State::Recovered => notes.push(
            "Its recorder was killed: what was written until then was recovered. At most its last second is missing, \
             and the waits that had not ended; what it lost is not known."
                .to_owned(),
        ),
        State::Captured | State::Complete => (),
    }
    notes.extend(manifest.notes.iter().map(|note| crate::names::shown(note, true).into_owned()));
    let says = |word: &str| manifest.notes.iter().any(|note| note.to_lowercase().contains(word));
    if !manifest.settings.kernel_visible && !says("kernel") {
        notes.push(
            "Kernel code was not visible; to see it, record as root or after `sudo sysctl kernel.perf_event_paranoid=1`."
                .to_owned(),
        );
    }
    if matches!(metric, Metric::OffCpu | Metric::Runqueue | Metric::Wall) {
        match manifest.settings.wait_stacks.as_str() {
            "outside" => notes.push(
                "Stacks of waits were read from outside, of waits longer than a few milliseconds; the time of all \
                 waits is exact."
                    .to_owned(),
            ),
            "clock" => notes.push(format!(
                "Stacks of waits were taken by a clock that looked at who waits{}; a wait that was caught stands for \
                 others of its thread, system call and length, and the time of all waits is exact.",
                manifest.settings.wait_period_ns.map_or(String::new(), |ns| format!(" every {}", seconds(ns)))
            )),
            "none" => notes.push("Waits are without stacks; their time is exact.".to_owned()),
            _ => (),
        }
    }
    if metric == Metric::Wall {
        notes.push("Coverage is that of the CPU samples; waits are measured.".to_owned());
    }
    if !profile.code.merged_builds.is_empty() {
        let names: Vec<_> =
            profile.code.merged_builds.iter().take(5).map(|name| crate::names::shown(name, false)).collect();
        notes.push(format!("Several builds are counted as one: {}.", names.join(", ")));
    }
    if is_part && manifest.ledger.cpu.lost > 0 && matches!(metric, Metric::Cpu | Metric::Wall) {
        notes.push(format!(
            "{} samples were lost in the whole recording; of which process and when is not known.",
            manifest.ledger.cpu.lost
        ));
    }
    if filters.stack_filter().is_some() || filters.circumstance_filters().next().is_some() {
        notes.push("Coverage follows the process, thread and time filters only.".to_owned());
    }
}
