use std::io;
use std::path::PathBuf;

/// Why a recording could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The path given for a new recording is taken.
    #[error("{path} exists already, and a recording never overwrites anything")]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// There is no recording at this path.
    #[error("{path} is not a recording: {why}")]
    NotARecording {
        /// The path.
        path: PathBuf,
        /// What is missing or wrong.
        why: String,
    },
    /// The recording was written by a newer uhr.
    #[error("{path} has format version {version}, and this uhr reads up to {newest}")]
    TooNew {
        /// The path.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The newest version that is understood.
        newest: u32,
    },
    /// A file could not be read or written.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// What was tried: `read`, `write`, `create`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A table is damaged.
    #[error("{path} is damaged: {why}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl RecordingError {
    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }

    pub(crate) fn damaged(path: impl Into<PathBuf>, why: impl ToString) -> Self {
        Self::Damaged { path: path.into(), why: why.to_string() }
    }

    /// The path that this user may not read, if that is what went wrong.
    pub fn forbidden(&self) -> Option<&std::path::Path> {
        match self {
            Self::Io { path, source, .. } if source.kind() == io::ErrorKind::PermissionDenied => Some(path),
            _ => None,
        }
    }

    /// Whether the disk was full.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull)
    }
}
