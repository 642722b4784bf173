#![forbid(unsafe_code)]
//! The unwind sections of a file: read when the first stack needs them, and let go when none has for a while. A machine
//! that compiles runs hundreds of different binaries in an hour, of some megabytes each.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gimli::BaseAddresses;
use uhr_model::object::{ElfFile, Section};

use super::entries::Entries;
use super::sections::{Bytes, SectionBytes};

/// What was read.
#[derive(Default)]
pub(super) struct Sections {
    pub(super) eh_frame: Entries,
    pub(super) debug_frame: Entries,
}

impl Sections {
    /// What is read, and what it counts its addresses from.
    const NAMES: [&str; 5] = [".eh_frame", ".eh_frame_hdr", ".debug_frame", ".text", ".got"];

    pub(super) fn read<B: Bytes + ?Sized>(from: &B, elf: &ElfFile) -> Self {
        let eh_frame = SectionBytes::read(from, elf, ".eh_frame");
        let header = SectionBytes::read(from, elf, ".eh_frame_hdr");
        let address = |name| elf.section(name).map_or(0, |section| section.address.0);
        let bases = BaseAddresses::default()
            .set_eh_frame(eh_frame.address.0)
            .set_eh_frame_hdr(header.address.0)
            .set_text(address(".text"))
            .set_got(address(".got"));
        Self {
            eh_frame: Entries::eh_frame(eh_frame, header, bases.clone(), elf.machine),
            debug_frame: Entries::debug_frame(SectionBytes::read_debug_frame(from, elf), bases, elf.machine),
        }
    }

    /// The call frame information that covers most of the code comes first.
    pub(super) fn both(&self) -> [&Entries; 2] {
        [&self.eh_frame, &self.debug_frame]
    }

    fn bytes(&self) -> usize {
        self.both().into_iter().map(Entries::bytes).sum()
    }
}

/// The sections, or where they can be read again.
pub(super) struct Tables {
    file: Option<(Arc<File>, ElfFile)>,
    read: Mutex<Option<Arc<Sections>>>,
    is_used: AtomicBool,
}

impl Tables {
    /// Those of a file, which are read when they are needed. A machine that compiles has thousands of files: of their headers
    /// only what is needed for that is kept.
    pub(super) fn of_file(file: Arc<File>, elf: &ElfFile) -> Self {
        let is_needed = |section: &&Section| Sections::NAMES.contains(&section.name.as_str());
        let sections = elf.sections.iter().filter(is_needed).cloned().collect();
        let elf = ElfFile { sections, needed: Vec::new(), ..elf.clone() };
        Self { file: Some((file, elf)), read: Mutex::default(), is_used: AtomicBool::new(false) }
    }

    /// Sections that stay.
    pub(super) fn kept(sections: Sections) -> Self {
        Self { file: None, read: Mutex::new(Some(Arc::new(sections))), is_used: AtomicBool::new(false) }
    }

    /// The sections.
    pub(super) fn get(&self) -> Arc<Sections> {
        self.is_used.store(true, Ordering::Relaxed);
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let sections = read.get_or_insert_with(|| {
            Arc::new(self.file.as_ref().map(|(file, elf)| Sections::read(&**file, elf)).unwrap_or_default())
        });
        Arc::clone(sections)
    }

    /// The file that they are read from, where that is held.
    pub(super) fn file(&self) -> Option<&File> {
        self.file.as_ref().map(|(file, _)| &**file)
    }

    /// Bytes that they take now, where they could be let go.
    pub(super) fn bytes(&self) -> usize {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if self.file.is_none() { 0 } else { read.as_ref().map_or(0, |sections| sections.bytes()) }
    }

    /// Lets them go if nobody has needed them since this was last called.
    pub(super) fn let_go_unused(&self) {
        if !self.is_used.swap(false, Ordering::Relaxed) && self.file.is_some() {
            *self.read.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}
