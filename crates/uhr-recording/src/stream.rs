//! Arrow IPC streams: what a table is while it grows.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use arrow_ipc::CompressionType;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};

use crate::{RecordingError, Table};

/// A table being appended to. Rows collect in memory until [`TableStream::flush`] writes them as one batch.
pub(crate) struct TableStream<T: Table> {
    path: PathBuf,
    pending: T,
    writer: StreamWriter<BufWriter<File>>,
}

impl<T: Table> std::fmt::Debug for TableStream<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableStream").field("path", &self.path).field("pending", &self.pending.len()).finish()
    }
}

impl<T: Table> TableStream<T> {
    pub(crate) fn create(folder: &Path) -> Result<Self, RecordingError> {
        let path = folder.join(format!("{}.arrows", T::NAME));
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(RecordingError::io("create", &path))?;
        // lz4: a third smaller than plain at a fifth of zstd's CPU time (facts: 5 M samples, 0.35 s against 0.97 s).
        let options = IpcWriteOptions::default()
            .try_with_compression(Some(CompressionType::LZ4_FRAME))
            .map_err(|error| RecordingError::damaged(&path, error))?;
        let writer = StreamWriter::try_new_with_options(BufWriter::new(file), &T::schema(), options)
            .map_err(|error| write_error(&path, error))?;
        Ok(Self { path, pending: T::default(), writer })
    }

    pub(crate) fn push(&mut self, row: T::Row) {
        self.pending.push(row);
    }

    pub(crate) fn pending_rows(&self) -> usize {
        self.pending.len()
    }

    /// Writes what has collected; after it returns the rows are in the file.
    pub(crate) fn flush(&mut self) -> Result<(), RecordingError> {
        if !self.pending.is_empty() {
            let batch = std::mem::take(&mut self.pending)
                .into_batch()
                .map_err(|error| RecordingError::damaged(&self.path, error))?;
            self.writer.write(&batch).map_err(|error| write_error(&self.path, error))?;
        }
        self.writer.get_mut().flush().map_err(RecordingError::io("write", &self.path))
    }

    /// Writes what has collected and the stream's end mark.
    pub(crate) fn finish(mut self) -> Result<(), RecordingError> {
        self.flush()?;
        self.writer.finish().map_err(|error| write_error(&self.path, error))?;
        self.writer.get_mut().flush().map_err(RecordingError::io("write", &self.path))
    }
}

fn write_error(path: &Path, error: arrow_schema::ArrowError) -> RecordingError {
    match error {
        arrow_schema::ArrowError::IoError(_, source) => RecordingError::io("write", path)(source),
        other => RecordingError::damaged(path, other),
    }
}

/// Reads a stream batch by batch as far as it is whole. True if it ends with its end mark, false if it is torn: the
/// writer was killed, or is still writing.
pub(crate) fn read_stream<T: Table>(
    path: &Path,
    mut sink: impl FnMut(T) -> Result<(), RecordingError>,
) -> Result<bool, RecordingError> {
    let file = File::open(path).map_err(RecordingError::io("read", path))?;
    let Ok(mut reader) = StreamReader::try_new(BufReader::new(file), None) else { return Ok(false) };
    loop {
        match reader.next() {
            Some(Ok(batch)) => {
                let mut rows = T::default();
                rows.extend(&batch).map_err(|column| {
                    RecordingError::damaged(path, format!("column {column} is not what it should be"))
                })?;
                if !rows.is_whole(batch.num_rows()) {
                    return Err(RecordingError::damaged(path, "it lacks a column"));
                }
                sink(rows)?;
            }
            Some(Err(_)) => return Ok(false),
            None => return Ok(reader.is_finished()),
        }
    }
}
