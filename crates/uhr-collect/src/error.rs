use std::path::PathBuf;

use uhr_ebpf::LoadError;
use uhr_recording::RecordingError;

use crate::perf::OpenError;

/// Why a program was not recorded, or a recording ended early.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// No perf event could be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// uhr's own programs could not be loaded into the kernel.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// What was asked for, perf events cannot do.
    #[error("{0} by the eBPF sampler only")]
    NeedsEbpf(&'static str),
    /// The recording could not be written.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A process that should be recorded is not there.
    #[error("no process {pid} is running")]
    NoSuchProcess {
        /// Its pid.
        pid: u32,
    },
    /// A process that should be recorded has ended, and its parent has not taken note.
    #[error("process {pid} has ended: a zombie, which runs nothing any more")]
    Ended {
        /// Its pid.
        pid: u32,
    },
    /// A control group that should be recorded is not there.
    #[error("there is no cgroup {path}: {}", looked_for(.looked))]
    NoSuchCgroup {
        /// Its path as it was given.
        path: String,
        /// The hierarchies that were looked through.
        looked: Vec<PathBuf>,
        /// Paths of groups that come near.
        similar: Vec<String>,
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

fn looked_for(folders: &[PathBuf]) -> String {
    match folders {
        [] => "no hierarchy of cgroups is mounted".to_owned(),
        folders => {
            let folders: Vec<_> = folders.iter().map(|folder| folder.to_string_lossy()).collect();
            format!("looked for it as a folder, and below {}", folders.join(", "))
        }
    }
}
