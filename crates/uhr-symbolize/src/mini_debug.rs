//! `.gnu_debugdata`: an ELF file with the symbols that stripping took away, packed with xz, as Fedora ships it
//! ("MiniDebugInfo" in gdb's manual).

use std::io::Read;

use lzma_rust2::XzReader;
use object::ReadRef;
use uhr_model::object::ElfFile;

/// Larger packed files than any known program's are left alone.
const MAX_PACKED: u64 = 64 << 20;
/// The symbols of the largest programs take some 30 MiB; xz packs zeros 1:7000, so the packed size is no bound.
const MAX_UNPACKED: u64 = 256 << 20;
/// xz itself never takes a larger dictionary than 64 MiB (`xz -9`); its header could ask for 4 GiB.
const MAX_MEMORY_KIB: u32 = 80 << 10;

/// The packed ELF file of `file`, unpacked. `None` if it has none.
///
/// # Errors
/// [`DamagedMiniDebug`] if it cannot be unpacked, or is larger than any real one.
pub(crate) fn unpack<'d, R: ReadRef<'d>>(
    elf: &ElfFile,
    file: R,
) -> Result<Option<Vec<u8>>, DamagedMiniDebug> {
    const NAME: &str = ".gnu_debugdata";
    if elf.section(NAME).is_none() {
        return Ok(None);
    }
    let packed = elf.section_bytes(file, NAME, MAX_PACKED).ok_or(DamagedMiniDebug)?;
    let mut unpacked = Vec::new();
    let reader = XzReader::new_mem_limit(packed, false, MAX_MEMORY_KIB);
    reader.take(MAX_UNPACKED + 1).read_to_end(&mut unpacked).map_err(|_| DamagedMiniDebug)?;
    if unpacked.len() as u64 > MAX_UNPACKED { Err(DamagedMiniDebug) } else { Ok(Some(unpacked)) }
}

/// The packed symbols cannot be unpacked.
#[derive(Debug)]
pub(crate) struct DamagedMiniDebug;
