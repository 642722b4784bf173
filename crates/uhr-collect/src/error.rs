use std::path::PathBuf;

use uhr_recording::RecordingError;

use crate::perf::OpenError;

/// Why a program was not recorded, or a recording ended early.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// No perf event could be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The recording could not be written.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A process that should be recorded is not there.
    #[error("no process {pid} is running")]
    NoSuchProcess {
        /// Its pid.
        pid: u32,
    },
    /// `/proc` shows another pid namespace than the one uhr is in, so pids cannot be matched.
    #[error(
        "/proc belongs to another pid namespace (it calls this process {seen}): pids there mean other processes than the kernel's records do"
    )]
    ForeignProc {
        /// What `/proc/self` says.
        seen: String,
    },
    /// The command could not be started.
    #[error("cannot run {program}: {source}")]
    Start {
        /// The program as it was given.
        program: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Something of the system's that has no better words.
    #[error("{step}: {source}")]
    System {
        /// What was tried.
        step: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
}
