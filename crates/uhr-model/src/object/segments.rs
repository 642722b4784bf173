use crate::{Avma, FileOffset, RelativeAddress, Svma};

/// One loadable segment of an ELF file (`PT_LOAD`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Where it says its first byte would be.
    pub address: Svma,
    /// Its length in memory, in bytes.
    pub memory_size: u64,
    /// Where its first byte is in the file.
    pub offset: FileOffset,
    /// Its length in the file, in bytes.
    pub file_size: u64,
    /// Whether code can run from it.
    pub executable: bool,
}

/// The loadable segments of one ELF file, and the conversions between the address spaces that they define.
///
/// Segments may have different distances between file offset and address (lld, linker scripts, BOLT), so every
/// conversion goes through the segment that contains the byte; nothing is computed from the first segment alone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Segments(Vec<Segment>);

impl Segments {
    /// Takes the loadable segments in the order of the program headers.
    pub fn new(segments: Vec<Segment>) -> Self {
        Self(segments)
    }

    /// The loadable segments.
    pub fn iter(&self) -> impl Iterator<Item = &Segment> {
        self.0.iter()
    }

    /// The stated address that relative addresses count from: the lowest of the loadable segments.
    pub fn image_base(&self) -> Svma {
        self.0.iter().map(|segment| segment.address).min().unwrap_or_default()
    }

    /// Where the byte at a file offset is stated to be.
    pub fn svma_of_offset(&self, offset: FileOffset) -> Option<Svma> {
        // Pages are mapped whole, so a byte can be covered by two segments' mappings: an executable one wins.
        let holds = |segment: &&Segment| {
            offset.offset_from(segment.offset).is_some_and(|within| within < segment.file_size)
        };
        let segment = self
            .0
            .iter()
            .filter(|segment| segment.executable)
            .find(holds)
            .or_else(|| self.0.iter().find(holds))?;
        segment.address.checked_add(offset.offset_from(segment.offset)?)
    }

    /// The relative address of the byte at a file offset.
    pub fn relative_of_offset(&self, offset: FileOffset) -> Option<RelativeAddress> {
        self.relative_of_svma(self.svma_of_offset(offset)?)
    }

    /// The relative address of a stated address.
    pub fn relative_of_svma(&self, address: Svma) -> Option<RelativeAddress> {
        address.offset_from(self.image_base()).map(RelativeAddress)
    }

    /// The stated address of a relative address.
    pub fn svma_of_relative(&self, address: RelativeAddress) -> Option<Svma> {
        self.image_base().checked_add(address.0)
    }

    /// The bias of a mapping: what must be added to a stated address to get the actual one, if the file was mapped so
    /// that the byte at `offset` is at `start`. Wraps like the loader's own arithmetic.
    pub fn bias(&self, start: Avma, offset: FileOffset) -> Option<u64> {
        // The mapping begins at a page; the segment may begin inside it, so look for the segment whose page this is.
        const PAGE: u64 = 4096;
        let segment =
            self.0.iter().filter(|segment| segment.executable).chain(self.0.iter()).find(|segment| {
                let first = segment.offset.0 & !(PAGE - 1);
                let end = segment.offset.0.saturating_add(segment.file_size);
                offset.0 >= first && offset.0 < end
            })?;
        let address_of_offset_zero = segment.address.0.wrapping_sub(segment.offset.0);
        Some(start.0.wrapping_sub(offset.0).wrapping_sub(address_of_offset_zero))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As lld lays a program out: .text at file offset 0x1000 but stated at 0x2000, and an image base that is not 0.
    fn lld() -> Segments {
        let segment = |address, offset, size, executable| Segment {
            address: Svma(address),
            memory_size: size,
            offset: FileOffset(offset),
            file_size: size,
            executable,
        };
        Segments::new(vec![segment(0x20_0000, 0, 0xf80, false), segment(0x20_1f80, 0xf80, 0x800, true)])
    }

    #[test]
    fn offsets_go_through_the_segment_that_holds_them() {
        assert_eq!(lld().svma_of_offset(FileOffset(0x1000)), Some(Svma(0x20_2000)));
        assert_eq!(lld().relative_of_offset(FileOffset(0x1000)), Some(RelativeAddress(0x2000)));
        assert_eq!(lld().svma_of_offset(FileOffset(0x10_0000)), None);
    }

    #[test]
    fn the_bias_of_a_mapping_that_begins_before_its_segment() {
        // The loader maps the page at offset 0 executable, for the segment that begins at 0xf80.
        let bias = lld().bias(Avma(0x5000_1000), FileOffset(0)).unwrap();
        assert_eq!(0x20_1f80u64.wrapping_add(bias), 0x5000_1f80);
    }
}
