//! Where a function without a name begins: its unwind entry says so, even in a stripped file.

use std::ops::Range;

use addr2line::gimli::{
    BaseAddresses, CieOrFde, EhFrame, EhFrameHdr, EhFrameOffset, LittleEndian, UnwindSection,
};
use object::ReadRef;
use uhr_model::Svma;
use uhr_model::object::ElfFile;

/// Larger unwind sections than any known program's are left alone.
const MAX_SECTION: u64 = 512 << 20;

/// The unwind entries of a module, as ranges of addresses.
pub(crate) struct UnwindEntries<'d> {
    frames: EhFrame<addr2line::gimli::EndianSlice<'d, LittleEndian>>,
    header: Option<&'d [u8]>,
    bases: BaseAddresses,
    /// All entries by start and end, where the file has no search table.
    scanned: Vec<(u64, u64)>,
}

impl<'d> UnwindEntries<'d> {
    /// The entries of `file`, or `None` if it has none.
    pub(crate) fn new<R: ReadRef<'d>>(elf: &ElfFile, file: R) -> Option<Self> {
        let frames = elf.section(".eh_frame")?.address;
        let bytes = elf.section_bytes(file, ".eh_frame", MAX_SECTION)?;
        let mut bases = BaseAddresses::default().set_eh_frame(frames.0);
        if let Some(text) = elf.section(".text") {
            bases = bases.set_text(text.address.0);
        }
        let header = elf.section_bytes(file, ".eh_frame_hdr", MAX_SECTION);
        if let Some(section) = elf.section(".eh_frame_hdr") {
            bases = bases.set_eh_frame_hdr(section.address.0);
        }
        let mut this = Self { frames: EhFrame::new(bytes, LittleEndian), header, bases, scanned: Vec::new() };
        if !this.has_table() {
            this.scan();
        }
        Some(this)
    }

    /// Where the entry that covers the address begins and ends.
    pub(crate) fn range_of(&self, address: Svma) -> Option<Range<Svma>> {
        if self.scanned.is_empty() {
            return self.by_table(address);
        }
        let after = self.scanned.partition_point(|entry| entry.0 <= address.0);
        let entry = self.scanned.get(after.checked_sub(1)?)?;
        (address.0 < entry.1).then_some(Svma(entry.0)..Svma(entry.1))
    }

    fn has_table(&self) -> bool {
        let header = self.header.map(|bytes| EhFrameHdr::new(bytes, LittleEndian).parse(&self.bases, 8));
        header.and_then(Result::ok).is_some_and(|header| header.table().is_some())
    }

    fn by_table(&self, address: Svma) -> Option<Range<Svma>> {
        let header = EhFrameHdr::new(self.header?, LittleEndian).parse(&self.bases, 8).ok()?;
        let place = header.table()?.lookup(address.0, &self.bases).ok()?.direct().ok()?;
        // gimli's own lookup subtracts without a check, so a forged table would make it panic.
        let offset = place.checked_sub(header.eh_frame_ptr().direct().ok()?)?;
        let offset = EhFrameOffset(usize::try_from(offset).ok()?);
        let entry = self.frames.fde_from_offset(&self.bases, offset, EhFrame::cie_from_offset).ok()?;
        entry.contains(address.0).then(|| Svma(entry.initial_address())..Svma(entry.end_address()))
    }

    fn scan(&mut self) {
        let mut entries = self.frames.entries(&self.bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            if let Ok(entry) = partial.parse(EhFrame::cie_from_offset) {
                self.scanned.push((entry.initial_address(), entry.end_address()));
            }
        }
        self.scanned.sort_unstable();
    }
}
