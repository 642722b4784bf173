//! Frames in the order of their addresses, so that their columns compress by differences: 78 KB of addresses became 25
//! in a 14 s recording of Node. Every epoch of the recorder numbers its frames anew; here equal ones become one.

use crate::RecordingError;
use crate::columns::Table;
use crate::reader::Recording;
use crate::tables::{FrameRow, Frames, LocationRow};

/// The final number of each frame.
#[derive(Debug)]
pub(super) struct FrameOrder {
    rows: Vec<FrameRow>,
    new_of_old: Vec<u32>,
}

impl FrameOrder {
    /// Sorts the frames that were recorded.
    pub(super) fn read(recording: &Recording) -> Result<Self, RecordingError> {
        let frames: Frames = recording.table()?;
        let mut rows: Vec<FrameRow> = (0..frames.len()).map(|row| frames.row(row)).collect();
        let key = |row: &FrameRow| (row.module, row.address, row.mode, row.is_return);
        rows.sort_by_key(key);
        let mut new_of_old = vec![0; rows.len()];
        let mut kept: Vec<FrameRow> = Vec::with_capacity(rows.len());
        for row in rows {
            let old = row.id;
            if kept.last().is_none_or(|last| key(last) != key(&row)) {
                kept.push(FrameRow { id: kept.len() as u32, ..row });
            }
            if let Some(slot) = new_of_old.get_mut(old as usize) {
                *slot = kept.len() as u32 - 1;
            }
        }
        let rows = kept;
        Ok(Self { rows, new_of_old })
    }

    /// The final number of a frame.
    pub(super) fn of(&self, old: u32) -> u32 {
        self.new_of_old.get(old as usize).copied().unwrap_or(0)
    }

    /// What is known of each frame, in the order of their old numbers, put in the final order.
    pub(super) fn reorder<T: Copy + Default>(&self, of_old: &[T]) -> Vec<T> {
        let mut of_new = vec![T::default(); self.rows.len()];
        for (old, &new) in self.new_of_old.iter().enumerate() {
            if let (Some(slot), Some(value)) = (of_new.get_mut(new as usize), of_old.get(old)) {
                *slot = *value;
            }
        }
        of_new
    }

    /// Renumbers the names, and puts them in the order of their frames.
    pub(super) fn renumber(&self, mut locations: Vec<LocationRow>) -> Vec<LocationRow> {
        locations.iter_mut().for_each(|row| row.frame = self.of(row.frame));
        locations.sort_by_key(|row| (row.frame, row.depth));
        locations.dedup_by_key(|row| (row.frame, row.depth));
        locations
    }

    /// The rows in their final order.
    pub(super) fn into_rows(self) -> Vec<FrameRow> {
        self.rows
    }
}
