//! From streams to Parquet: the capture has ended, and the tables take the form in which they are kept.
//!
//! The stack tree was written in the order of discovery, and anew after every epoch; here equal nodes become one and the
//! order becomes depth-first, which compresses better and lets a query roll it up in one pass. CPU samples get the time
//! that they stand for. Everything else is copied. Parquet files are written under temporary names and renamed; the
//! streams are removed only when every table and the manifest are in place, so a kill at any moment loses nothing.

use std::collections::HashMap;
use std::fs::File;
use std::hash::BuildHasherDefault;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use rustc_hash::FxHasher;
use uhr_model::{StackEnding, WaitKind};

use crate::RecordingError;
use crate::columns::Table;
use crate::manifest::{Manifest, State};
use crate::reader::{Recording, append};
use crate::tables::{
    Faults, Frames, LocationRow, Locations, Mappings, Modules, OffCpu, Processes, Resident, Samples,
    StackRow, Stacks, ThreadRow, Threads,
};
use crate::wait_shares::WaitShares;
use crate::writer::write_manifest;

type FxMap<K, V> = HashMap<K, V, BuildHasherDefault<FxHasher>>;

/// Rows a row group: small enough that a query reads groups in parallel, large enough that dictionaries pay.
const ROWS_PER_GROUP: usize = 1 << 18;

/// What [`finalize`] adds to a recording: the names of its frames.
#[derive(Debug, Default)]
pub struct Finalized {
    /// Rows of `locations`, in the order of frames.
    pub locations: Vec<LocationRow>,
    /// For each module, where its names came from.
    pub module_symbols: Vec<Option<String>>,
    /// Frames by outcome, for the ledger.
    pub frames: std::collections::BTreeMap<String, u64>,
    /// For each frame, the kind of wait that its function stands for, if it stands for one.
    pub frame_waits: Vec<Option<WaitKind>>,
    /// Sentences about names, for the manifest.
    pub notes: Vec<String>,
}

/// Writes the finished tables of a captured recording and marks it complete.
///
/// # Errors
/// [`RecordingError::Io`] if the disk is full or gone: the recording is then still there as it was.
pub fn finalize(recording: &Recording, names: Finalized) -> Result<Manifest, RecordingError> {
    let folder = recording.folder();
    let mut manifest = recording.manifest.clone();
    let threads = recording.threads()?;
    let remap = StackOrder::read(recording)?;

    let mut modules = recording.modules()?;
    for (module, symbols) in modules.iter_mut().zip(names.module_symbols) {
        module.symbols = symbols;
    }
    let node_waits = remap.waits(&names.frame_waits);
    let mut wait_shares = WaitShares::default();
    recording.read_batches::<OffCpu>(|rows| {
        wait_shares.learn(&rows);
        Ok(())
    })?;
    let mut sampled = 0u64;
    recording.read_batches::<Faults>(|rows| {
        sampled = rows.weight.iter().fold(sampled, |sum, weight| sum.saturating_add(*weight));
        Ok(())
    })?;
    let mut faults = Scale::new(sampled, manifest.ledger.faults.expected);
    let renumber = |stacks: &mut Vec<u32>| stacks.iter_mut().for_each(|stack| *stack = remap.of(*stack));
    let sizes = [
        write_rows::<Stacks>(folder, remap.rows())?,
        write_samples(recording, &threads, &remap)?,
        copy::<OffCpu>(recording, |rows| {
            renumber(&mut rows.stack);
            name_waits(rows, &node_waits);
            wait_shares.apply(rows);
        })?,
        copy::<Faults>(recording, |rows| {
            renumber(&mut rows.stack);
            faults.scale(&mut rows.weight);
        })?,
        copy::<Resident>(recording, |_| ())?,
        copy::<Mappings>(recording, |_| ())?,
        copy::<Frames>(recording, |_| ())?,
        write_rows::<Threads>(folder, threads)?,
        write_rows::<Processes>(folder, recording.processes()?)?,
        write_rows::<Modules>(folder, modules)?,
        write_rows::<Locations>(folder, names.locations)?,
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

/// Says what kind of wait a row is, where the kernel's functions on its stack tell it better than the system call did.
fn name_waits(rows: &mut OffCpu, node_waits: &[Option<WaitKind>]) {
    for (wait, &stack) in rows.wait.iter_mut().zip(&rows.stack) {
        let vague = [WaitKind::Unknown, WaitKind::Other].iter().any(|kind| kind.code() == *wait);
        if vague && let Some(kind) = node_waits.get(stack as usize).copied().flatten() {
            *wait = kind.code();
        }
    }
}

/// Gives every CPU sample the time it stands for: a thread's exact time on CPU, less what is already counted without a
/// stack, shared among its samples so that the sum is exact. `so_far` counts the samples of each thread that earlier
/// batches held; begin with zeros.
pub fn scale_weights(samples: &mut Samples, threads: &[ThreadRow], fixed_ns: &[u64], so_far: &mut [u64]) {
    for row in 0..samples.len() {
        let thread = samples.thread[row] as usize;
        let is_sample =
            StackEnding::from_code(samples.ending[row]).is_some_and(|ending| !ending.is_without_sample());
        let (true, Some(of), Some(seen)) = (is_sample, threads.get(thread), so_far.get_mut(thread)) else {
            continue;
        };
        let time = u128::from(of.on_cpu_ns.saturating_sub(fixed_ns.get(thread).copied().unwrap_or(0)));
        let (count, at) = (u128::from(of.samples.max(*seen + 1)), u128::from(*seen));
        if time > 0 {
            samples.weight_ns[row] = (time * (at + 1) / count - time * at / count) as u64;
        }
        *seen += 1;
    }
}

/// Scales counts that the kernel thinned out, so that their sum is what it counted.
#[derive(Debug)]
pub struct Scale {
    counted: u128,
    sampled: u128,
    so_far: u128,
}

impl Scale {
    /// From what the rows sum up to now to what was counted.
    pub fn new(sampled: u64, counted: u64) -> Self {
        Self { counted: counted.into(), sampled: sampled.max(1).into(), so_far: 0 }
    }

    /// Scales the next rows; the sum over all rows is exact.
    pub fn scale(&mut self, weights: &mut [u64]) {
        let scaled = |sampled: u128| sampled * self.counted / self.sampled;
        for weight in weights {
            let next = self.so_far + u128::from(*weight);
            *weight = (scaled(next) - scaled(self.so_far)) as u64;
            self.so_far = next;
        }
    }
}

/// Time of each thread that rows without a sample stand for.
fn fixed_time(recording: &Recording, threads: usize) -> Result<Vec<u64>, RecordingError> {
    let mut fixed = vec![0u64; threads];
    recording.read_batches::<Samples>(|rows| {
        for row in 0..rows.len() {
            let without =
                StackEnding::from_code(rows.ending[row]).is_some_and(StackEnding::is_without_sample);
            if without && let Some(sum) = fixed.get_mut(rows.thread[row] as usize) {
                *sum = sum.saturating_add(rows.weight_ns[row]);
            }
        }
        Ok(())
    })?;
    Ok(fixed)
}

fn write_samples(
    recording: &Recording,
    threads: &[ThreadRow],
    remap: &StackOrder,
) -> Result<(&'static str, u64), RecordingError> {
    let fixed = fixed_time(recording, threads.len())?;
    let mut so_far = vec![0u64; threads.len()];
    copy::<Samples>(recording, |rows| {
        scale_weights(rows, threads, &fixed, &mut so_far);
        rows.stack.iter_mut().for_each(|stack| *stack = remap.of(*stack));
    })
}

/// Equal nodes merged, in depth-first order.
#[derive(Debug)]
struct StackOrder {
    /// For each stored node, its new number.
    new_of_old: Vec<u32>,
    /// Parent and frame of each new node but the first.
    nodes: Vec<(u32, u32)>,
}

impl StackOrder {
    fn read(recording: &Recording) -> Result<Self, RecordingError> {
        let mut merged_of_old = Vec::new();
        let mut merged: Vec<(u32, u32)> = Vec::new();
        let mut known: FxMap<(u32, u32), u32> = FxMap::default();
        let mut damaged = false;
        recording.read_batches::<Stacks>(|rows| {
            for row in 0..rows.len() {
                let id = match (rows.parent[row], rows.frame[row]) {
                    (Some(parent), Some(frame)) => {
                        let Some(&parent) = merged_of_old.get(parent as usize) else {
                            damaged = true;
                            continue;
                        };
                        *known.entry((parent, frame)).or_insert_with(|| {
                            merged.push((parent, frame));
                            merged.len() as u32
                        })
                    }
                    _ => 0,
                };
                merged_of_old.push(id);
            }
            Ok(())
        })?;
        if damaged {
            return Err(RecordingError::damaged(
                recording.folder().join("stacks.arrows"),
                "a caller is missing",
            ));
        }
        drop(known);
        Ok(Self::depth_first(&merged_of_old, &merged))
    }

    fn depth_first(merged_of_old: &[u32], merged: &[(u32, u32)]) -> Self {
        // Children of each node as linked lists, in the order of discovery.
        let mut first_child = vec![0u32; merged.len() + 1];
        let mut next_sibling = vec![0u32; merged.len() + 1];
        for (index, &(parent, _)) in merged.iter().enumerate().rev() {
            next_sibling[index + 1] = std::mem::replace(&mut first_child[parent as usize], index as u32 + 1);
        }
        let mut new_of_merged = vec![0u32; merged.len() + 1];
        let mut nodes = Vec::with_capacity(merged.len());
        let mut todo = Vec::new();
        let follow = |todo: &mut Vec<u32>, node: u32| todo.extend((node != 0).then_some(node));
        follow(&mut todo, first_child[0]);
        while let Some(node) = todo.pop() {
            let (parent, frame) = merged[node as usize - 1];
            nodes.push((new_of_merged[parent as usize], frame));
            new_of_merged[node as usize] = nodes.len() as u32;
            follow(&mut todo, next_sibling[node as usize]);
            follow(&mut todo, first_child[node as usize]);
        }
        let new_of_old = merged_of_old.iter().map(|&merged| new_of_merged[merged as usize]).collect();
        Self { new_of_old, nodes }
    }

    /// For each node, the kind of wait of the innermost frame that stands for one.
    fn waits(&self, frame_waits: &[Option<WaitKind>]) -> Vec<Option<WaitKind>> {
        let mut waits = vec![None; self.nodes.len() + 1];
        for (index, &(parent, frame)) in self.nodes.iter().enumerate() {
            waits[index + 1] = frame_waits.get(frame as usize).copied().flatten().or(waits[parent as usize]);
        }
        waits
    }

    fn of(&self, old: u32) -> u32 {
        self.new_of_old.get(old as usize).copied().unwrap_or(0)
    }

    fn rows(&self) -> impl Iterator<Item = StackRow> {
        let root = StackRow { id: 0, parent: None, frame: None };
        let rest = self.nodes.iter().enumerate().map(|(index, &(parent, frame))| StackRow {
            id: index as u32 + 1,
            parent: Some(parent),
            frame: Some(frame),
        });
        std::iter::once(root).chain(rest)
    }
}

/// A finished table being written, under its temporary name.
struct ParquetTable<T> {
    name: &'static str,
    path: std::path::PathBuf,
    writer: ArrowWriter<File>,
    table: std::marker::PhantomData<T>,
}

impl<T: Table> ParquetTable<T> {
    fn create(folder: &Path) -> Result<Self, RecordingError> {
        let path = folder.join(format!("{}.parquet.new", T::NAME));
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .map_err(RecordingError::io("create", &path))?;
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).unwrap_or_default()))
            .set_max_row_group_row_count(Some(ROWS_PER_GROUP))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_created_by(format!("uhr {}", env!("CARGO_PKG_VERSION")));
        // Times and dense ids grow by small steps: their differences take a few bits (facts: 21.8 against 31.9 MB).
        for column in ["time_ns", "start_ns", "end_ns", "id", "parent"] {
            properties = properties
                .set_column_dictionary_enabled(ColumnPath::from(column), false)
                .set_column_encoding(ColumnPath::from(column), Encoding::DELTA_BINARY_PACKED);
        }
        let writer = ArrowWriter::try_new(file, T::schema(), Some(properties.build()))
            .map_err(|error| RecordingError::damaged(&path, error))?;
        Ok(Self { name: T::NAME, path, writer, table: std::marker::PhantomData })
    }

    fn write(&mut self, rows: T) -> Result<(), RecordingError> {
        let batch = rows.into_batch().map_err(|error| RecordingError::damaged(&self.path, error))?;
        self.writer.write(&batch).map_err(|error| write_error(&self.path, error))
    }

    fn finish(self) -> Result<(&'static str, u64), RecordingError> {
        self.writer.close().map_err(|error| write_error(&self.path, error))?;
        let bytes = std::fs::metadata(&self.path).map_err(RecordingError::io("read", &self.path))?.len();
        Ok((self.name, bytes))
    }
}

fn write_error(path: &Path, error: parquet::errors::ParquetError) -> RecordingError {
    if let parquet::errors::ParquetError::External(inner) = error {
        return match inner.downcast::<std::io::Error>() {
            Ok(source) => RecordingError::io("write", path)(*source),
            Err(other) => RecordingError::damaged(path, other),
        };
    }
    RecordingError::damaged(path, error)
}

fn write_rows<T: Table>(
    folder: &Path,
    rows: impl IntoIterator<Item = T::Row>,
) -> Result<(&'static str, u64), RecordingError> {
    let mut table = ParquetTable::<T>::create(folder)?;
    let mut columns = T::default();
    rows.into_iter().for_each(|row| columns.push(row));
    table.write(columns)?;
    table.finish()
}

/// Copies a growing table into its finished form, with a change on the way.
fn copy<T: Table>(
    recording: &Recording,
    mut change: impl FnMut(&mut T),
) -> Result<(&'static str, u64), RecordingError> {
    let mut table = ParquetTable::<T>::create(recording.folder())?;
    let mut collected = T::default();
    recording.read_batches::<T>(|mut batch| {
        change(&mut batch);
        append(&mut collected, batch)?;
        if collected.len() >= ROWS_PER_GROUP / 4 {
            table.write(std::mem::take(&mut collected))
        } else {
            Ok(())
        }
    })?;
    table.write(collected)?;
    table.finish()
}
