//! From streams to Parquet: the capture has ended, and the tables take the form in which they are kept.
//!
//! Stacks and frames get their final order, rows what they stand for; everything else is copied. Parquet files are written
//! under temporary names and renamed, then the manifest says that they count, and the streams go last: a kill at any
//! moment loses nothing.

mod busy_frames;
mod frame_order;
mod kernel_threads;
mod late_names;
mod parquet_table;
mod stack_order;
mod switch_cost;
mod waits;
mod weights;

pub use busy_frames::{Busy, busy_frames};
use frame_order::FrameOrder;
pub use kernel_threads::kernel_threads;
pub use late_names::{Added, add_names};
use parquet_table::{copy, write_rows};
use stack_order::StackOrder;
use waits::{EarlierWaits, Waits};
pub use weights::{CpuWeights, Scale};

use crate::RecordingError;
use crate::manifest::{Manifest, State};
use crate::reader::Recording;
use crate::tables::{
    CodeLineRow, CodeLines, Faults, Frames, LocationRow, Locations, MachineCode, MachineCodeRow,
    MappingNames, Mappings, Modules, OffCpu, Processes, Resident, Samples, SourceLines, Stacks,
    SyscallWindows, Syscalls, ThreadRow, Threads, Wakers,
};
use crate::wait_hints::{FrameHint, NodeHint};
use crate::wait_kinds::WaitKinds;
use crate::writer::write_manifest;

/// What [`finalize`] adds to a recording: the names of its frames.
#[derive(Debug, Default)]
pub struct Finalized {
    /// Rows of `locations`, in the order of frames.
    pub locations: Vec<LocationRow>,
    /// For each module, where its names came from.
    pub module_symbols: Vec<Option<String>>,
    /// Frames by outcome, for the ledger.
    pub frames: std::collections::BTreeMap<String, u64>,
    /// For each frame, what its functions tell of waits.
    pub frame_hints: Vec<FrameHint>,
    /// Rows of `code`, in any order.
    pub code: Vec<MachineCodeRow>,
    /// Rows of `code_lines`, in any order.
    pub code_lines: Vec<CodeLineRow>,
    /// Sentences about names, for the manifest.
    pub notes: Vec<String>,
}

/// Writes the finished tables of a captured recording and marks it complete.
///
/// # Errors
/// [`RecordingError::Io`] if the disk is full or gone: the recording is then still there as it was.
pub fn finalize(recording: &Recording, names: Finalized) -> Result<Manifest, RecordingError> {
    let result = write_tables(recording, names);
    if result.is_err() {
        // On a full disk what was begun is in the way.
        for entry in std::fs::read_dir(recording.folder()).into_iter().flatten().flatten() {
            if entry.file_name().as_encoded_bytes().ends_with(b".parquet.new") {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
    result
}

fn write_tables(recording: &Recording, mut names: Finalized) -> Result<Manifest, RecordingError> {
    let folder = recording.folder();
    let mut manifest = recording.manifest.clone();
    let mut threads = recording.threads()?;
    let frames = FrameOrder::read(recording)?;
    let hints = frames.reorder(&names.frame_hints);
    let mut modules = recording.modules()?;
    for (module, symbols) in modules.iter_mut().zip(names.module_symbols) {
        module.symbols = symbols;
    }
    let seen = EarlierWaits::read(recording, threads.len())?;
    seen.cost.give_to(&mut threads);
    let remap = StackOrder::read(recording, &frames, &seen.waker_stacks, &hints)?;
    let of_node = NodeHint::of_nodes(remap.nodes(), &hints);
    let samples = write_samples(recording, &threads, &remap, &of_node)?;
    let kinds = WaitKinds {
        of_node,
        of_interrupt: remap.of_interrupt(),
        is_kernel_thread: kernel_threads(recording, &threads)?,
    };
    let mut waits = Waits::new(seen, &remap, kinds);
    let mut sampled = 0u64;
    recording.read_batches::<Faults>(|rows| {
        sampled = rows.weight.iter().fold(sampled, |sum, weight| sum.saturating_add(*weight));
        Ok(())
    })?;
    // A recorder that was killed left no count.
    let counted = manifest.ledger.faults.expected;
    let mut faults = Scale::new(sampled, if counted == 0 { sampled } else { counted });
    names.code.sort_by_key(|row| (row.module, row.start));
    names.code_lines.sort_by_key(|row| (row.module, row.address, row.depth));
    let sizes = [
        write_rows::<Stacks>(folder, remap.rows())?,
        samples,
        copy::<OffCpu>(recording, |rows| waits.finish(rows))?,
        write_rows::<Wakers>(folder, waits.wakers())?,
        copy::<Faults>(recording, |rows| {
            rows.stack.iter_mut().for_each(|stack| *stack = remap.of(*stack));
            faults.scale(&mut rows.weight);
        })?,
        copy::<MappingNames>(recording, |_| ())?,
        copy::<SourceLines>(recording, |_| ())?,
        copy::<Resident>(recording, |_| ())?,
        copy::<Syscalls>(recording, |_| ())?,
        copy::<SyscallWindows>(recording, |_| ())?,
        copy::<Mappings>(recording, |_| ())?,
        write_rows::<Threads>(folder, threads)?,
        write_rows::<Processes>(folder, recording.processes()?)?,
        write_rows::<Modules>(folder, modules)?,
        write_rows::<Locations>(folder, frames.renumber(names.locations))?,
        write_rows::<Frames>(folder, frames.into_rows())?,
        write_rows::<MachineCode>(folder, names.code)?,
        write_rows::<CodeLines>(folder, names.code_lines)?,
    ];

    manifest.state = State::Complete;
    manifest.ledger.frames = names.frames;
    manifest.notes.extend(names.notes);
    manifest.table_bytes = sizes.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
    for name in manifest.table_bytes.keys() {
        let path = folder.join(format!("{name}.parquet"));
        std::fs::rename(folder.join(format!("{name}.parquet.new")), &path)
            .map_err(RecordingError::io("write", &path))?;
    }
    write_manifest(folder, &manifest)?;
    for name in manifest.table_bytes.keys() {
        let _ = std::fs::remove_file(folder.join(format!("{name}.arrows")));
    }
    Ok(manifest)
}

fn write_samples(
    recording: &Recording,
    threads: &[ThreadRow],
    remap: &StackOrder,
    of_node: &[NodeHint],
) -> Result<(&'static str, u64), RecordingError> {
    let mut weights = CpuWeights::of(threads);
    recording.read_batches::<Samples>(|rows| {
        weights.learn(&rows);
        Ok(())
    })?;
    copy::<Samples>(recording, |rows| {
        weights.apply(rows);
        rows.stack.iter_mut().for_each(|stack| *stack = remap.of(*stack));
        NodeHint::tell_syscalls(of_node, &rows.stack, &mut rows.syscall);
    })
}
