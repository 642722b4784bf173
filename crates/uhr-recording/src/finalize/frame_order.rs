//! Frames in the order of their addresses, so that their columns compress by differences: 78 KB of addresses became 25
//! in a 14 s recording of Node.

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
        rows.sort_by_key(|row| (row.module, row.address, row.mode, row.is_return));
        let mut new_of_old = vec![0; rows.len()];
        for (new, row) in rows.iter_mut().enumerate() {
            if let Some(slot) = new_of_old.get_mut(row.id as usize) {
                *slot = new as u32;
            }
            row.id = new as u32;
        }
        Ok(Self { rows, new_of_old })
    }

    /// The final number of a frame.
    pub(super) fn of(&self, old: u32) -> u32 {
        self.new_of_old.get(old as usize).copied().unwrap_or(0)
    }

    /// Renumbers the names, and puts them in the order of their frames.
    pub(super) fn renumber(&self, mut locations: Vec<LocationRow>) -> Vec<LocationRow> {
        locations.iter_mut().for_each(|row| row.frame = self.of(row.frame));
        locations.sort_by_key(|row| (row.frame, row.depth));
        locations
    }

    /// The rows in their final order.
    pub(super) fn into_rows(self) -> Vec<FrameRow> {
        self.rows
    }
}
