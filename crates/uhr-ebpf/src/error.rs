//! Why the sampler cannot run.

use std::io;

/// What went wrong while the programs were loaded or attached.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The user lacks the rights.
    #[error("eBPF programs may not be loaded: {missing} is missing")]
    NotPermitted {
        /// The capabilities, as `setcap` writes them.
        missing: String,
    },
    /// The kernel has no description of its own types.
    #[error(
        "this kernel does not describe its own types: /sys/kernel/btf/vmlinux is not there (CONFIG_DEBUG_INFO_BTF)"
    )]
    NoBtf,
    /// It refuses a program that nothing works without.
    #[error("this kernel does not take the program `{program}`: {reason}")]
    Unsupported {
        /// The program's name.
        program: String,
        /// The kernel's or libbpf's last words.
        reason: String,
    },
    /// Whether it takes that program could not be found out.
    #[error("whether this kernel takes the program `{program}` could not be found out: {reason}")]
    Untold {
        /// The program's name.
        program: String,
        /// The kernel's or libbpf's last words.
        reason: String,
    },
    /// A system call failed.
    #[error("{step}: {source}")]
    System {
        /// What was tried.
        step: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
}

impl LoadError {
    pub(crate) fn at(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { step, source }
    }

    pub(crate) fn bpf(step: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Self {
        move |error| Self::System { step, source: io::Error::other(error.to_string()) }
    }
}
