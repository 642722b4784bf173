//! The bytes of a module's code, for a disassembly that needs no module any more.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use object::{ReadCache, ReadRef};
use uhr_model::RelativeAddress;
use uhr_model::object::ElfFile;

use crate::ModuleSource;
use crate::debug_files::open_regular;

/// The bytes of each range of addresses in a module; `None` where the module does not hold all of them, is not the one
/// that ran, or does not have code at all: a perf map and the kernel's symbols are names alone.
///
/// The caller bounds the lengths: what is asked for is held in memory.
pub fn machine_code(source: &ModuleSource<'_>, ranges: &[Range<RelativeAddress>]) -> Vec<Option<Vec<u8>>> {
    let nothing = || vec![None; ranges.len()];
    match source {
        ModuleSource::Elf(elf) => {
            let Some(file) = open_regular(elf.open) else { return nothing() };
            survive(ranges, || {
                let file = ReadCache::new(file);
                let Some(described) = ElfFile::parse(&file).ok() else { return nothing() };
                if elf.build_id.is_some() && described.build_id.as_ref() != elf.build_id {
                    return nothing();
                }
                ranges.iter().map(|range| bytes_of(&described, &file, range)).collect()
            })
        }
        ModuleSource::Vdso { image } => survive(ranges, || {
            let Ok(described) = ElfFile::parse(*image) else { return nothing() };
            ranges.iter().map(|range| bytes_of(&described, *image, range)).collect()
        }),
        ModuleSource::Jitdump(dump) => {
            let bytes = |range: &Range<RelativeAddress>| dump.bytes(&(range.start.0..range.end.0));
            ranges.iter().map(|range| bytes(range).map(<[u8]>::to_vec)).collect()
        }
        ModuleSource::Kernel(_) | ModuleSource::PerfMap(_) => nothing(),
    }
}

/// The reader of ELF files is others' code over strangers' bytes: see [`crate::elf_module`].
fn survive(
    ranges: &[Range<RelativeAddress>],
    work: impl FnOnce() -> Vec<Option<Vec<u8>>>,
) -> Vec<Option<Vec<u8>>> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| vec![None; ranges.len()])
}

/// The bytes of a range that lies in one executable segment, and in the file.
fn bytes_of<'d, R: ReadRef<'d>>(elf: &ElfFile, file: R, range: &Range<RelativeAddress>) -> Option<Vec<u8>> {
    let start = elf.segments.svma_of_relative(range.start)?;
    let length = range.end.offset_from(range.start)?;
    let segment = elf.segments.iter().filter(|segment| segment.executable).find(|segment| {
        let within = start.offset_from(segment.address);
        within.and_then(|within| within.checked_add(length)).is_some_and(|end| end <= segment.file_size)
    })?;
    let offset = segment.offset.checked_add(start.offset_from(segment.address)?)?;
    Some(file.read_bytes_at(offset.0, length).ok()?.to_vec())
}
