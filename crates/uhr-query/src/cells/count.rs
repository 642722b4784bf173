//! One pass over each table of observations.

use uhr_model::{Metric, StackEnding};
use uhr_recording::tables::{Faults, OffCpu, Samples};

use super::part::{Part, Span, damaged};
use super::tag::{MappingName, fault_code};
use super::{By, Details, Source, Tag, WakerDetail};
use crate::QueryError;
use crate::profile::Profile;

fn ending(code: u8) -> Result<StackEnding, QueryError> {
    StackEnding::from_code(code).ok_or_else(|| damaged("a stack's ending is unknown"))
}

pub(super) fn whole(table: &str, rows: usize, columns: &[usize]) -> Result<(), QueryError> {
    match columns.iter().all(|&length| length == rows) {
        true => Ok(()),
        false => Err(QueryError::Damaged(format!("{table} lacks a column"))),
    }
}

pub(super) fn count_samples(profile: &Profile, by: By) -> Result<Vec<Part<'_>>, QueryError> {
    let Details { syscall: with_syscall, cpu: with_cpu, .. } = by.details;
    let mut columns = vec!["time_ns", "thread", "stack", "weight_ns", "ending"];
    columns.extend(with_syscall.then_some("syscall"));
    columns.extend(with_cpu.then_some("cpu"));
    profile.observations.read(&columns, |rows: &Samples, range| {
        let mut lengths = vec![rows.thread.len(), rows.stack.len(), rows.weight_ns.len(), rows.ending.len()];
        lengths.extend(with_syscall.then_some(rows.syscall.len()));
        lengths.extend(with_cpu.then_some(rows.cpu.len()));
        whole("samples", rows.time_ns.len(), &lengths)?;
        let mut part = Part::new(profile, by);
        for row in range {
            let Some(slot) = part.slot_of(rows.time_ns[row]) else { continue };
            let ending = ending(rows.ending[row])?;
            let mut tag = Tag::new(Source::Sampled, ending, 0);
            if with_syscall {
                tag.syscall = rows.syscall[row];
            }
            if with_cpu {
                tag.cpu = Some(rows.cpu[row]);
            }
            let samples = u32::from(!ending.is_without_sample());
            part.add((rows.thread[row], rows.stack[row]), slot, tag, (samples, rows.weight_ns[row]))?;
        }
        Ok(part)
    })
}

pub(super) fn count_faults(profile: &Profile, by: By) -> Result<Vec<Part<'_>>, QueryError> {
    let with_mapping = by.details.mapping;
    let mut columns = vec!["time_ns", "thread", "stack", "ending", "region", "weight", "major", "page"];
    columns.extend(with_mapping.then_some("mapping"));
    profile.observations.read(&columns, |rows: &Faults, range| {
        let mut lengths = vec![
            rows.thread.len(),
            rows.stack.len(),
            rows.ending.len(),
            rows.region.len(),
            rows.weight.len(),
            rows.major.len(),
            rows.page.len(),
        ];
        lengths.extend(with_mapping.then_some(rows.mapping.len()));
        whole("faults", rows.time_ns.len(), &lengths)?;
        let mut part = Part::new(profile, by);
        for row in range {
            let Some(slot) = part.slot_of(rows.time_ns[row]) else { continue };
            let kind = fault_code(rows.region[row], rows.major[row], rows.page[row]);
            let mut tag = Tag::new(Source::Sampled, ending(rows.ending[row])?, kind);
            if let Some(mapping) = rows.mapping.get(row).copied().flatten().filter(|_| with_mapping) {
                tag.mapping = MappingName::Row(profile.mapping_names.checked(mapping)?);
            }
            part.add((rows.thread[row], rows.stack[row]), slot, tag, (1, rows.weight[row]))?;
        }
        Ok(part)
    })
}

pub(super) fn count_off_cpu(profile: &Profile, metric: Metric, by: By) -> Result<Vec<Part<'_>>, QueryError> {
    let waker = by.details.waker;
    let mut columns = vec![
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
    columns.extend((waker >= WakerDetail::Who).then_some("waker"));
    columns.extend((waker >= WakerDetail::Chain).then_some("waker_stack"));
    profile.observations.read(&columns, |rows: &OffCpu, range| {
        let lengths = [
            rows.end_ns.len(),
            rows.duration_ns.len(),
            rows.weight_ns.len(),
            rows.count.len(),
            rows.thread.len(),
        ];
        let mut more = vec![
            rows.stack.len(),
            rows.ending.len(),
            rows.runnable.len(),
            rows.wait.len(),
            rows.syscall.len(),
        ];
        more.extend((waker >= WakerDetail::Who).then_some(rows.waker.len()));
        more.extend((waker >= WakerDetail::Chain).then_some(rows.waker_stack.len()));
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
                let is_stood_for = ending == StackEnding::NotSampled && span.weight == 0 && span.count > 0;
                let mut tag = Tag { syscall, is_stood_for, ..Tag::new(source, ending, kind) };
                if waker >= WakerDetail::Who {
                    tag.waker = waker_of(profile, rows.waker[row], waker)?;
                }
                if waker >= WakerDetail::Chain {
                    let node = profile.tree.node(rows.waker_stack[row]);
                    tag.waker_node = node.ok_or_else(|| damaged("a stack is missing"))?;
                }
                part.add_span((rows.thread[row], rows.stack[row]), tag, span)?;
            }
        }
        Ok(part)
    })
}

/// The waker's row, or where no more is asked, the one that stands for all of the same thread.
fn waker_of(profile: &Profile, row: u32, detail: WakerDetail) -> Result<u32, QueryError> {
    match profile.wakers.who.get(row as usize) {
        None => Err(damaged("a waker is missing")),
        Some(&who) => Ok(if detail == WakerDetail::Who { who } else { row }),
    }
}
