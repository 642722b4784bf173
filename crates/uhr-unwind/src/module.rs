#![forbid(unsafe_code)]
//! What one ELF file says about unwinding: its call frame information, and where a program begins.

use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use uhr_model::object::{ElfError, ElfFile, Machine, Segments};
use uhr_model::{Avma, FileOffset, Svma};

use super::entries::Entries;
use super::known_code::{Holds, known_code};
use super::row::Row;
use super::rules::Context;
use super::sections::Bytes;
use super::simple_row::SimpleRow;
use super::tables::{Sections, Tables};

/// An entry function without call frame information is taken to be this long at most. Real ones: 16 to 70 bytes.
const MAX_ENTRY_FUNCTION: u64 = 128;

/// Code is searched in pieces of so many bytes,
const PIECE: usize = 1 << 20;
/// which overlap by more than what is searched for,
const OVERLAP: usize = 16;
/// and only so far into a file: three times the largest static programs; less where somebody waits for it.
const MAX_CODE: u64 = 256 << 20;
const MAX_CODE_AT_ONCE: u64 = 16 << 20;

/// What one ELF file says about unwinding, shared by all processes that map it.
pub struct UnwindModule {
    id: u32,
    machine: Machine,
    segments: Segments,
    plt: Vec<Range<u64>>,
    is_go: bool,
    /// Whether it needs no other file: a libc, or a program with its own.
    is_on_its_own: bool,
    /// Whether the address of its entry is where the kernel begins. GNU ld wrote the first function's into libraries too.
    is_program: bool,
    section_bytes: u64,
    tables: Tables,
    /// Read when it is first needed, with the tables.
    program: OnceLock<Program>,
    known_rows: OnceLock<Vec<(Range<u64>, SimpleRow)>>,
}

/// Where a program begins.
#[derive(Default)]
struct Program {
    /// `_start`: nothing calls it.
    entry: Range<u64>,
    /// `main`, as `_start` hands it to libc.
    main: Option<u64>,
}

impl UnwindModule {
    /// Of a file that was parsed before. Its sections are read when the first stack needs them. A section that is missing,
    /// damaged or too large is left out, and code that it would describe has no unwind information.
    pub fn of_file(file: Arc<File>, elf: &ElfFile) -> Self {
        Self::new(elf, Tables::of_file(file, elf))
    }

    /// The same, read at once and kept, for a file that is not held open.
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
        let this = Self::new(elf, Tables::kept(Sections::read(from, elf)));
        let program = this.find_program(from);
        this.program.get_or_init(|| program);
        this.known_rows.get_or_init(|| this.find_known_rows(from, MAX_CODE_AT_ONCE));
        this
    }

    fn new(elf: &ElfFile, tables: Tables) -> Self {
        static NEXT_ID: AtomicU32 = AtomicU32::new(0);
        let plt = elf.sections.iter().filter(|section| section.name.starts_with(".plt"));
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            machine: elf.machine,
            segments: elf.segments.clone(),
            plt: plt
                .map(|section| section.address.0..section.address.0.saturating_add(section.size))
                .collect(),
            is_go: [".go.buildinfo", ".note.go.buildid"].iter().any(|name| elf.section(name).is_some()),
            is_on_its_own: elf.needed.is_empty(),
            is_program: elf.is_program || elf.needed.is_empty(),
            section_bytes: [".eh_frame", ".debug_frame"]
                .iter()
                .filter_map(|name| elf.section(name))
                .map(|section| section.size)
                .fold(0, u64::saturating_add),
            tables,
            program: OnceLock::new(),
            known_rows: OnceLock::new(),
        }
    }

    /// Finds `_start` by the ELF header, and in its code the address of `main`.
    fn find_program<B: Bytes + ?Sized>(&self, from: &B) -> Program {
        const E_ENTRY: u64 = 24;
        let mut entry = [0; 8];
        if !self.is_program || from.read_exact_at(E_ENTRY, &mut entry).is_none() {
            return Program::default();
        }
        let entry = u64::from_le_bytes(entry);
        let holds = |segment: &&uhr_model::object::Segment| {
            segment.executable
                && entry.checked_sub(segment.address.0).is_some_and(|at| at < segment.file_size)
        };
        let Some(segment) = self.segments.iter().find(holds) else { return Program::default() };
        let offset = segment.offset.0.wrapping_add(entry - segment.address.0);
        let sections = self.tables.get();
        let found = sections.both().into_iter().find_map(|entries| entries.find(entry));
        let is_described = found.is_some();
        let end = match found {
            Some(found) => found.end_address().max(entry),
            None => {
                let end = entry.saturating_add(MAX_ENTRY_FUNCTION);
                sections.eh_frame.start_above(entry).map_or(end, |next| next.min(end))
            }
        };
        // musl's goes on in a function of C behind it, which is aligned.
        let mut code = [0; 96];
        let length = (end - entry).min(code.len() as u64) as usize;
        let is_read = from.read_exact_at(offset, &mut code[..length]).is_some();
        let main = is_read.then(|| main_of_entry(&code[..length], entry)).flatten();
        // In programs all in assembler, functions that the entry calls lie right behind it.
        let called = if !is_described && is_read { first_called(&code[..length]) } else { None };
        let end = called.map_or(end, |within| end.min(entry + within));
        Program { entry: entry..end, main }
    }

    fn program(&self) -> &Program {
        self.program.get_or_init(|| match self.tables.file() {
            Some(file) => self.find_program(file),
            None => Program::default(),
        })
    }

    /// Bytes of its unwind sections in the file.
    pub fn section_bytes(&self) -> u64 {
        self.section_bytes
    }

    /// Bytes of its tables that could be let go.
    pub fn table_bytes(&self) -> usize {
        self.tables.bytes()
    }

    /// Lets its tables go if no stack has needed them since this was last called.
    pub fn let_go_unused(&self) {
        self.tables.let_go_unused();
    }

    /// A number of its own for each module of this process of ours.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Whether Go's linker wrote it: its code has frame pointers everywhere, and the outermost of them is 0.
    pub fn is_go(&self) -> bool {
        self.is_go
    }

    /// Whether the code byte at `address` belongs to the function that the kernel starts the program in.
    pub(super) fn is_entry_function(&self, address: u64) -> bool {
        self.program().entry.contains(&address)
    }

    /// Whether the code byte at `address` belongs to `main`.
    pub(super) fn is_main(&self, address: u64) -> bool {
        let main = self.program().main;
        main.is_some() && self.function_start(address) == main
    }

    /// The function that the kernel starts the program in; empty if there is none.
    pub(super) fn entry_function(&self) -> Range<u64> {
        self.program().entry.clone()
    }

    /// Rows of code that is known by its bytes.
    pub(super) fn known_rows(&self) -> &[(Range<u64>, SimpleRow)] {
        self.known_rows.get_or_init(|| {
            self.tables.file().map_or_else(Vec::new, |file| self.find_known_rows(file, MAX_CODE))
        })
    }

    fn find_known_rows<B: Bytes + ?Sized>(&self, from: &B, most: u64) -> Vec<(Range<u64>, SimpleRow)> {
        let (machine, is_libc) = (self.machine, self.is_on_its_own);
        let holds = Holds { machine, is_libc, is_cgo: self.is_go && !is_libc };
        let mut found = Vec::new();
        if !holds.is_libc && !holds.is_cgo {
            return found;
        }
        let mut bytes = vec![0; PIECE];
        for segment in self.segments.iter().filter(|segment| segment.executable) {
            let mut at = 0;
            while at < segment.file_size && at < most {
                let piece = &mut bytes[..(segment.file_size - at).min(PIECE as u64) as usize];
                if from.read_exact_at(segment.offset.0.wrapping_add(at), piece).is_none() {
                    break;
                }
                let address = segment.address.0.wrapping_add(at);
                found.extend(known_code(holds, piece).map(|(within, row)| {
                    let [start, end] = [within.start, within.end].map(|at| address.saturating_add_signed(at));
                    (start..end, row)
                }));
                at += (PIECE - OVERLAP) as u64;
            }
        }
        found
    }

    /// Whether `address` is in a stub that jumps to another module's function.
    pub(super) fn is_stub(&self, address: u64) -> bool {
        self.plt.iter().any(|range| range.contains(&address))
    }

    /// Where the function around a stated address begins, as far as there is call frame information for it.
    pub(super) fn function_start(&self, address: u64) -> Option<u64> {
        let sections = self.tables.get();
        sections.both().into_iter().find_map(|entries| Some(entries.find(address)?.initial_address()))
    }

    /// The addresses around a stated one that no call frame information covers; `None` where some covers it.
    pub(super) fn gap(&self, address: u64) -> Option<Range<u64>> {
        let [one, other] = self.tables.get().both().map(|entries| entries.gap(address));
        let (one, other) = (one?, other?);
        Some(one.start.max(other.start)..one.end.min(other.end))
    }

    /// Its call frame information.
    pub(super) fn sections(&self) -> Arc<Sections> {
        self.tables.get()
    }

    /// What must be added to stated addresses for a mapping of this file.
    pub(super) fn bias(&self, start: Avma, offset: FileOffset) -> Option<u64> {
        self.segments.bias(start, offset)
    }

    /// The row for the code byte at a stated address.
    pub(super) fn row(&self, address: u64, context: &mut Context) -> Option<Row> {
        let sections = self.tables.get();
        let mut row_in = |entries: &Entries| entries.row(&entries.find(address)?, address, context);
        row_in(&sections.eh_frame).or_else(|| {
            let mut row = row_in(&sections.debug_frame)?;
            row.is_of_go = self.is_go;
            Some(row)
        })
    }
}

impl std::fmt::Debug for UnwindModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Program { entry: Range { start, end }, main } = self.program();
        let mut shown = f.debug_struct("UnwindModule");
        shown.field("id", &self.id).field("entry", &(Svma(*start)..Svma(*end)));
        shown.field("main", &main.map(Svma)).field("is_go", &self.is_go).finish_non_exhaustive()
    }
}

/// Where in code the first function begins that it calls and that lies behind the call.
fn first_called(code: &[u8]) -> Option<u64> {
    let targets = code.windows(5).enumerate().filter(|(_, call)| call[0] == 0xe8).filter_map(|(at, call)| {
        let distance = u32::from_le_bytes(*call.last_chunk()?);
        Some(at as u64 + 5 + u64::from(distance))
    });
    targets.filter(|&target| target < code.len() as u64).min()
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
