//! The pass over the system calls that were counted.

use uhr_model::{Metric, StackEnding};
use uhr_recording::tables::Syscalls;

use super::count::whole;
use super::part::Part;
use super::tag::errno_code;
use super::{By, Source, Tag};
use crate::QueryError;
use crate::call_windows::CallWindows;
use crate::profile::Profile;

pub(super) fn count_calls(profile: &Profile, metric: Metric, by: By) -> Result<Vec<Part<'_>>, QueryError> {
    const COLUMNS: &[&str] = &["time_ns", "thread", "syscall", "error", "count", "weight", "duration_ns"];
    let windows = CallWindows::of(profile, by.slots.range)?;
    profile.observations.read(COLUMNS, |rows: &Syscalls, range| {
        let lengths = [
            rows.thread.len(),
            rows.syscall.len(),
            rows.error.len(),
            rows.count.len(),
            rows.weight.len(),
            rows.duration_ns.len(),
        ];
        whole("syscalls", rows.time_ns.len(), &lengths)?;
        let mut part = Part::new(profile, by);
        for row in range {
            let Some(slot) = part.slot_of(rows.time_ns[row]) else { continue };
            let count = rows.count[row];
            let is_count = metric == Metric::Syscalls;
            let own = if is_count { rows.weight[row] } else { rows.duration_ns[row] };
            let weight = windows.as_ref().map_or(own, |windows| windows.scaled(own, rows.time_ns[row]));
            let mut tag = Tag::new(Source::Counted, StackEnding::Complete, errno_code(rows.error[row]));
            tag.syscall = rows.syscall[row].filter(|_| by.details.syscall);
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            part.add((rows.thread[row], 0), slot, tag, (count, weight))?;
        }
        Ok(part)
    })
}
