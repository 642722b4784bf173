//! From a module and addresses in it to functions, files, lines and inline chains, or to the reason why there are none.
//!
//! One call of [`symbolize`] opens one module once and answers all its addresses: opening a large debug file costs
//! tenths of a second, an address nearly nothing. Modules do not depend on each other, so callers run them in parallel.
//!
//! Contract: addresses are lookup addresses. A return address has already been moved back into its call (see
//! `CodeAddress::lookup`); nothing is subtracted here. For ELF files and the vDSO they count from the image base, for
//! the kernel and generated code they are AVMAs. All input is hostile: damage costs names, never the process.

#![forbid(unsafe_code)]

mod code_ranges;
mod debug_files;
mod demangle;
mod dwarf;
mod elf_module;
mod elf_symbols;
mod go_table;
mod jitdump;
mod kernel;
mod kernel_memory;
mod machine_code;
mod mini_debug;
mod note;
mod partial_units;
mod perf_map;
mod plt;
mod runtime_name;
mod split_dwarf;
mod unwind_entry;

use std::ops::Range;
use std::path::{Path, PathBuf};

use uhr_model::{BuildId, FrameMode, RelativeAddress, Unsymbolized};

use elf_module::Asked;

pub use demangle::demangle;
pub use jitdump::{Jitdump, JitdumpError};
pub use kernel::KernelSymbols;
pub use kernel_memory::{KernelMemory, KernelMemoryError};
pub use machine_code::machine_code;
pub use note::{Mismatch, Note};
pub use perf_map::PerfMap;

/// Where the names of a module come from.
#[derive(Clone, Copy, Debug)]
pub enum ModuleSource<'a> {
    /// An ELF file.
    Elf(ElfSource<'a>),
    /// The vDSO, as it is in memory.
    Vdso {
        /// All its bytes.
        image: &'a [u8],
    },
    /// The running kernel, with its modules and BPF programs.
    Kernel(&'a KernelSymbols<'a>),
    /// Generated code whose runtime wrote a perf map.
    PerfMap(&'a PerfMap<'a>),
    /// Generated code whose runtime wrote a jitdump.
    Jitdump(&'a Jitdump<'a>),
}

/// An ELF file, and where to look for what it lacks.
#[derive(Clone, Copy, Debug)]
pub struct ElfSource<'a> {
    /// The path to open: `/proc/self/fd/N` for a file that was held open, or an ordinary path.
    pub open: &'a Path,
    /// The path that the module was mapped from. Debug files named by a debug link are looked for in its folder.
    pub path: &'a Path,
    /// The build id of the module that ran, where it is known: a file with another one is not used.
    pub build_id: Option<&'a BuildId>,
    /// The folder that was the root of the program's file system, if not `/`: debug files are looked for in it first.
    pub root: Option<&'a Path>,
    /// Where debug files are asked for that are on no disk here, if anywhere.
    pub elsewhere: Option<&'a dyn DebugFiles>,
}

/// A place where debug files are found by build id, such as debuginfod servers.
pub trait DebugFiles: std::fmt::Debug + Sync {
    /// Where the debug file of a build now is, if there is one. Its build id is checked before it is used.
    fn find(&self, id: &BuildId) -> Option<PathBuf>;
}

/// One place in the source.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Location {
    /// The function's name, demangled.
    pub function: Option<String>,
    /// The source file as the compiler wrote it.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: Option<u32>,
}

/// What is known of one address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbolized {
    /// Where the physical function begins.
    pub start: RelativeAddress,
    /// The address behind its last byte, where that is known.
    pub end: Option<RelativeAddress>,
    /// The innermost inlined function first, the physical function last; never empty.
    pub locations: Vec<Location>,
    /// The kernel module that the address is in, such as `nf_tables` or `bpf`; `None` for everything else.
    pub kernel_module: Option<String>,
    /// The kind of code, where its name tells it better than its mapping does.
    pub mode: Option<FrameMode>,
}

/// An address without a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unnamed {
    /// Why it has none.
    pub reason: Unsymbolized,
    /// Where the unwind entry (FDE) that covers it begins: the start of the nameless function.
    pub start: Option<RelativeAddress>,
    /// Where that entry ends.
    pub end: Option<RelativeAddress>,
}

impl Unnamed {
    /// Without a name, and nothing is known of the code around it.
    pub fn because(reason: Unsymbolized) -> Self {
        Self { reason, start: None, end: None }
    }
}

/// How a separate debug file was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FoundBy {
    /// Under `.build-id`, with the same build id in it.
    BuildId,
    /// By the name in `.gnu_debuglink`, with the checksum that stands there.
    DebugLink,
    /// By build id, from the place that [`ElfSource::elsewhere`] names.
    Elsewhere,
}

/// Where the names came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// From nowhere: the module could not be used.
    Nowhere,
    /// The symbol tables of the file itself.
    SymbolTable,
    /// The symbol tables of the file itself, one of them packed in `.gnu_debugdata`.
    MiniDebug,
    /// The symbol tables of the file itself, and Go's own table of functions in `.gopclntab`.
    GoTable,
    /// The file's own DWARF, and its symbol tables.
    Dwarf,
    /// A separate debug file, and the symbol tables of both.
    DebugFile {
        /// Where it is.
        path: PathBuf,
        /// How it was found.
        found_by: FoundBy,
    },
    /// `/proc/kallsyms`.
    KernelSymbols,
    /// A perf map.
    PerfMap,
    /// A jitdump.
    Jitdump,
}

/// The answers for one module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModuleSymbols {
    /// One answer for each address that was asked for, in that order.
    pub results: Vec<Result<Symbolized, Unnamed>>,
    /// Where the names came from.
    pub origin: Origin,
    /// What a reader of the names should know.
    pub notes: Vec<Note>,
    /// Lines of whole functions, by address: see [`symbolize_with_lines`].
    pub lines: Vec<LineStart>,
}

/// Where the source of a function's code changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineStart {
    /// The first address that is of this source; the next one in order is of another.
    pub address: RelativeAddress,
    /// As [`Symbolized::locations`]; empty behind the end of a function.
    pub locations: Vec<Location>,
}

/// Answers all `addresses` of one module. They may be in any order and repeat.
pub fn symbolize(source: &ModuleSource<'_>, addresses: &[RelativeAddress]) -> ModuleSymbols {
    symbolize_with_lines(source, addresses, &|_| false)
}

/// The same, with all the lines of those functions that `wants_lines` chooses by their first address and the one behind
/// their last byte. It is asked once a function.
pub fn symbolize_with_lines(
    source: &ModuleSource<'_>,
    addresses: &[RelativeAddress],
    wants_lines: &dyn Fn(Range<RelativeAddress>) -> bool,
) -> ModuleSymbols {
    let mut sorted = addresses.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let answers = match source {
        ModuleSource::Elf(elf) => elf_module::symbolize_file(elf, Asked { addresses: &sorted, wants_lines }),
        ModuleSource::Vdso { image } => elf_module::symbolize_image(image, &sorted),
        ModuleSource::Kernel(kernel) => {
            let mut symbols = ModuleSymbols::of(Origin::KernelSymbols, &sorted, |at| kernel.find(at));
            symbols.notes.extend(kernel.is_restricted().then_some(Note::KernelRestricted));
            symbols
        }
        ModuleSource::PerfMap(map) => ModuleSymbols::of(Origin::PerfMap, &sorted, |at| map.find(at)),
        ModuleSource::Jitdump(dump) => {
            let mut symbols = ModuleSymbols::of(Origin::Jitdump, &sorted, |at| dump.find(at));
            symbols.lines = dump.whole_functions(&symbols.results, wants_lines);
            symbols
        }
    };
    answers.in_order_of(addresses, &sorted)
}

impl ModuleSymbols {
    fn of(
        origin: Origin,
        addresses: &[RelativeAddress],
        find: impl Fn(RelativeAddress) -> Result<Symbolized, Unnamed>,
    ) -> Self {
        let results = addresses.iter().map(|&at| find(at)).collect();
        Self { results, origin, notes: Vec::new(), lines: Vec::new() }
    }

    /// The same reason for every address.
    fn unnamed(addresses: &[RelativeAddress], reason: Unsymbolized, notes: Vec<Note>) -> Self {
        let results = addresses.iter().map(|_| Err(Unnamed::because(reason))).collect();
        Self { results, origin: Origin::Nowhere, notes, lines: Vec::new() }
    }

    /// Spreads the answers for `sorted` unique addresses over the addresses as they were asked for.
    fn in_order_of(self, addresses: &[RelativeAddress], sorted: &[RelativeAddress]) -> Self {
        if addresses == sorted {
            return self;
        }
        let missing = Err(Unnamed::because(Unsymbolized::NoSymbol));
        let answer = |at| sorted.binary_search(at).ok().and_then(|row| self.results.get(row)).cloned();
        let results = addresses.iter().map(|at| answer(at).unwrap_or_else(|| missing.clone())).collect();
        Self { results, ..self }
    }
}
