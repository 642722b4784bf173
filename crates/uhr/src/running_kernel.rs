//! The kernel that runs here, if it is the one that was recorded: its names and its code.

use std::path::Path;

use uhr_model::NoCode;
use uhr_recording::Recording;
use uhr_symbolize::{KernelMemory, KernelMemoryError};

/// The names of the kernel that was recorded, if it still runs.
pub(crate) enum Kernel {
    Symbols(String),
    /// Its addresses meant something in another boot, or on another machine.
    OtherBoot,
}

impl Kernel {
    pub(crate) fn of(recording: &Recording) -> Self {
        let boot = &recording.manifest.host.boot_id;
        if boot.is_empty() || *boot != uhr_collect::host().boot_id {
            return Self::OtherBoot;
        }
        Self::Symbols(std::fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }

    /// Where its code is, or why that cannot be read.
    pub(crate) fn memory(&self) -> Result<KernelMemory, NoCode> {
        match self {
            Self::Symbols(_) => {
                KernelMemory::open(Path::new(KernelMemory::PATH)).map_err(|error| match error {
                    KernelMemoryError::Missing => NoCode::NoKcore,
                    KernelMemoryError::Forbidden => NoCode::KcoreForbidden,
                    KernelMemoryError::Malformed => NoCode::KernelNotRead,
                })
            }
            Self::OtherBoot => Err(NoCode::KernelNotRead),
        }
    }
}
