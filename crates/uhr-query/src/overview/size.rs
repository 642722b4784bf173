//! An overview is to be read at once: in JSON it stays under 4 KiB, if the names in it allow that.

use crate::answers::{OverviewAnswer, OverviewRow};

/// The most bytes of JSON, where a list can still lose a row.
const LARGEST: usize = 4096;

/// Takes rows away, of all lists that have more than one always the one with the smallest share.
pub(super) fn shorten(answer: &mut OverviewAnswer) {
    while serde_json::to_vec(answer).is_ok_and(|json| json.len() >= LARGEST) {
        let smallest = lists(answer)
            .into_iter()
            .filter(|list| list.len() > 1)
            .min_by(|a, b| smallest_share(a).total_cmp(&smallest_share(b)));
        let Some(list) = smallest else { return };
        list.pop();
    }
}

/// Lists are sorted by share.
fn smallest_share(list: &[OverviewRow]) -> f64 {
    list.last().map_or(0.0, |row| row.self_share)
}

fn lists(answer: &mut OverviewAnswer) -> Vec<&mut Vec<OverviewRow>> {
    let calls =
        answer.syscalls.as_mut().map_or_else(Vec::new, |calls| vec![&mut calls.calls, &mut calls.errors]);
    let (cpu, waits, faults) = (&mut answer.cpu, &mut answer.waits, &mut answer.faults);
    let mut lists = vec![
        &mut cpu.processes,
        &mut cpu.threads,
        &mut cpu.modes,
        &mut cpu.modules,
        &mut cpu.functions,
        &mut cpu.syscalls,
        &mut cpu.containers,
        &mut cpu.pods,
        &mut waits.kinds,
        &mut waits.syscalls,
        &mut waits.functions,
        &mut waits.wakers,
        &mut faults.regions,
        &mut faults.functions,
    ];
    lists.extend(calls);
    lists
}
