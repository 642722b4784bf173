use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::RecordingError;
use crate::manifest::Manifest;
use crate::stream::TableStream;
use crate::tables::{
    FaultRow, Faults, FrameRow, Frames, MappingNameRow, MappingNames, MappingRow, Mappings, ModuleRow,
    Modules, OffCpu, OffCpuRow, ProcessRow, Processes, Resident, ResidentRow, SampleRow, Samples,
    SourceLineRow, SourceLines, StackRow, Stacks, SyscallRow, SyscallWindowRow, SyscallWindows, Syscalls,
    ThreadRow, Threads, WakerRow, Wakers,
};

/// A batch is written at this many rows even before its second is over, so that memory stays bounded.
const ROWS_PER_BATCH: usize = 65_536;

/// Writes a recording while it is made. Rows are handed over with `push_*`; [`RecordingWriter::flush`] makes them
/// durable against a kill of uhr, once a second. Dictionary rows (stacks, frames, threads, ...) are written before the
/// rows that use them. A row of `processes`, `threads` or `modules` may be pushed again under its id: the last one counts.
#[derive(Debug)]
pub struct RecordingWriter {
    folder: PathBuf,
    /// Held as long as the writer lives: a reader that can take it knows that nobody writes any more.
    _lock: File,
    streams: Streams,
}

macro_rules! streams {
    ($($Table:ident $Row:ident $field:ident $push:ident,)*) => {
        #[derive(Debug)]
        struct Streams { $($field: TableStream<$Table>,)* }

        impl Streams {
            fn create(folder: &Path) -> Result<Self, RecordingError> {
                Ok(Self { $($field: TableStream::create(folder)?,)* })
            }
            /// In the order of the list: what is referred to comes before what refers to it.
            fn flush(&mut self) -> Result<(), RecordingError> {
                $(self.$field.flush()?;)*
                Ok(())
            }
            fn finish(self) -> Result<(), RecordingError> {
                $(self.$field.finish()?;)*
                Ok(())
            }
            fn is_large(&self) -> bool {
                [$(self.$field.pending_rows(),)*].into_iter().any(|rows| rows >= ROWS_PER_BATCH)
            }
        }

        impl RecordingWriter {
            $(
                #[doc = concat!("Appends a row to [`", stringify!($Table), "`].")]
                pub fn $push(&mut self, row: $Row) {
                    self.streams.$field.push(row);
                }
            )*
        }
    };
}
streams! {
    Processes ProcessRow processes push_process,
    Threads ThreadRow threads push_thread,
    Modules ModuleRow modules push_module,
    SourceLines SourceLineRow source_lines push_source_line,
    Mappings MappingRow mappings push_mapping,
    Frames FrameRow frames push_frame,
    Stacks StackRow stacks push_stack,
    Wakers WakerRow wakers push_waker,
    Samples SampleRow samples push_sample,
    OffCpu OffCpuRow offcpu push_off_cpu,
    MappingNames MappingNameRow mapping_names push_mapping_name,
    Faults FaultRow faults push_fault,
    Resident ResidentRow resident push_resident,
    Syscalls SyscallRow syscalls push_syscall,
    SyscallWindows SyscallWindowRow syscall_windows push_syscall_window,
}

impl RecordingWriter {
    /// Makes the folder (mode 0700) and its tables (mode 0600), and writes the first manifest.
    ///
    /// # Errors
    /// [`RecordingError::Exists`] if the path is taken; [`RecordingError::Io`] if it cannot be made.
    pub fn create(folder: &Path, manifest: &Manifest) -> Result<Self, RecordingError> {
        DirBuilder::new().mode(0o700).create(folder).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => RecordingError::Exists { path: folder.to_owned() },
            _ => RecordingError::io("create", folder)(error),
        })?;
        let path = folder.join(LOCK);
        let lock = File::create_new(&path).map_err(RecordingError::io("create", &path))?;
        lock.lock().map_err(RecordingError::io("lock", &path))?;
        write_manifest(folder, manifest)?;
        Ok(Self { folder: folder.to_owned(), _lock: lock, streams: Streams::create(folder)? })
    }

    /// Where the recording is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether so many rows have collected that they should be written now.
    pub fn wants_flush(&self) -> bool {
        self.streams.is_large()
    }

    /// Writes the rows that have collected.
    ///
    /// # Errors
    /// [`RecordingError::Io`]: the disk is full or gone. What was written before stays readable.
    pub fn flush(&mut self) -> Result<(), RecordingError> {
        self.streams.flush()
    }

    /// Stores a file of evidence (a perf map, a jitdump) under `evidence/NAME`.
    ///
    /// # Errors
    /// [`RecordingError::Io`] if it cannot be written.
    pub fn write_evidence(&self, name: &str, bytes: &[u8]) -> Result<(), RecordingError> {
        let folder = self.folder.join(EVIDENCE);
        if !folder.exists() {
            DirBuilder::new().mode(0o700).create(&folder).map_err(RecordingError::io("create", &folder))?;
        }
        write_private(&folder.join(name), bytes)
    }

    /// Ends the streams. The recording is then whole, but not yet finished: see [`crate::finalize()`].
    ///
    /// # Errors
    /// [`RecordingError::Io`] if the last rows or the manifest cannot be written.
    pub fn finish(self, manifest: &Manifest) -> Result<(), RecordingError> {
        self.streams.finish()?;
        write_manifest(&self.folder, manifest)?;
        let _ = std::fs::remove_file(self.folder.join(LOCK));
        Ok(())
    }
}

/// The file that a writer holds locked while it lives.
pub(crate) const LOCK: &str = "writer.lock";
/// The folder of perf maps and jitdumps.
pub(crate) const EVIDENCE: &str = "evidence";

/// Replaces the manifest at once, so that a reader sees the old or the new one, never half of it.
pub(crate) fn write_manifest(folder: &Path, manifest: &Manifest) -> Result<(), RecordingError> {
    let path = folder.join(Manifest::FILE);
    let temporary = folder.join("manifest.json.new");
    let mut text =
        serde_json::to_vec_pretty(manifest).map_err(|error| RecordingError::damaged(&path, error))?;
    text.push(b'\n');
    write_private(&temporary, &text)?;
    std::fs::rename(&temporary, &path).map_err(RecordingError::io("write", &path))
}

fn write_private(path: &Path, bytes: &[u8]) -> Result<(), RecordingError> {
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .map_err(RecordingError::io("create", path))?;
    file.write_all(bytes).map_err(RecordingError::io("write", path))
}
