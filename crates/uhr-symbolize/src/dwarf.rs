//! Lines and inline chains from DWARF.
//!
//! The sections are read into memory, not mapped: a mapped file that its owner cuts short kills the reader.

use std::borrow::Cow;
use std::ops::Range;

use addr2line::gimli::{self, Dwarf, EndianSlice, RunTimeEndian, SectionId};
use addr2line::{Context, LookupContinuation, LookupResult};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ReadRef};
use uhr_model::Svma;

use crate::split_dwarf::{Package, SplitFiles};
use crate::{Location, demangle, partial_units};

/// More debug information than this is not read: only debug builds of browsers have more, and it is held in memory.
pub(crate) const MAX_BYTES: u64 = 1 << 30;
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

/// What `addr2line` needs of split DWARF, and all that the index of a package points into.
const SPLIT_SECTIONS: [SectionId; 13] = [
    SectionId::DebugAbbrev,
    SectionId::DebugCuIndex,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugMacinfo,
    SectionId::DebugMacro,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugTuIndex,
    SectionId::DebugTypes,
];

/// Why there are no lines.
#[derive(Debug)]
pub(crate) enum DwarfError {
    Damaged,
    TooLarge(u64),
}

/// Bytes of a debug section.
pub(crate) type Slice<'s> = EndianSlice<'s, RunTimeEndian>;

/// The debug sections of one file, decompressed.
pub(crate) struct DebugSections<'d> {
    sections: Vec<(SectionId, Cow<'d, [u8]>)>,
    endian: RunTimeEndian,
}

impl<'d> DebugSections<'d> {
    /// Reads them. `None` if the file has no debug information.
    pub(crate) fn read<R: ReadRef<'d>>(file: R) -> Result<Option<Self>, DwarfError> {
        Self::read_named(file, &SECTIONS, |id| Some(id.name()), MAX_BYTES)
    }

    /// Reads what was left behind in a `.dwo` or `.dwp` file, at most `limit` bytes.
    pub(crate) fn read_split<R: ReadRef<'d>>(file: R, limit: u64) -> Result<Option<Self>, DwarfError> {
        Self::read_named(file, &SPLIT_SECTIONS, SectionId::dwo_name, limit)
    }

    fn read_named<R: ReadRef<'d>>(
        file: R,
        wanted: &[SectionId],
        name: impl Fn(SectionId) -> Option<&'static str>,
        limit: u64,
    ) -> Result<Option<Self>, DwarfError> {
        let elf = ElfFile64::<Endianness, R>::parse(file).map_err(|_| DwarfError::Damaged)?;
        let found: Vec<_> =
            wanted.iter().filter_map(|&id| Some((id, elf.section_by_name(name(id)?)?))).collect();
        if !found.iter().any(|(id, section)| *id == SectionId::DebugInfo && section.size() > 0) {
            return Ok(None);
        }
        let mut bytes = 0u64;
        let mut sections = Vec::with_capacity(found.len());
        for (id, section) in found {
            let data = section.compressed_data().map_err(|_| DwarfError::Damaged)?;
            bytes = bytes.saturating_add(data.uncompressed_size);
            // No compressor does better than 1:1032 (deflate); a forged size must not become an allocation.
            if bytes > limit || data.uncompressed_size / 1100 > data.data.len() as u64 {
                return Err(DwarfError::TooLarge(bytes));
            }
            let mut bytes = data.decompress().map_err(|_| DwarfError::Damaged)?;
            if id == SectionId::DebugAbbrev {
                partial_units::without_lines(&mut bytes);
            }
            sections.push((id, bytes));
        }
        let endian = if elf.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
        Ok(Some(Self { sections, endian }))
    }

    /// The same, apart from the file that they were read from.
    pub(crate) fn into_owned(self) -> DebugSections<'static> {
        let owned = |(id, bytes): (SectionId, Cow<'d, [u8]>)| (id, Cow::Owned(bytes.into_owned()));
        DebugSections { sections: self.sections.into_iter().map(owned).collect(), endian: self.endian }
    }

    /// Their length.
    pub(crate) fn bytes(&self) -> u64 {
        self.sections.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    pub(crate) fn empty(&self) -> Slice<'_> {
        EndianSlice::new(&[], self.endian)
    }

    pub(crate) fn section(&self, wanted: SectionId) -> Slice<'_> {
        let bytes = self.sections.iter().find(|(id, _)| *id == wanted).map_or(&[][..], |(_, bytes)| bytes);
        EndianSlice::new(bytes, self.endian)
    }
}

/// The lines of one module.
pub(crate) struct Lines<'s> {
    context: Context<Slice<'s>>,
    split: &'s SplitFiles<'s>,
    package: Package<'s>,
}

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
    /// Indexes the units. `alternate` is the file that dwz moved shared parts to, `split` what the
    /// compiler left in other files.
    pub(crate) fn new(
        sections: &'s DebugSections<'_>,
        alternate: Option<&'s DebugSections<'_>>,
        split: &'s SplitFiles<'s>,
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
        let context = Context::from_dwarf(dwarf).map_err(|_| DwarfError::Damaged)?;
        Ok(Self { context, split, package: Package::new() })
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
        let mut asked = self.context.find_frames(address.0);
        let frames = loop {
            match asked {
                LookupResult::Output(frames) => break frames,
                LookupResult::Load { load, continuation } => {
                    asked = continuation.resume(self.split.load(&self.package, &load));
                }
            }
        };
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
        let Ok(found) = self.context.find_location_range(range.start.0, range.end.0) else {
            return Vec::new();
        };
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
        let unit = self.context.find_dwarf_and_unit(address.0).skip_all_loads()?;
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
