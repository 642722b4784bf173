//! What an ELF file says about itself: identity, segments, sections, where its debug information is.
//!
//! [`ElfFile::parse`] takes anything that can be read at a position (`object::ReadRef`): a byte slice, or a file behind
//! `object::ReadCache`, so that the same code reads a file, the target's memory and a test's literal. The input is
//! hostile: sizes are bounded and nothing panics.

mod elf;
mod segments;

pub use elf::{DebugLink, ElfError, ElfFile, Machine, Section};
pub use segments::{Segment, Segments};
