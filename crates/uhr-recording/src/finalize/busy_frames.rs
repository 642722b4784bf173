//! How much there is of each frame, before anything has its final number.

use crate::RecordingError;
use crate::columns::Table;
use crate::reader::Recording;
use crate::tables::{Faults, OffCpu, Samples, Stacks};

/// How much there is of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Busy {
    /// Samples of CPU time that end in it.
    pub own: u64,
    /// Samples, waits and page faults that it stands in; recursion counts each time.
    pub total: u64,
}

/// How much there is of each frame that was recorded, by its number before [`crate::finalize()`].
///
/// # Errors
/// If the tables cannot be read.
pub fn busy_frames(recording: &Recording, frames: usize) -> Result<Vec<Busy>, RecordingError> {
    let stacks: Stacks = recording.table()?;
    let mut through = vec![0u64; stacks.len()];
    let add = |sums: &mut Vec<u64>, stack: u32| {
        if let Some(sum) = sums.get_mut(stack as usize) {
            *sum += 1;
        }
    };
    recording.read_batches::<Samples>(|rows| {
        rows.stack.iter().for_each(|&stack| add(&mut through, stack));
        Ok(())
    })?;
    let own = through.clone();
    recording.read_batches::<OffCpu>(|rows| {
        rows.stack.iter().for_each(|&stack| add(&mut through, stack));
        Ok(())
    })?;
    recording.read_batches::<Faults>(|rows| {
        rows.stack.iter().for_each(|&stack| add(&mut through, stack));
        Ok(())
    })?;
    let mut of_frame = vec![Busy::default(); frames];
    // Callers come before what they call: from the end, a node is complete when it is met.
    for node in (0..stacks.len()).rev() {
        let amount = through[node];
        if let Some(frame) = stacks.frame[node].and_then(|frame| of_frame.get_mut(frame as usize)) {
            frame.own = frame.own.saturating_add(own[node]);
            frame.total = frame.total.saturating_add(amount);
        }
        if let Some(parent) =
            stacks.parent[node].map(|parent| parent as usize).filter(|&parent| parent < node)
        {
            through[parent] = through[parent].saturating_add(amount);
        }
    }
    Ok(of_frame)
}
