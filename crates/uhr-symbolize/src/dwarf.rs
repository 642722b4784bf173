//! Lines and inline chains from DWARF.
//!
//! The sections are read into memory, not mapped: a mapped file that its owner cuts short kills the reader, and files
//! that a hostile binary merely names (split DWARF) are not opened.

use std::borrow::Cow;
use std::ops::Range;

use addr2line::Context;
use addr2line::gimli::{self, Dwarf, EndianSlice, RunTimeEndian, SectionId};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ReadRef};
use uhr_model::Svma;

use crate::{Location, demangle};

/// More debug information than this is not read: only debug builds of browsers have more, and it is held in memory.
const MAX_BYTES: u64 = 1 << 30;
/// Longer inline chains are damage.
const MAX_CHAIN: usize = 512;
/// No function changes its line more often: that is one change every two bytes of the longest that are looked at.
const MAX_LINE_STARTS: usize = 1 << 17;

/// What `addr2line` needs; locations of variables and macros stay on disk.
const SECTIONS: [SectionId; 11] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugTypes,
];

/// Why there are no lines.
#[derive(Debug)]
pub(crate) enum DwarfError {
    Damaged,
    TooLarge(u64),
}

/// The debug sections of one file, decompressed.
pub(crate) struct DebugSections<'d> {
    sections: Vec<(SectionId, Cow<'d, [u8]>)>,
    endian: RunTimeEndian,
}

impl<'d> DebugSections<'d> {
    /// Reads them. `None` if the file has no debug information.
    pub(crate) fn read<R: ReadRef<'d>>(file: R) -> Result<Option<Self>, DwarfError> {
        let elf = ElfFile64::<Endianness, R>::parse(file).map_err(|_| DwarfError::Damaged)?;
        let found: Vec<_> =
            SECTIONS.iter().filter_map(|&id| Some((id, elf.section_by_name(id.name())?))).collect();
        if !found.iter().any(|(id, section)| *id == SectionId::DebugInfo && section.size() > 0) {
            return Ok(None);
        }
        let mut bytes = 0u64;
        let mut sections = Vec::with_capacity(found.len());
        for (id, section) in found {
            let data = section.compressed_data().map_err(|_| DwarfError::Damaged)?;
            bytes = bytes.saturating_add(data.uncompressed_size);
            // No compressor does better than 1:1032 (deflate); a forged size must not become an allocation.
            if bytes > MAX_BYTES || data.uncompressed_size / 1100 > data.data.len() as u64 {
                return Err(DwarfError::TooLarge(bytes));
            }
            sections.push((id, data.decompress().map_err(|_| DwarfError::Damaged)?));
        }
        let endian = if elf.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
        Ok(Some(Self { sections, endian }))
    }

    fn section(&self, wanted: SectionId) -> EndianSlice<'_, RunTimeEndian> {
        let bytes = self.sections.iter().find(|(id, _)| *id == wanted).map_or(&[][..], |(_, bytes)| bytes);
        EndianSlice::new(bytes, self.endian)
    }
}

/// The lines of one module.
pub(crate) struct Lines<'s>(Context<EndianSlice<'s, RunTimeEndian>>);

/// What DWARF knows of one address.
pub(crate) struct Frames {
    /// The innermost function first.
    pub(crate) locations: Vec<Location>,
    /// The part of the physical function that holds the address.
    pub(crate) range: Option<Range<Svma>>,
    /// The physical function's name, not demangled.
    pub(crate) raw_name: Option<String>,
}

impl<'s> Lines<'s> {
    /// Indexes the units. `alternate` is the file that dwz moved shared parts to.
    pub(crate) fn new(
        sections: &'s DebugSections<'_>,
        alternate: Option<&'s DebugSections<'_>>,
    ) -> Result<Self, DwarfError> {
        let mut dwarf =
            Dwarf::load(|id| Ok::<_, gimli::Error>(sections.section(id))).map_err(|_| DwarfError::Damaged)?;
        if let Some(alternate) = alternate {
            dwarf
                .load_sup(|id| Ok::<_, gimli::Error>(alternate.section(id)))
                .map_err(|_| DwarfError::Damaged)?;
        }
        // `addr2line` passes over units that it cannot read. If the first one is damaged, say so.
        let first =
            dwarf.units().next().and_then(|header| header.map(|header| dwarf.unit(header)).transpose());
        first.map_err(|_| DwarfError::Damaged)?;
        dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
        Context::from_dwarf(dwarf).map(Self).map_err(|_| DwarfError::Damaged)
    }

    /// The functions and lines of an address. `None` where the debug information does not cover it.
    ///
    /// # Errors
    /// [`DwarfError::Damaged`] if the unit that covers it cannot be read.
    pub(crate) fn find(&self, address: Svma) -> Result<Option<Frames>, DwarfError> {
        if address.0 == u64::MAX {
            // `addr2line` searches one byte further, and nothing is there.
            return Ok(None);
        }
        let frames = self.0.find_frames(address.0).skip_all_loads();
        let mut frames = frames.map_err(|_| DwarfError::Damaged)?;
        let mut locations = Vec::new();
        let (mut physical, mut raw_name) = (None, None);
        while let Some(frame) = frames.next().map_err(|_| DwarfError::Damaged)? {
            if locations.len() == MAX_CHAIN {
                return Err(DwarfError::Damaged);
            }
            let name = frame.function.as_ref().and_then(|function| function.raw_name().ok());
            locations.push(Location {
                function: name.as_deref().map(demangle),
                file: frame.location.as_ref().and_then(|place| place.file).map(str::to_owned),
                line: frame.location.as_ref().and_then(|place| place.line),
            });
            raw_name = name.map(Cow::into_owned);
            physical = frame.dw_die_offset;
        }
        if locations.is_empty() {
            return Ok(None);
        }
        let range = physical.and_then(|entry| self.range_of(entry, address));
        Ok(Some(Frames { locations, range, raw_name }))
    }

    /// Where in a range of code the line changes, in order. As far as the line table can be read.
    pub(crate) fn starts(&self, range: Range<Svma>) -> Vec<Svma> {
        let Ok(found) = self.0.find_location_range(range.start.0, range.end.0) else { return Vec::new() };
        let mut starts: Vec<Svma> = found
            .take(MAX_LINE_STARTS)
            .map(|(start, ..)| Svma(start.max(range.start.0)))
            .filter(|start| *start < range.end)
            .collect();
        starts.sort_unstable();
        starts.dedup();
        starts
    }

    /// The part of the function that holds the address.
    fn range_of(&self, function: gimli::UnitOffset, address: Svma) -> Option<Range<Svma>> {
        let unit = self.0.find_dwarf_and_unit(address.0).skip_all_loads()?;
        let entry = unit.entry(function).ok()?;
        let mut ranges = unit.die_ranges(&entry).ok()?;
        while let Ok(Some(range)) = ranges.next() {
            if range.begin <= address.0 && address.0 < range.end {
                return Some(Svma(range.begin)..Svma(range.end));
            }
        }
        None
    }
}
