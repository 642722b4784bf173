#![forbid(unsafe_code)]
//! The bytes of the sections that unwinding needs, read out of a file that may change or shrink meanwhile.

use std::fs::File;
use std::os::unix::fs::FileExt;

use object::{CompressedData, CompressionFormat};
use uhr_model::Svma;
use uhr_model::object::ElfFile;

/// No unwind section of a real file is larger (libtorch, of the largest there are: 20 MB). A larger one is not read.
const MAX_SECTION: u64 = 128 << 20;

/// Something with an ELF file in it, read at positions (never mapped: a file that is truncated would kill us).
pub(super) trait Bytes {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Option<()>;
}

impl Bytes for File {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Option<()> {
        FileExt::read_exact_at(self, buffer, offset).ok()
    }
}

impl Bytes for [u8] {
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Option<()> {
        let from = usize::try_from(offset).ok()?;
        buffer.copy_from_slice(self.get(from..from.checked_add(buffer.len())?)?);
        Some(())
    }
}

/// The bytes of one section, and where they are stated to be.
#[derive(Default)]
pub(super) struct SectionBytes {
    pub(super) address: Svma,
    pub(super) bytes: Vec<u8>,
}

impl SectionBytes {
    /// The section of that name; empty if there is none, it is too large, or it lies outside the file.
    pub(super) fn read<B: Bytes + ?Sized>(from: &B, elf: &ElfFile, name: &str) -> Self {
        let read = || {
            let section = elf.section(name).filter(|section| section.size <= MAX_SECTION)?;
            // A forged size must not cost memory: the last byte has to be there.
            let last = section.offset.0.checked_add(section.size.checked_sub(1)?)?;
            from.read_exact_at(last, &mut [0])?;
            let mut bytes = vec![0; section.size as usize];
            from.read_exact_at(section.offset.0, &mut bytes)?;
            Some(Self { address: section.address, bytes })
        };
        read().unwrap_or_default()
    }

    /// `.debug_frame`, which linkers compress on request and Go's linker by default. The flag that says so is not in
    /// [`uhr_model::object::Section`], and not needed: a plain section begins with a common information entry, whose
    /// second word is `0xffff_ffff`; the same word of a compression header is reserved and 0 (gABI, chapter 4).
    pub(super) fn read_debug_frame<B: Bytes + ?Sized>(from: &B, elf: &ElfFile) -> Self {
        let raw = Self::read(from, elf, ".debug_frame");
        match decompress(&raw.bytes) {
            Some(bytes) => Self { address: raw.address, bytes },
            None => raw,
        }
    }
}

fn decompress(bytes: &[u8]) -> Option<Vec<u8>> {
    let (header, data) = bytes.split_at_checked(24)?;
    let word = |at: usize| header.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let format = match (word(0)?, word(4)?) {
        (1, 0) => CompressionFormat::Zlib,
        (2, 0) => CompressionFormat::Zstandard,
        _ => return None,
    };
    let uncompressed_size = u64::from(word(12)?) << 32 | u64::from(word(8)?);
    // Deflate cannot grow data more than 1032 times.
    if uncompressed_size > MAX_SECTION || uncompressed_size / 1032 > data.len() as u64 + 1 {
        return None;
    }
    let compressed = CompressedData { format, data, uncompressed_size };
    compressed.decompress().ok().map(std::borrow::Cow::into_owned)
}
