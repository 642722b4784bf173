use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rustc_hash::FxHashMap;

use crate::manifest::{Manifest, State};
use crate::stream::read_stream;
use crate::tables::{ModuleRow, Modules, ProcessRow, Processes, ThreadRow, Threads};
use crate::writer::{EVIDENCE, LOCK};
use crate::{RecordingError, Table};

/// Tables that ended without their end mark, by name: the recorder was killed, or is still at work.
pub type Torn = Vec<&'static str>;

/// A recording opened for reading. Nothing in it is changed.
#[derive(Debug)]
pub struct Recording {
    folder: PathBuf,
    /// What it is. Its state is [`State::Recovered`] where the recorder is gone without having ended it.
    pub manifest: Manifest,
}

impl Recording {
    /// Opens the recording in `folder`.
    ///
    /// # Errors
    /// [`RecordingError::NotARecording`] if there is none, [`RecordingError::TooNew`] if a newer uhr wrote it.
    pub fn open(folder: &Path) -> Result<Self, RecordingError> {
        let not = |why: &str| RecordingError::NotARecording { path: folder.to_owned(), why: why.to_owned() };
        // Of what may not be read nobody knows whether it is a recording.
        let unreadable = |error: std::io::Error, why: &str| match error.kind() {
            std::io::ErrorKind::PermissionDenied => RecordingError::io("read", folder)(error),
            _ => not(why),
        };
        std::fs::metadata(folder).map_err(|error| unreadable(error, "nothing is there"))?;
        let text = std::fs::read(folder.join(Manifest::FILE))
            .map_err(|error| unreadable(error, "it has no manifest.json"))?;
        let value: serde_json::Value =
            serde_json::from_slice(&text).map_err(|_| not("its manifest.json is not JSON"))?;
        if value.get("format").and_then(|format| format.as_str()) != Some(Manifest::FORMAT) {
            return Err(not("its manifest.json is not one of uhr"));
        }
        let version = value.get("format_version").and_then(serde_json::Value::as_u64).unwrap_or(0);
        if version > u64::from(Manifest::VERSION) {
            return Err(RecordingError::TooNew {
                path: folder.to_owned(),
                version: u32::try_from(version).unwrap_or(u32::MAX),
                newest: Manifest::VERSION,
            });
        }
        let mut manifest: Manifest = serde_json::from_value(value)
            .map_err(|error| RecordingError::damaged(folder.join(Manifest::FILE), error))?;
        if manifest.state == State::Recording && !is_locked(folder) {
            manifest.state = State::Recovered;
        }
        Ok(Self { folder: folder.to_owned(), manifest })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether its tables are Parquet and its names are in it.
    pub fn is_finished(&self) -> bool {
        self.manifest.state == State::Complete
    }

    /// Reads a file of evidence, at most `limit` bytes of it; `None` if there is none.
    pub fn evidence(&self, name: &str, limit: u64) -> Option<Vec<u8>> {
        let path = self.folder.join(EVIDENCE).join(name);
        let length = std::fs::metadata(&path).ok()?.len();
        (length <= limit).then(|| std::fs::read(&path).ok()).flatten()
    }

    /// Reads a whole table. A table that was never written is empty.
    ///
    /// # Errors
    /// [`RecordingError::Damaged`] or [`RecordingError::Io`].
    pub fn table<T: Table>(&self) -> Result<T, RecordingError> {
        let mut all = T::default();
        if self.has_parquet::<T>() {
            for group in 0..self.row_groups::<T>()? {
                self.read_row_group(group, &[], &mut all)?;
            }
            return Ok(all);
        }
        self.read_batches::<T>(|batch| append(&mut all, batch))?;
        Ok(all)
    }

    /// Whether the table is there in its finished form. Before the manifest says that the recording is complete, a
    /// finished table may be one of several, with other numbers than those that still grow.
    pub fn has_parquet<T: Table>(&self) -> bool {
        self.is_finished() && self.manifest.table_bytes.contains_key(T::NAME)
    }

    /// The number of row groups of a finished table, which can be read apart and in parallel.
    ///
    /// # Errors
    /// [`RecordingError::Damaged`] or [`RecordingError::Io`].
    pub fn row_groups<T: Table>(&self) -> Result<usize, RecordingError> {
        Ok(self.parquet::<T>()?.metadata().num_row_groups())
    }

    /// Appends one row group of a finished table to `rows`; only the named columns, or all if none is named.
    ///
    /// # Errors
    /// [`RecordingError::Damaged`] or [`RecordingError::Io`].
    pub fn read_row_group<T: Table>(
        &self,
        group: usize,
        columns: &[&str],
        rows: &mut T,
    ) -> Result<(), RecordingError> {
        let path = self.parquet_path::<T>();
        let mut builder = self.parquet::<T>()?.with_row_groups(vec![group]).with_batch_size(1 << 16);
        if !columns.is_empty() {
            let mask = ProjectionMask::columns(builder.parquet_schema(), columns.iter().copied());
            builder = builder.with_projection(mask);
        }
        let reader = builder.build().map_err(|error| RecordingError::damaged(&path, error))?;
        for batch in reader {
            let batch = batch.map_err(|error| RecordingError::damaged(&path, error))?;
            let before = rows.len();
            rows.extend(&batch).map_err(|column| {
                RecordingError::damaged(&path, format!("column {column} is not what it should be"))
            })?;
            if columns.is_empty() && !rows.is_whole(before + batch.num_rows()) {
                return Err(RecordingError::damaged(&path, "it lacks a column"));
            }
        }
        Ok(())
    }

    /// Reads a growing table batch by batch. False if it is torn.
    pub(crate) fn read_batches<T: Table>(
        &self,
        sink: impl FnMut(T) -> Result<(), RecordingError>,
    ) -> Result<bool, RecordingError> {
        let path = self.folder.join(format!("{}.arrows", T::NAME));
        if path.exists() { read_stream(&path, sink) } else { Ok(true) }
    }

    /// The processes, each once.
    ///
    /// # Errors
    /// [`RecordingError::Damaged`] or [`RecordingError::Io`].
    pub fn processes(&self) -> Result<Vec<ProcessRow>, RecordingError> {
        last_of_each(&self.table::<Processes>()?, |row| row.id)
    }

    /// The threads, each once.
    ///
    /// # Errors
    /// [`RecordingError::Damaged`] or [`RecordingError::Io`].
    pub fn threads(&self) -> Result<Vec<ThreadRow>, RecordingError> {
        last_of_each(&self.table::<Threads>()?, |row| row.id)
    }

    /// The modules, each once.
    ///
    /// # Errors
    /// [`RecordingError::Damaged`] or [`RecordingError::Io`].
    pub fn modules(&self) -> Result<Vec<ModuleRow>, RecordingError> {
        last_of_each(&self.table::<Modules>()?, |row| row.id)
    }

    fn parquet_path<T: Table>(&self) -> PathBuf {
        self.folder.join(format!("{}.parquet", T::NAME))
    }

    fn parquet<T: Table>(&self) -> Result<ParquetRecordBatchReaderBuilder<File>, RecordingError> {
        let path = self.parquet_path::<T>();
        let file = File::open(&path).map_err(RecordingError::io("read", &path))?;
        ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| RecordingError::damaged(&path, error))
    }
}

/// Rows are written again under their id when they change: the last one counts. Ids have to be dense from 0, as the
/// writer makes them; a torn tail may end them early.
fn last_of_each<T: Table>(rows: &T, id: impl Fn(&T::Row) -> u32) -> Result<Vec<T::Row>, RecordingError> {
    let mut last: FxHashMap<u32, T::Row> = FxHashMap::default();
    for index in 0..rows.len() {
        let row = rows.row(index);
        last.insert(id(&row), row);
    }
    let dense = (0..last.len() as u32).map_while(|id| last.remove(&id)).collect::<Vec<_>>();
    if last.is_empty() { Ok(dense) } else { Err(RecordingError::damaged(T::NAME, "its ids have gaps")) }
}

pub(crate) fn append<T: Table>(all: &mut T, batch: T) -> Result<(), RecordingError> {
    let batch = batch.into_batch().map_err(|error| RecordingError::damaged(T::NAME, error))?;
    all.extend(&batch).map_err(|column| RecordingError::damaged(T::NAME, column))
}

fn is_locked(folder: &Path) -> bool {
    File::open(folder.join(LOCK)).is_ok_and(|file| file.try_lock_shared().is_err())
}
