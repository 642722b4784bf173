//! Why a session could not be opened.

use std::io;

use super::access::Refusal;

/// Why a session could not be opened. Nothing is recorded then.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The host or the target does not allow it; says who and what would help.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Neither `/sys` nor `/proc` says which CPUs there are.
    #[error(
        "which CPUs there are is told by neither /sys/devices/system/cpu/online nor /proc/stat: mount /proc or /sys here"
    )]
    UnknownCpus,
    /// There is nothing to record.
    #[error("every thread had ended before it could be attached")]
    TargetGone,
    /// No room for rings.
    #[error("the kernel gives no memory for the smallest ring buffers of {bytes} bytes: {source}")]
    RingMemory {
        /// The size that was tried last.
        bytes: usize,
        /// The kernel's answer.
        source: io::Error,
    },
    /// No room for events.
    #[error("too few file descriptors to attach even one thread: {source}")]
    Descriptors {
        /// The kernel's answer.
        source: io::Error,
    },
    /// Something that has no better words.
    #[error("{step}: {source}")]
    System {
        /// What was tried.
        step: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}
