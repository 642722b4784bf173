//! Which threads are the kernel's.

use crate::RecordingError;
use crate::reader::Recording;
use crate::tables::{Mappings, ThreadRow};

/// For each thread, whether it is one of the kernel: its process has no program and no mapping. Either alone may be
/// missing of a short process, or of one that the recorder was not allowed to look at.
///
/// # Errors
/// [`RecordingError::Damaged`] or [`RecordingError::Io`].
pub fn kernel_threads(recording: &Recording, threads: &[ThreadRow]) -> Result<Vec<bool>, RecordingError> {
    let processes = recording.processes()?;
    let mut has_user_code: Vec<bool> = processes.iter().map(|process| process.executable.is_some()).collect();
    for process in recording.table::<Mappings>()?.process {
        if let Some(has) = has_user_code.get_mut(process as usize) {
            *has = true;
        }
    }
    let is_kernel = |thread: &ThreadRow| has_user_code.get(thread.process as usize) == Some(&false);
    Ok(threads.iter().map(is_kernel).collect())
}
