#![forbid(unsafe_code)]
//! Call frame information of one section, found by address.

use std::ops::Range;
use std::sync::OnceLock;

use gimli::{
    BaseAddresses, CallFrameInstructionIter, CieOrFde, DebugFrame, EhFrame, FrameDescriptionEntry,
    LittleEndian, UnwindSection, Vendor,
};
use uhr_model::object::Machine;

use super::row::{Row, Slice};
use super::rules::Context;
use super::sections::SectionBytes;
use super::simple_row::SimpleRow;

/// Entries that an index takes: five times those of the largest programs. A forged section must not cost memory.
const MAX_ENTRIES: usize = 4 << 20;
/// The instructions of one entry are run from its start for each new address, so a forged one must not be long.
const MAX_ENTRY_BYTES: usize = 1 << 20;

pub(super) type Entry<'a> = FrameDescriptionEntry<Slice<'a>>;
pub(super) type Instructions<'a> = CallFrameInstructionIter<'a, Slice<'a>>;

/// The entries of `.eh_frame` or `.debug_frame`.
#[derive(Default)]
pub(super) struct Entries {
    section: SectionBytes,
    bases: BaseAddresses,
    is_debug_frame: bool,
    machine: Machine,
    /// The linker's own index (`.eh_frame_hdr`): no work at first sight of a large file.
    header: Option<HeaderTable>,
    /// Start address and offset of each entry, sorted; made when it is first needed.
    index: OnceLock<Vec<(u64, u32)>>,
}

impl Entries {
    pub(super) fn eh_frame(
        section: SectionBytes,
        header: SectionBytes,
        bases: BaseAddresses,
        machine: Machine,
    ) -> Self {
        let header = HeaderTable::new(header, section.address.0);
        Self { section, bases, is_debug_frame: false, machine, header, index: OnceLock::new() }
    }

    pub(super) fn debug_frame(section: SectionBytes, bases: BaseAddresses, machine: Machine) -> Self {
        Self { section, bases, is_debug_frame: true, machine, header: None, index: OnceLock::new() }
    }

    /// Memory that they take.
    pub(super) fn bytes(&self) -> usize {
        let header = self.header.as_ref().map_or(0, HeaderTable::bytes);
        let index = self.index.get().map_or(0, |index| size_of_val(index.as_slice()));
        self.section.bytes.len() + header + index
    }

    /// The entry that covers the code byte at a stated address.
    pub(super) fn find(&self, address: u64) -> Option<Entry<'_>> {
        let (_, offset) = self.get(self.count_up_to(address).checked_sub(1)?)?;
        self.at(offset).filter(|entry| entry.contains(address))
    }

    /// The first entry that begins above a stated address.
    pub(super) fn start_above(&self, address: u64) -> Option<u64> {
        self.get(self.count_up_to(address)).map(|(start, _)| start)
    }

    /// The entries' start addresses and offsets, sorted.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, u32)> {
        (0..self.len().min(MAX_ENTRIES)).filter_map(|at| self.get(at))
    }

    fn len(&self) -> usize {
        self.header.as_ref().map_or_else(|| self.index().len(), HeaderTable::len)
    }

    /// Start address and offset of an entry, in the order of addresses.
    fn get(&self, at: usize) -> Option<(u64, u32)> {
        match &self.header {
            Some(table) => table.get(at),
            None => self.index().get(at).copied(),
        }
    }

    /// How many entries begin at a stated address or below.
    fn count_up_to(&self, address: u64) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let is_up_to = self.get(middle).is_some_and(|(start, _)| start <= address);
            (low, high) = if is_up_to { (middle + 1, high) } else { (low, middle) };
        }
        low
    }

    /// The addresses around one, up to the entries before and behind it; `None` where an entry covers it.
    pub(super) fn gap(&self, address: u64) -> Option<Range<u64>> {
        let next = self.count_up_to(address);
        let end = self.get(next).map_or(u64::MAX, |(start, _)| start);
        let before = next.checked_sub(1).and_then(|last| self.at(self.get(last)?.1));
        let begin = before.map_or(0, |entry| entry.end_address());
        (begin <= address).then_some(begin..end)
    }

    /// The row of an entry of this section for an address in it. `None` for another processor than x86-64, too.
    pub(super) fn row(&self, entry: &Entry<'_>, address: u64, context: &mut Context) -> Option<Row> {
        if self.machine != Machine::X86_64 {
            None
        } else if self.is_debug_frame {
            row_of(&self.as_debug_frame(), &self.bases, entry, address, context)
        } else {
            row_of(&self.as_eh_frame(), &self.bases, entry, address, context)
        }
    }

    /// Shows at most `count` entries, evenly spread over the section, with their instructions.
    pub(super) fn sample(&self, count: usize, mut each: impl FnMut(&Entry<'_>, Instructions<'_>)) {
        let total = self.len();
        let step = total.div_ceil(count.max(1)).max(1);
        for at in (0..total).step_by(step) {
            let Some(entry) = self.get(at).and_then(|(_, offset)| self.at(offset)) else { continue };
            if self.is_debug_frame {
                each(&entry, entry.instructions(&self.as_debug_frame(), &self.bases));
            } else {
                each(&entry, entry.instructions(&self.as_eh_frame(), &self.bases));
            }
        }
    }

    /// The rows of the entry at an offset, in their simple form: start, end, row. Gives where the entry ends; `None` if there
    /// is none that begins behind what is `covered` already (a forged index names one entry a million times). Rows that are
    /// damaged are left out.
    pub(super) fn simple_rows(
        &self,
        offset: u32,
        covered: u64,
        context: &mut Context,
        each: &mut dyn FnMut(u64, u64, SimpleRow),
    ) -> Option<u64> {
        let entry = self.at(offset).filter(|entry| entry.initial_address() >= covered && entry.len() > 0)?;
        if self.is_debug_frame {
            simple_rows(&self.as_debug_frame(), self.machine, &self.bases, &entry, context, each);
        } else {
            simple_rows(&self.as_eh_frame(), self.machine, &self.bases, &entry, context, each);
        }
        Some(entry.end_address())
    }

    fn at(&self, offset: u32) -> Option<Entry<'_>> {
        let offset = offset as usize;
        if self.is_debug_frame {
            entry_at(&self.as_debug_frame(), &self.bases, offset)
        } else {
            entry_at(&self.as_eh_frame(), &self.bases, offset)
        }
    }

    fn index(&self) -> &[(u64, u32)] {
        self.index.get_or_init(|| {
            if self.is_debug_frame {
                index(&self.as_debug_frame(), &self.bases)
            } else {
                index(&self.as_eh_frame(), &self.bases)
            }
        })
    }

    /// Whose own instructions may stand in the entries.
    fn vendor(&self) -> Vendor {
        if self.machine == Machine::Aarch64 { Vendor::AArch64 } else { Vendor::Default }
    }

    fn as_eh_frame(&self) -> EhFrame<Slice<'_>> {
        let mut section = EhFrame::new(&self.section.bytes, LittleEndian);
        section.set_address_size(8);
        section.set_vendor(self.vendor());
        section
    }

    fn as_debug_frame(&self) -> DebugFrame<Slice<'_>> {
        let mut section = DebugFrame::new(&self.section.bytes, LittleEndian);
        section.set_address_size(8);
        section.set_vendor(self.vendor());
        section
    }
}

fn entry_at<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    offset: usize,
) -> Option<Entry<'a>> {
    let entry = section.fde_from_offset(bases, offset.into(), S::cie_from_offset).ok()?;
    (entry.entry_len() <= MAX_ENTRY_BYTES && entry.cie().entry_len() <= MAX_ENTRY_BYTES).then_some(entry)
}

fn row_of<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    entry: &Entry<'a>,
    address: u64,
    context: &mut Context,
) -> Option<Row> {
    let row = entry.unwind_info_for_address(section, bases, context, address).ok()?;
    Row::compile(section, row, entry, address)
}

fn simple_rows<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    machine: Machine,
    bases: &BaseAddresses,
    entry: &Entry<'a>,
    context: &mut Context,
    each: &mut dyn FnMut(u64, u64, SimpleRow),
) {
    let Ok(mut rows) = entry.rows(section, bases, context) else { return };
    while let Ok(Some(row)) = rows.next_row() {
        each(row.start_address(), row.end_address(), SimpleRow::of(machine, section, row, entry));
    }
}

fn index<'a, S: UnwindSection<Slice<'a>>>(section: &S, bases: &BaseAddresses) -> Vec<(u64, u32)> {
    let mut found = Vec::new();
    let mut entries = section.entries(bases);
    let mut last_cie = None;
    // What follows damage is lost, what stands before it counts.
    while let Ok(Some(entry)) = entries.next() {
        if found.len() >= MAX_ENTRIES {
            break;
        }
        let CieOrFde::Fde(partial) = entry else { continue };
        let fde = partial.parse(|section, bases, offset| match &last_cie {
            Some((at, cie)) if *at == offset => Ok(gimli::CommonInformationEntry::clone(cie)),
            _ => {
                let cie = section.cie_from_offset(bases, offset)?;
                last_cie = Some((offset, cie.clone()));
                Ok(cie)
            }
        });
        if let Ok(fde) = fde
            && let Ok(offset) = u32::try_from(fde.offset())
        {
            found.push((fde.initial_address(), offset));
        }
    }
    found.sort_unstable();
    found
}

/// `.eh_frame_hdr` in the one form that linkers write: a sorted table of pairs of signed 32-bit offsets from the
/// section's own start, to a function and to its entry (LSB 5.0, 10.6.2).
struct HeaderTable {
    address: u64,
    bytes: Vec<u8>,
    eh_frame: u64,
}

impl HeaderTable {
    const ROWS: usize = 12;

    fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// `None` if the section is missing or has another form; then the entries are walked instead.
    fn new(section: SectionBytes, eh_frame: u64) -> Option<Self> {
        // Version 1; the pointer to .eh_frame relative to its place, the count plain, the table relative to the
        // section, all of 4 bytes.
        if section.bytes.get(..4)? != [1, 0x1b, 0x03, 0x3b] {
            return None;
        }
        let count = u32::from_le_bytes(*section.bytes.get(8..)?.first_chunk()?);
        let mut bytes = section.bytes;
        let length = usize::try_from(count).ok()?.checked_mul(8)?.checked_add(Self::ROWS)?;
        if length > bytes.len() {
            return None;
        }
        bytes.truncate(length);
        Some(Self { address: section.address.0, bytes, eh_frame })
    }

    fn len(&self) -> usize {
        (self.bytes.len() - Self::ROWS) / 8
    }

    fn word(&self, at: usize) -> Option<u64> {
        let relative = i32::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?);
        Some(self.address.wrapping_add_signed(i64::from(relative)))
    }

    fn get(&self, row: usize) -> Option<(u64, u32)> {
        let (start, entry) = (self.word(Self::ROWS + row * 8)?, self.word(Self::ROWS + row * 8 + 4)?);
        Some((start, u32::try_from(entry.checked_sub(self.eh_frame)?).ok()?))
    }
}
