//! One ELF module: proves that the file is the one that ran, gathers its names from everywhere, answers its addresses.

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use object::{ReadCache, ReadRef};
use uhr_model::object::ElfFile;
use uhr_model::{RelativeAddress, Svma, Unsymbolized};

use crate::debug_files::{Places, open_regular};
use crate::demangle::is_rust;
use crate::dwarf::{DebugSections, DwarfError, Lines};
use crate::elf_symbols::{ElfSymbols, FunctionRanges, leading_underscores};
use crate::go_table::GoTable;
use crate::plt::LinkageStubs;
use crate::split_dwarf::SplitFiles;
use crate::unwind_entry::UnwindEntries;
use crate::{
    ElfSource, LineStart, Location, ModuleSymbols, Note, Origin, Symbolized, Unnamed, demangle, mini_debug,
};

/// What is asked of a module: names for addresses (sorted), and of some functions every line.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) addresses: &'a [RelativeAddress],
    pub(crate) wants_lines: &'a dyn Fn(Range<RelativeAddress>) -> bool,
}

/// Answers from an ELF file.
pub(crate) fn symbolize_file(source: &ElfSource<'_>, asked: Asked<'_>) -> ModuleSymbols {
    let addresses = asked.addresses;
    survive(addresses, || match open_module(source) {
        Ok((elf, file)) => with_debug_file(source, &elf, &file, asked),
        Err((reason, notes)) => from_debug_file_alone(source, asked)
            .unwrap_or_else(|| ModuleSymbols::unnamed(addresses, reason, notes)),
    })
}

/// Answers `addresses` (sorted) from an ELF image in memory.
pub(crate) fn symbolize_image(image: &[u8], addresses: &[RelativeAddress]) -> ModuleSymbols {
    survive(addresses, || {
        let Ok(elf) = ElfFile::parse(image) else {
            return ModuleSymbols::unnamed(addresses, Unsymbolized::Malformed, Vec::new());
        };
        let mut symbols = ElfSymbols::default();
        symbols.add_file(image);
        let names = Names { functions: symbols.into_ranges(), lines: None, go: None };
        names.answer(&elf, image, addresses, Origin::SymbolTable, Vec::new())
    })
}

/// The readers of ELF and DWARF are others' code over strangers' bytes. Should one panic, this module has no names,
/// and the recording keeps all others.
fn survive(addresses: &[RelativeAddress], work: impl FnOnce() -> ModuleSymbols) -> ModuleSymbols {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| ModuleSymbols::unnamed(addresses, Unsymbolized::Malformed, Vec::new()))
}

/// The module's file, if it is the one that ran.
fn open_module(source: &ElfSource<'_>) -> Result<(ElfFile, ReadCache<File>), (Unsymbolized, Vec<Note>)> {
    let file = open_regular(source.open).ok_or((Unsymbolized::FileMissing, Vec::new()))?;
    let file = ReadCache::new(file);
    let elf = ElfFile::parse(&file).map_err(|_| (Unsymbolized::Malformed, Vec::new()))?;
    if source.build_id.is_some() && elf.build_id.as_ref() != source.build_id {
        let note = Note::FileChanged { path: source.path.to_owned() };
        return Err((Unsymbolized::FileChanged, vec![note]));
    }
    Ok((elf, file))
}

/// Whether the section table, which is the last thing in a file, lies beyond the file's end.
fn is_cut_short(elf: &ElfFile, file: &ReadCache<File>) -> bool {
    const E_SHOFF: u64 = 0x28;
    let table = file.read_bytes_at(E_SHOFF, 8).ok().and_then(|bytes| bytes.try_into().ok());
    let length = file.len().unwrap_or(0);
    elf.sections.is_empty() && table.is_some_and(|table| u64::from_le_bytes(table) >= length)
}

fn with_debug_file(
    source: &ElfSource<'_>,
    elf: &ElfFile,
    file: &ReadCache<File>,
    asked: Asked<'_>,
) -> ModuleSymbols {
    let mut notes = Vec::new();
    if is_cut_short(elf, file) {
        notes.push(Note::FileCut { path: source.path.to_owned() });
    }
    let own_lines = elf.section(".debug_info").or_else(|| elf.section(".zdebug_info")).is_some();
    if own_lines {
        return answer(source, (elf, file), &[file], (file, source.path), Origin::Dwarf, notes, asked);
    }
    if let Some(found) = Places::of(source).find(elf, &mut notes) {
        let debug = &found.file;
        let files = [file, debug];
        return answer(source, (elf, file), &files, (debug, &found.path), found.origin(), notes, asked);
    }
    let mut symbols = ElfSymbols::default();
    symbols.add_file(file);
    let packed = mini_debug::unpack(elf, file).unwrap_or_else(|_| {
        notes.push(Note::MiniDebugDamaged { path: source.path.to_owned() });
        None
    });
    if let Some(packed) = &packed {
        symbols.add_file(packed.as_slice());
    }
    let go = GoTable::new(elf, file);
    let origin = match (&go, &packed) {
        (Some(_), _) => Origin::GoTable,
        (None, Some(_)) => Origin::MiniDebug,
        (None, None) => Origin::SymbolTable,
    };
    let names = Names { functions: symbols.into_ranges(), lines: None, go };
    names.answer(elf, file, asked.addresses, origin, notes)
}

/// The file that ran is not there, but its debug file has its build id: that has the same segments and all names.
fn from_debug_file_alone(source: &ElfSource<'_>, asked: Asked<'_>) -> Option<ModuleSymbols> {
    let mut notes = Vec::new();
    let found = Places::of(source).by_build_id(source.build_id?, &mut notes)?;
    let elf = ElfFile::parse(&found.file).ok()?;
    let file = &found.file;
    Some(answer(source, (&elf, file), &[file], (file, &found.path), found.origin(), notes, asked))
}

/// Answers from the symbols of `symbol_files` and the DWARF of one file. `module` tells addresses and linkage stubs.
fn answer(
    source: &ElfSource<'_>,
    (elf, module): (&ElfFile, &ReadCache<File>),
    symbol_files: &[&ReadCache<File>],
    (debug, debug_path): (&ReadCache<File>, &Path),
    origin: Origin,
    mut notes: Vec<Note>,
    asked: Asked<'_>,
) -> ModuleSymbols {
    let mut symbols = ElfSymbols::default();
    symbol_files.iter().for_each(|&file| symbols.add_file(file));
    let sections = read_lines(debug, debug_path, &mut notes);
    let places = Places::of(source);
    let alternate = places.alternate(debug, debug_path, &mut notes);
    let shared = alternate.as_ref().and_then(|file| read_lines(file, source.path, &mut notes));
    let split = SplitFiles::new(&places, debug_path);
    let lines = sections.as_ref().and_then(|sections| match Lines::new(sections, shared.as_ref(), &split) {
        Ok(lines) => Some(lines),
        Err(error) => {
            notes.push(note_of(&error, debug_path));
            None
        }
    });
    let names = Names { functions: symbols.into_ranges(), lines, go: None };
    let mut answer = names.answer(elf, module, asked.addresses, origin, notes);
    answer.lines = names.whole_functions(elf, &answer.results, asked.wants_lines);
    answer.notes.extend(split.note());
    answer
}

fn read_lines<'d, R: ReadRef<'d>>(file: R, path: &Path, notes: &mut Vec<Note>) -> Option<DebugSections<'d>> {
    DebugSections::read(file).unwrap_or_else(|error| {
        notes.push(note_of(&error, path));
        None
    })
}

fn note_of(error: &DwarfError, path: &Path) -> Note {
    let path = path.to_owned();
    match *error {
        DwarfError::Damaged => Note::DebugInfoDamaged { path },
        DwarfError::TooLarge(bytes) => Note::DebugInfoTooLarge { path, bytes },
    }
}

/// Where the physical function of an address is, and the locations of the address.
type Found = (Option<Range<Svma>>, Vec<Location>);

/// Everything that names a module's code.
struct Names<'d> {
    functions: FunctionRanges<'d>,
    lines: Option<Lines<'d>>,
    /// Go's own table, of a module without DWARF.
    go: Option<GoTable<'d>>,
}

impl Names<'_> {
    fn answer<'d, R: ReadRef<'d>>(
        &self,
        elf: &ElfFile,
        file: R,
        addresses: &[RelativeAddress],
        origin: Origin,
        mut notes: Vec<Note>,
    ) -> ModuleSymbols {
        let mut damaged = 0;
        // Only code without symbols needs these: for most modules they are never read.
        let entries = LazyCell::new(|| UnwindEntries::new(elf, file));
        let entry = |at: Svma| entries.as_ref().and_then(|entries| entries.range_of(at));
        let stubs = LazyCell::new(|| LinkageStubs::new(elf, file));
        let stub = |at: Svma| stubs.as_ref().and_then(|stubs| stubs.find(at));
        let mut results = Vec::with_capacity(addresses.len());
        for &address in addresses {
            let found = elf.segments.svma_of_relative(address).map(|at| {
                let by_go = self.go.as_ref().and_then(|table| table.find(at));
                let by_go = by_go.map(|(range, places)| (Some(range), places));
                by_go
                    .map_or_else(|| self.find(at, &entry, &mut damaged), Ok)
                    .or_else(|start| named_stub(stub(at)).ok_or(start))
            });
            let found = found.unwrap_or(Err(None));
            let relative = |at| elf.segments.relative_of_svma(at);
            results.push(match found {
                Ok((range, locations)) => Ok(Symbolized {
                    start: range.as_ref().and_then(|range| relative(range.start)).unwrap_or(address),
                    end: range.and_then(|range| relative(range.end)),
                    locations,
                    kernel_module: None,
                    mode: None,
                }),
                Err(entry) => Err(Unnamed {
                    reason: Unsymbolized::NoSymbol,
                    start: entry.as_ref().and_then(|range| relative(range.start)),
                    end: entry.and_then(|range| relative(range.end)),
                }),
            });
        }
        if damaged > 0 {
            notes.push(Note::LinesDamaged { addresses: damaged });
        }
        ModuleSymbols { results, origin, notes, lines: Vec::new() }
    }

    /// The lines of the functions that were found, as far as they are wanted.
    fn whole_functions(
        &self,
        elf: &ElfFile,
        found: &[Result<Symbolized, Unnamed>],
        wants_lines: &dyn Fn(Range<RelativeAddress>) -> bool,
    ) -> Vec<LineStart> {
        let Some(lines) = &self.lines else { return Vec::new() };
        let ranges = found.iter().flatten().filter_map(|found| Some((found.start, found.end?)));
        let ranges: BTreeSet<(RelativeAddress, RelativeAddress)> = ranges.collect();
        let mut starts = Vec::new();
        for (start, end) in ranges.into_iter().filter(|(start, end)| wants_lines(*start..*end)) {
            let svma = |at| elf.segments.svma_of_relative(at);
            let (Some(first), Some(behind)) = (svma(start), svma(end)) else { continue };
            for at in lines.starts(first..behind) {
                let locations = self.find(at, &|_| None, &mut 0).map(|found| found.1).unwrap_or_default();
                if let Some(address) = elf.segments.relative_of_svma(at) {
                    starts.push(LineStart { address, locations });
                }
            }
            starts.push(LineStart { address: end, locations: Vec::new() });
        }
        starts
    }

    /// The bounds of the physical function and its locations, or those of the unwind entry.
    fn find(
        &self,
        address: Svma,
        entry: &impl Fn(Svma) -> Option<Range<Svma>>,
        damaged: &mut usize,
    ) -> Result<Found, Option<Range<Svma>>> {
        let symbol = self.functions.find(address);
        let frames = self.lines.as_ref().and_then(|lines| {
            lines.find(address).unwrap_or_else(|_| {
                *damaged += 1;
                None
            })
        });
        let mut locations = Vec::new();
        let (mut own_name, mut own_range) = (None, None);
        if let Some(frames) = frames {
            (locations, own_name, own_range) = (frames.locations, frames.raw_name, frames.range);
        }
        if let Some((name, range)) = &symbol {
            let name = String::from_utf8_lossy(name);
            let name = match own_name {
                Some(_) if own_range.as_ref().map(|own| own.start) != Some(range.start) => None,
                Some(own) => better_name(&name, &own).map(demangle),
                // Assembler with line numbers, or split DWARF: the name is in the symbol table alone.
                None => Some(demangle(&name)),
            };
            match locations.last_mut() {
                Some(physical) => physical.function = name.or(physical.function.take()),
                None => locations.push(Location { function: name, ..Location::default() }),
            }
        }
        if locations.iter().all(|place| place.function.is_none()) {
            return Err(entry(address));
        }
        let range = symbol.map(|(_, range)| range).or(own_range);
        Ok((range.or_else(|| entry(address)), locations))
    }
}

fn named_stub(stub: Option<(&[u8], Range<Svma>)>) -> Option<Found> {
    let (name, range) = stub?;
    let function = Some(demangle(&String::from_utf8_lossy(name)) + "@plt");
    Some((Some(range), vec![Location { function, ..Location::default() }]))
}

/// Of the symbol and the DWARF name of one function, the symbol where it says more.
///
/// DWARF names the definition: libc's `qsort` is `__GI_qsort` there, and GCC leaves out the namespaces and parameters
/// of functions in anonymous namespaces. A symbol's suffix (`.cold`) is not part of the name.
fn better_name<'n>(symbol: &'n str, dwarf: &str) -> Option<&'n str> {
    let is_mangled = |name: &str| name.starts_with("_Z") || name.starts_with("_R");
    let underscores = |name: &str| leading_underscores(name.as_bytes());
    match (is_mangled(symbol), is_mangled(dwarf)) {
        // Rust's own names have dots inside (`core..fmt`), and its demangler knows the suffixes.
        (true, false) if is_rust(symbol) => Some(symbol),
        (true, false) => symbol.split('.').next(),
        (false, false) if dwarf.starts_with("__GI_") || underscores(symbol) < underscores(dwarf) => {
            Some(symbol)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::better_name;

    #[test]
    fn suffixes_go_and_the_dots_of_rust_stay() {
        assert_eq!(better_name("_ZN1a1bEv.cold", "b"), Some("_ZN1a1bEv"));
        let of_impl = "_ZN47_$LT$shares..Digger$u20$as$u20$shares..Work$GT$4work17ha56e94e2fab62b64E";
        assert_eq!(better_name(of_impl, "work"), Some(of_impl));
        assert_eq!(better_name("qsort", "__GI_qsort"), Some("qsort"));
        assert_eq!(better_name("_ZN1a1bEv", "_ZN1a1bEv"), None);
    }
}
