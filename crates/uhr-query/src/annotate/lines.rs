//! A function line by line: its own lines, with what was inlined into each in its total.

use uhr_model::Dimension;

use super::source::Sources;
use super::{Asked, Shape};
use crate::answers::{Annotated, LineRow, share};
use crate::group::{FrameKey, GroupBy};
use crate::profile::{Location, NONE};
use crate::rollup::{Grouped, Sums};
use crate::statistics::Interval;

/// What tells lines apart.
pub(super) const DIMENSIONS: &[Dimension] = &[Dimension::Function, Dimension::File, Dimension::Line];

impl Asked<'_> {
    pub(super) fn lines(&self, grouped: &Grouped, group: &GroupBy, sources: &mut Sources<'_>) -> Shape {
        let keys = grouped.frames.as_ref().map_or(&[][..], |frames| &frames.keys);
        let location = |key: u32| match keys.get(key as usize) {
            Some(FrameKey::Like(location)) if self.wanted.contains(&location.function) => Some(*location),
            _ => None,
        };
        let costly = self.costly(grouped, group, |key| location(key).is_some());
        let mut page: Vec<(Location, Sums, [Interval; 2])> = costly
            .page
            .iter()
            .filter_map(|(key, sums, intervals)| Some((location(*key)?, *sums, *intervals)))
            .collect();
        page.sort_by_key(|(location, ..)| (self.file(*location), location.line, location.function));
        // First all lines are looked for: a file that lacks one of them is another file.
        for (location, ..) in &page {
            self.source_line(*location, sources);
        }
        let whole = grouped.total.weight;
        let row = |(location, sums, intervals): (Location, Sums, [Interval; 2])| LineRow {
            file: self.file(location).map(|file| self.name(file)),
            line: (location.line != NONE).then_some(u64::from(location.line)),
            text: self.source_line(location, sources),
            own: sums.own,
            total: sums.total,
            self_share: share(sums.own, whole),
            total_share: share(sums.total, whole),
            self_samples: sums.own_samples,
            total_samples: sums.total_samples,
            self_share_ci95: intervals[0].ends,
            total_share_ci95: intervals[1].ends,
            interval_note: intervals[0].note.or(intervals[1].note),
        };
        let rows: Vec<LineRow> = page.into_iter().map(row).collect();
        let mut notes = Vec::new();
        if rows.iter().any(|row| row.line.is_none()) {
            notes.push(
                "Of some or all of the function no lines are known: its module has no debug information for it."
                    .to_owned(),
            );
        }
        Shape { rows: Annotated::Lines(rows), costly, notes, inlined: None }
    }

    pub(super) fn file(&self, location: Location) -> Option<&str> {
        self.profile.code.files.get(location.file as usize).map(|file| &**file)
    }

    pub(super) fn source_line(&self, location: Location, sources: &mut Sources<'_>) -> Option<String> {
        let file = self.file(location).filter(|_| location.line != NONE)?;
        sources.line(file, location.line)
    }
}
