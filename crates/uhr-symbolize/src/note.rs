//! What happened on the way to the names, for the reader of a recording.

use std::fmt;
use std::path::PathBuf;

/// Something that a reader of the names should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// The file now at the module's path is not the one that ran.
    FileChanged {
        /// The file.
        path: PathBuf,
    },
    /// The end of the file is missing.
    FileCut {
        /// The file.
        path: PathBuf,
    },
    /// The kernel hides its addresses from this user.
    KernelRestricted,
    /// A debug file was there, but belongs to another build.
    DebugFileRefused {
        /// The debug file.
        path: PathBuf,
        /// What did not match.
        because: Mismatch,
    },
    /// The file shares debug information with others (dwz), and the shared file was not found.
    AlternateMissing {
        /// The name that the debug link gives.
        path: PathBuf,
    },
    /// Debug information is split, and files that hold parts of it were not found: code of those has lines, but no
    /// inlined functions.
    SplitMissing {
        /// One of them, as the compiler named it.
        path: PathBuf,
        /// How many.
        files: usize,
    },
    /// The symbols packed in `.gnu_debugdata` could not be read.
    MiniDebugDamaged {
        /// The file that they are in.
        path: PathBuf,
    },
    /// Debug information could not be read: names are from symbol tables, without lines.
    DebugInfoDamaged {
        /// The file that it is in.
        path: PathBuf,
    },
    /// Debug information of some addresses could not be read: their names are from symbol tables, without lines.
    LinesDamaged {
        /// How many addresses.
        addresses: usize,
    },
    /// Debug information is larger than uhr takes: names are from symbol tables, without lines.
    DebugInfoTooLarge {
        /// The file that it is in.
        path: PathBuf,
        /// Its size, in bytes.
        bytes: u64,
    },
}

/// What two files of one build have in common, and these have not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mismatch {
    /// The build id.
    BuildId,
    /// The checksum of the debug link.
    Checksum,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FileChanged { path } => {
                write!(f, "{} is another build than the one that ran", path.display())
            }
            Self::FileCut { path } => {
                write!(
                    f,
                    "{} was cut short: the names that were in the rest of it are missing",
                    path.display()
                )
            }
            Self::KernelRestricted => {
                write!(f, "the kernel hides its names from this user")
            }
            Self::DebugFileRefused { path, because } => {
                let what = match because {
                    Mismatch::BuildId => "build id",
                    Mismatch::Checksum => "checksum",
                };
                write!(f, "debug file {} belongs to another build ({what})", path.display())
            }
            Self::AlternateMissing { path } => {
                write!(f, "shared debug file {} is missing: some names and lines are lost", path.display())
            }
            Self::SplitMissing { path, files } => {
                let which = path.display();
                write!(
                    f,
                    "{files} split debug files (.dwo or .dwp) are missing, such as {which}: no inlined functions there"
                )
            }
            Self::MiniDebugDamaged { path } => {
                write!(f, "the packed symbols (.gnu_debugdata) of {} are damaged: not used", path.display())
            }
            Self::DebugInfoDamaged { path } => {
                write!(f, "debug information of {} is damaged: no lines", path.display())
            }
            Self::LinesDamaged { addresses } => {
                write!(f, "debug information is damaged for {addresses} addresses: they have no lines")
            }
            Self::DebugInfoTooLarge { path, bytes } => {
                let mebibytes = bytes >> 20;
                write!(f, "debug information of {} is too large ({mebibytes} MiB): no lines", path.display())
            }
        }
    }
}
