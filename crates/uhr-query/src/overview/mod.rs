//! `uhr overview`: computing or waiting? on what? how big? can it be trusted? The parts are put together here; what
//! each says is in a file of its own.

mod activity;
mod machine;
mod size;
mod top;

use std::collections::BTreeMap;

use uhr_model::{Dimension, Metric};
use uhr_recording::UhrCost;

use crate::QueryError;
use crate::answers::{
    Activity, Key, KeyValue, Memory, OverviewAnswer, OverviewRequest, OverviewRow, Top, Trust, Verdict,
    Waits, rounded,
};
use crate::cells::{By, Cells, Details, Owner, WakerDetail};
use crate::coverage::coverage;
use crate::filter::Filters;
use crate::profile::Profile;
use crate::question::Question;
use crate::resident;
use crate::select::Selection;
use crate::window::Slots;

/// Rows of each list, and the share below which rows are left out.
const ROWS: usize = 3;
const LEAST_SHARE: f64 = 0.05;
/// The same for the functions that compute, of which more are worth a look.
const FUNCTIONS: usize = 5;
const LEAST_FUNCTION: f64 = 0.01;

/// Answers what a recording holds.
///
/// # Errors
/// [`QueryError`]: a filter does not fit, or the recording is damaged.
pub fn overview(
    profile: &Profile,
    filters: &Filters,
    whole_names: bool,
) -> Result<OverviewAnswer, QueryError> {
    let question =
        Question { filters: filters.clone(), limit: FUNCTIONS, whole_names, ..Question::default() };
    let selection = Selection::new(profile, Metric::Cpu, filters)?;
    let slots = Slots::blocks(selection.range);
    let count =
        |metric, owner, details| profile.cells(metric, By { slots, owner: selection.owner(owner), details });
    let syscalls = Details { syscall: true, ..Details::default() };
    let wakers = Details { waker: WakerDetail::Who, ..Details::default() };
    let cpu = count(Metric::Cpu, Owner::Thread, syscalls)?;
    let off_cpu = count(Metric::OffCpu, Owner::Process, wakers)?;
    let runqueue = count(Metric::Runqueue, Owner::Process, Details::default())?;
    let faults = count(Metric::PageFaults, Owner::Nobody, Details::default())?;
    let calls = count(Metric::Syscalls, Owner::Nobody, syscalls)?;
    let times = activity::Times::new(profile, &selection, [&*cpu, &*off_cpu, &*runqueue]);
    let top = top::cpu(profile, &question, &selection, &cpu);
    let waits = top::waits(profile, &question, &selection, &off_cpu);
    let activity = times.activity(profile, waits.idle_ns);
    let memory = memory(profile, &selection, whole_names)?;
    let machine = machine::machine(profile, &activity, selection.range.length_ns());
    let trust = trust(profile, filters, &cpu, &selection);
    let found = Found {
        profile,
        question: &question,
        activity: &activity,
        samples: trust.coverage.captured,
        top: &top,
        waits: &waits,
        memory: &memory,
    };
    let next = next(&found);
    let mut answer = OverviewAnswer {
        schema: "uhr.overview/1",
        ok: true,
        recording: profile.summary(),
        request: OverviewRequest { filters: filters.clone() },
        processes: times.processes(profile, ROWS, whole_names),
        activity,
        cpu: top,
        waits,
        syscalls: top::calls(profile, &question, &selection, &calls),
        memory,
        faults: top::faults(profile, &question, &selection, &faults),
        machine,
        trust,
        next,
    };
    if !whole_names {
        size::shorten(&mut answer);
    }
    Ok(answer)
}

fn memory(profile: &Profile, selection: &Selection, whole_names: bool) -> Result<Vec<Memory>, QueryError> {
    let growth = resident::growth(profile, selection, selection.range)?;
    let largest = growth.first().map_or(0, |(_, _, peak, _)| *peak);
    let rows =
        growth.into_iter().take(ROWS).filter(|(_, _, peak, _)| *peak as f64 >= largest as f64 * LEAST_SHARE);
    let row = |(process, first, peak, last): (u32, u64, u64, u64)| Memory {
        key: Key(vec![(Dimension::Process, profile.owners.process_key(process as usize, whole_names))]),
        first,
        peak,
        last,
        growth: i64::try_from(i128::from(last) - i128::from(first)).unwrap_or(i64::MAX),
    };
    Ok(rows.map(row).collect())
}

fn trust(profile: &Profile, filters: &Filters, cpu: &Cells, selection: &Selection) -> Trust {
    let manifest = &profile.manifest;
    let length = (profile.end_ns - profile.start_ns()).max(1);
    Trust {
        coverage: coverage(profile, Metric::Cpu, filters, cpu, selection),
        kernel_visible: manifest.settings.kernel_visible,
        unwind: manifest.settings.unwind.clone(),
        frequency_hz: u64::from(manifest.settings.frequency_hz),
        records_lost: manifest.ledger.records_lost,
        uhr_cpu_share: rounded(manifest.cost.cpu_ns as f64 / length as f64),
        uhr_kernel_share: manifest.cost.kernel_ns.map(|ns| rounded(ns as f64 / length as f64)),
        uhr_programs: programs(&manifest.cost, length),
        uhr_peak_memory_bytes: manifest.cost.peak_memory_bytes,
    }
}

/// What each program of uhr took in the kernel, as a share of one CPU; what hardly counts is left out.
fn programs(cost: &UhrCost, length_ns: u64) -> BTreeMap<String, f64> {
    let all_ns = cost.programs.values().map(|program| program.ns).fold(0, u64::saturating_add);
    let large = cost.programs.iter().filter(|(_, program)| program.ns > 0 && program.ns >= all_ns / 100);
    large.map(|(name, program)| (name.clone(), rounded(program.ns as f64 / length_ns as f64))).collect()
}

/// What was found, as far as it decides what to ask next.
struct Found<'a> {
    profile: &'a Profile,
    question: &'a Question,
    activity: &'a Activity,
    /// CPU samples that there are.
    samples: u64,
    top: &'a Top,
    waits: &'a Waits,
    memory: &'a [Memory],
}

/// Memory that grew by this many bytes, and by a fifth, is worth a question.
const NOTABLE_GROWTH: i64 = 16 << 20;

fn next(found: &Found<'_>) -> Vec<String> {
    let about = |metric| Question { metric, ..found.question.clone() };
    let query = |metric, by: &str| about(metric).command("query", found.profile).with("group-by", by).text();
    let paths = |metric, rows: &[OverviewRow]| {
        let name = rows.iter().find_map(|row| match row.key.get(Dimension::Function) {
            Some(KeyValue::Text(name)) if !name.starts_with('[') => Some(name),
            _ => None,
        })?;
        Some(about(metric).command("call-paths", found.profile).with("function", name).text())
    };
    // Of what no sample was taken of nothing can be asked.
    let cpu = (found.samples > 0).then(|| query(Metric::Cpu, "function"));
    let waits = (found.waits.total_ns > 0).then(|| query(Metric::OffCpu, "wait,function"));
    let mut next = match found.activity.verdict {
        Verdict::Computing | Verdict::Mixed | Verdict::Nothing => Vec::from_iter(cpu.clone()),
        Verdict::Waiting => {
            let wakers = (!found.waits.wakers.is_empty()).then(|| query(Metric::OffCpu, "waker"));
            [query(Metric::OffCpu, "thread,wait")].into_iter().chain(wakers).collect()
        }
        Verdict::Starved => [query(Metric::Runqueue, "thread")].into_iter().chain(cpu.clone()).collect(),
    };
    next.extend(match found.activity.verdict {
        Verdict::Waiting => paths(Metric::OffCpu, &found.waits.functions),
        _ => paths(Metric::Cpu, &found.top.functions),
    });
    let grew = |row: &Memory| row.growth >= NOTABLE_GROWTH && row.growth as u64 >= row.peak / 5;
    if found.memory.iter().any(grew) {
        next.push(query(Metric::PageFaults, "region,function"));
    }
    if found.top.processes.len() > 1 {
        next.push(query(Metric::Cpu, "process"));
    }
    next.extend(match found.activity.verdict {
        Verdict::Waiting => cpu,
        _ => waits,
    });
    if next.is_empty() {
        next.push("uhr record --help".to_owned());
    }
    next.truncate(3);
    next
}
