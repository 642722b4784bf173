#![forbid(unsafe_code)]
//! What one ELF file says about unwinding: its call frame information, and where a program begins.

use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use gimli::{BaseAddresses, UnwindContext};
use uhr_model::object::{ElfError, ElfFile, Segments};
use uhr_model::{Avma, FileOffset, Svma};

use super::entries::Entries;
use super::row::Row;
use super::sections::{Bytes, SectionBytes};

/// An entry function without call frame information is taken to be this long at most. Real ones: 16 to 70 bytes.
const MAX_ENTRY_FUNCTION: u64 = 128;

/// The unwind sections of one ELF file, read once and shared by all processes that map it.
pub struct UnwindModule {
    id: u32,
    segments: Segments,
    eh_frame: Entries,
    debug_frame: Entries,
    plt: Vec<Range<u64>>,
    /// `_start`: nothing calls it.
    entry: Range<u64>,
    /// `main`, as `_start` hands it to libc.
    main: Option<u64>,
    is_go: bool,
}

impl UnwindModule {
    /// Reads the sections of a file that was parsed before. A section that is missing, damaged or too large is left
    /// out, and code that it would describe has no unwind information.
    pub fn read(file: &File, elf: &ElfFile) -> Self {
        Self::of_bytes(file, elf)
    }

    /// The same for an image in memory, such as the vDSO's.
    ///
    /// # Errors
    /// [`ElfError`] if the image is not ELF.
    pub fn from_image(image: &[u8]) -> Result<Self, ElfError> {
        Ok(Self::of_bytes(image, &ElfFile::parse(image)?))
    }

    fn of_bytes<B: Bytes + ?Sized>(from: &B, elf: &ElfFile) -> Self {
        static NEXT_ID: AtomicU32 = AtomicU32::new(0);
        let eh_frame = SectionBytes::read(from, elf, ".eh_frame");
        let header = SectionBytes::read(from, elf, ".eh_frame_hdr");
        let address = |name| elf.section(name).map_or(0, |section| section.address.0);
        let bases = BaseAddresses::default()
            .set_eh_frame(eh_frame.address.0)
            .set_eh_frame_hdr(header.address.0)
            .set_text(address(".text"))
            .set_got(address(".got"));
        let plt = elf.sections.iter().filter(|section| section.name.starts_with(".plt"));
        let mut this = Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            segments: elf.segments.clone(),
            eh_frame: Entries::eh_frame(eh_frame, header, bases.clone()),
            debug_frame: Entries::debug_frame(SectionBytes::read_debug_frame(from, elf), bases),
            plt: plt
                .map(|section| section.address.0..section.address.0.saturating_add(section.size))
                .collect(),
            entry: 0..0,
            main: None,
            is_go: [".go.buildinfo", ".note.go.buildid"].iter().any(|name| elf.section(name).is_some()),
        };
        this.find_entry(from);
        this
    }

    /// Finds `_start` by the ELF header, and in its code the address of `main`.
    fn find_entry<B: Bytes + ?Sized>(&mut self, from: &B) {
        const E_ENTRY: u64 = 24;
        let mut entry = [0; 8];
        if from.read_exact_at(E_ENTRY, &mut entry).is_none() {
            return;
        }
        let entry = u64::from_le_bytes(entry);
        let holds = |segment: &&uhr_model::object::Segment| {
            segment.executable
                && entry.checked_sub(segment.address.0).is_some_and(|at| at < segment.file_size)
        };
        let Some(segment) = self.segments.iter().find(holds) else { return };
        let offset = segment.offset.0.wrapping_add(entry - segment.address.0);
        self.entry = match self.eh_frame.find(entry).or_else(|| self.debug_frame.find(entry)) {
            Some(found) => entry..found.end_address().max(entry),
            None => {
                let end = entry.saturating_add(MAX_ENTRY_FUNCTION);
                entry..self.eh_frame.start_above(entry).map_or(end, |next| next.min(end))
            }
        };
        let mut code = [0; 64];
        let length = (self.entry.end - entry).min(64) as usize;
        if from.read_exact_at(offset, &mut code[..length]).is_some() {
            self.main = main_of_entry(&code[..length], entry);
        }
    }

    /// A number of its own for each module of this process of ours.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Whether Go's linker wrote it: its code has frame pointers everywhere, and the outermost of them is 0.
    pub(super) fn is_go(&self) -> bool {
        self.is_go
    }

    /// Whether the code byte at `address` belongs to the function that the kernel starts the program in.
    pub(super) fn is_entry_function(&self, address: u64) -> bool {
        self.entry.contains(&address)
    }

    /// Whether the code byte at `address` belongs to `main`.
    pub(super) fn is_main(&self, address: u64) -> bool {
        self.main.is_some() && self.function_start(address) == self.main
    }

    /// Whether `address` is in a stub that jumps to another module's function.
    pub(super) fn is_stub(&self, address: u64) -> bool {
        self.plt.iter().any(|range| range.contains(&address))
    }

    /// Where the function around a stated address begins, as far as there is call frame information for it.
    pub(super) fn function_start(&self, address: u64) -> Option<u64> {
        let found = self.eh_frame.find(address).or_else(|| self.debug_frame.find(address))?;
        Some(found.initial_address())
    }

    /// The call frame information that covers most of the code.
    pub(super) fn entries(&self) -> [&Entries; 2] {
        [&self.eh_frame, &self.debug_frame]
    }

    /// What must be added to stated addresses for a mapping of this file.
    pub(super) fn bias(&self, start: Avma, offset: FileOffset) -> Option<u64> {
        self.segments.bias(start, offset)
    }

    /// The row for the code byte at a stated address.
    pub(super) fn row(&self, address: u64, context: &mut UnwindContext<usize>) -> Option<Row> {
        self.entries().into_iter().find_map(|entries| entries.row(&entries.find(address)?, address, context))
    }
}

impl std::fmt::Debug for UnwindModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Range { start, end } = self.entry;
        let mut shown = f.debug_struct("UnwindModule");
        shown.field("id", &self.id).field("entry", &(Svma(start)..Svma(end)));
        shown.field("main", &self.main.map(Svma)).field("is_go", &self.is_go).finish_non_exhaustive()
    }
}

/// glibc's and musl's `_start` put the address of `main` into rdi: `lea main(%rip), %rdi` in position-independent
/// programs, `mov $main, %rdi` in others.
fn main_of_entry(code: &[u8], address: u64) -> Option<u64> {
    code.windows(7).enumerate().find_map(|(at, instruction)| {
        let value = i64::from(i32::from_le_bytes(*instruction.last_chunk()?));
        match instruction[..3] {
            [0x48, 0x8d, 0x3d] => Some(address.wrapping_add(at as u64 + 7).wrapping_add_signed(value)),
            [0x48, 0xc7, 0xc7] => u64::try_from(value).ok(),
            _ => None,
        }
    })
}
