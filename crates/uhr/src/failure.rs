//! How a command fails: a code for programs, a sentence for people, and what to do next. It travels inside
//! `anyhow::Error` and is printed in one place, `main`.

use std::fmt;

use uhr_query::QueryError;
use uhr_query::answers::{Candidate, ErrorAnswer};
use uhr_recording::RecordingError;

/// How the process ends, as the contract of the command line has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// It depends on the recording or the host.
    Failed,
    /// It is wrong whatever the recording holds.
    Usage,
    /// This host cannot; `uhr doctor` says why.
    HostCannot,
    /// Another status: `record -- COMMAND` has its own.
    Status(u8),
}

impl Exit {
    /// The process's exit status.
    pub(crate) fn status(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::HostCannot => 3,
            Self::Status(status) => status,
        }
    }
}

/// Why a command failed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Failure {
    /// How the process ends.
    pub(crate) exit: Exit,
    /// What is printed.
    pub(crate) answer: ErrorAnswer,
}

impl Failure {
    /// A failure without advice, but that `uhr doctor` explains hosts. `code` is a stable word for programs, such as
    /// `unknown-function`.
    pub(crate) fn new(exit: Exit, code: &str, message: impl Into<String>) -> Self {
        let next = if exit == Exit::HostCannot { vec!["uhr doctor".to_owned()] } else { Vec::new() };
        Self { exit, answer: ErrorAnswer::new(code, message.into(), None, next) }
    }

    /// Adds what helps: in words, or a command of the host's (`sudo sysctl ...`).
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.answer.error.hint = Some(hint.into());
        self
    }

    /// Adds a `uhr` command that helps.
    pub(crate) fn next(mut self, command: impl Into<String>) -> Self {
        self.answer.error.next.push(command.into());
        self
    }

    /// Changes how the process ends.
    pub(crate) fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// Finds the failure in `error`: of uhr's own libraries by their kind, of others by their words.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        if let Some(failure) = error.downcast_ref::<Self>() {
            return failure.clone();
        }
        if let Some(query) = error.downcast_ref::<QueryError>() {
            let exit = if query.is_usage() { Exit::Usage } else { Exit::Failed };
            return Self { exit, answer: ErrorAnswer::from(query) };
        }
        if let Some(recording) = error.downcast_ref::<RecordingError>() {
            return Self::new(Exit::Failed, code_of(recording), format!("{error:#}"));
        }
        // Files say what they are in errors of their own; a bare one is from the standard output.
        if error.is::<std::io::Error>() {
            return Self::new(Exit::Failed, "io", format!("cannot write the answer: {error}"));
        }
        Self::new(Exit::Failed, "failed", format!("{error:#}"))
    }

    /// Names that could have been meant.
    pub(crate) fn candidates(&self) -> &[Candidate] {
        &self.answer.error.candidates
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.answer.error.message)
    }
}

impl std::error::Error for Failure {}

/// The same words as [`QueryError::code`] has for an error of a recording.
fn code_of(error: &RecordingError) -> &'static str {
    match error {
        RecordingError::NotARecording { .. } => "no-recording",
        RecordingError::TooNew { .. } => "recording-too-new",
        RecordingError::Exists { .. } => "exists",
        RecordingError::Io { .. } if error.is_disk_full() => "disk-full",
        RecordingError::Io { .. } => "io",
        RecordingError::Damaged { .. } => "damaged-recording",
    }
}
