//! The running kernel's code, out of its memory. `/proc/kcore` shows that as an ELF core file: its program headers say at which
//! offset which addresses are (fs/proc/kcore.c). What is read is the code as it runs, with what the kernel has patched in it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use object::elf::{ET_CORE, FileHeader64, PT_LOAD, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, pod};
use uhr_model::RelativeAddress;

/// Ten times the parts that large machines have.
const MAX_PARTS: u16 = 4096;

/// The kernel's memory, opened.
#[derive(Debug)]
pub struct KernelMemory {
    file: File,
    /// The addresses, and where in the file the first of them is.
    parts: Vec<(Range<u64>, u64)>,
}

/// Why the kernel's memory cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KernelMemoryError {
    /// This kernel was built without `/proc/kcore`, or it is hidden here, as in containers.
    #[error("there is no /proc/kcore")]
    Missing,
    /// It takes CAP_SYS_RAWIO, and a kernel that is not locked down.
    #[error("/proc/kcore may not be read")]
    Forbidden,
    /// It is not what it should be.
    #[error("/proc/kcore is no core file")]
    Malformed,
}

impl KernelMemory {
    /// Where the kernel shows it.
    pub const PATH: &str = "/proc/kcore";

    /// Opens it and reads what is where.
    ///
    /// # Errors
    /// [`KernelMemoryError`].
    pub fn open(path: &Path) -> Result<Self, KernelMemoryError> {
        let file = File::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => KernelMemoryError::Forbidden,
            _ => KernelMemoryError::Missing,
        })?;
        let parts = parts(&file).ok_or(KernelMemoryError::Malformed)?;
        Ok(Self { file, parts })
    }

    /// The bytes of a range of addresses. The caller bounds its length.
    pub fn code(&self, range: &Range<RelativeAddress>) -> Option<Vec<u8>> {
        let (start, end) = (range.start.0, range.end.0);
        let holds = |part: &&(Range<u64>, u64)| part.0.start <= start && end <= part.0.end;
        let (addresses, offset) = self.parts.iter().find(holds)?;
        let mut bytes = vec![0; usize::try_from(end.checked_sub(start)?).ok()?];
        self.file.read_exact_at(&mut bytes, offset.checked_add(start - addresses.start)?).ok()?;
        // The kernel writes zeros for what it does not show.
        bytes.iter().any(|&byte| byte != 0).then_some(bytes)
    }
}

fn parts(file: &File) -> Option<Vec<(Range<u64>, u64)>> {
    let mut header = [0; size_of::<FileHeader64<Endianness>>()];
    file.read_exact_at(&mut header, 0).ok()?;
    let header = FileHeader64::<Endianness>::parse(&header[..]).ok()?;
    let endian = header.endian().ok()?;
    let count = header.e_phnum.get(endian).min(MAX_PARTS);
    let is_core = header.e_type.get(endian) == ET_CORE;
    let size = size_of::<ProgramHeader64<Endianness>>();
    if !is_core || usize::from(header.e_phentsize.get(endian)) != size {
        return None;
    }
    let mut bytes = vec![0; usize::from(count) * size];
    file.read_exact_at(&mut bytes, header.e_phoff.get(endian)).ok()?;
    let (headers, _) =
        pod::slice_from_bytes::<ProgramHeader64<Endianness>>(&bytes, usize::from(count)).ok()?;
    let part = |header: &ProgramHeader64<Endianness>| {
        let start = header.p_vaddr(endian);
        let end = start.checked_add(header.p_filesz(endian))?;
        (header.p_type(endian) == PT_LOAD).then_some((start..end, header.p_offset(endian)))
    };
    Some(headers.iter().filter_map(part).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A core file with these parts (address, bytes), behind a note as the kernel's has one.
    fn core(parts: &[(u64, &[u8])]) -> Vec<u8> {
        const HEADER: u64 = 64;
        const PART: u64 = 56;
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        let halves = |file: &mut Vec<u8>, halves: &[u16]| {
            halves.iter().for_each(|half| file.extend(half.to_le_bytes()))
        };
        let words =
            |file: &mut Vec<u8>, words: &[u64]| words.iter().for_each(|word| file.extend(word.to_le_bytes()));
        halves(&mut file, &[ET_CORE.0, 62, 1, 0]);
        // Entry, program headers, section headers.
        words(&mut file, &[0, HEADER, 0]);
        halves(&mut file, &[0, 0, HEADER as u16, PART as u16, parts.len() as u16 + 1, 0, 0, 0]);
        let mut offset = HEADER + PART * (parts.len() as u64 + 1);
        // Kind, then offset, address, physical address, size in the file, size in memory, alignment.
        words(&mut file, &[4, 0, 0, 0, HEADER, HEADER, 0]);
        for (address, bytes) in parts {
            let size = bytes.len() as u64;
            words(&mut file, &[1, offset, *address, 0, size, size, 0]);
            offset += size;
        }
        parts.iter().for_each(|(_, bytes)| file.extend(*bytes));
        file
    }

    fn opened(bytes: &[u8]) -> Result<KernelMemory, KernelMemoryError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kcore");
        std::fs::write(&path, bytes).unwrap();
        KernelMemory::open(&path)
    }

    const TEXT: u64 = 0xffff_ffff_8100_0000;
    const MODULES: u64 = 0xffff_ffff_c000_0000;

    #[test]
    fn code_is_found_by_its_address() {
        let (text, modules): (Vec<u8>, Vec<u8>) = ((1..=200).collect(), (100..=250).collect());
        let memory = opened(&core(&[(MODULES, &modules), (TEXT, &text), (TEXT + 0x1000, &[0; 64])])).unwrap();
        let code = |start, end| memory.code(&(RelativeAddress(start)..RelativeAddress(end)));
        assert_eq!(code(TEXT + 3, TEXT + 6), Some(vec![4, 5, 6]));
        assert_eq!(code(TEXT, TEXT + 200), Some(text.clone()));
        assert_eq!(code(MODULES + 150, MODULES + 151), Some(vec![250]));
        assert_eq!(code(TEXT + 199, TEXT + 201), None, "behind its part");
        assert_eq!(code(TEXT - 1, TEXT + 1), None, "before it");
        assert_eq!(code(TEXT + 0x1000, TEXT + 0x1010), None, "not shown");
        assert_eq!(code(TEXT + 6, TEXT + 3), None, "ends before it begins");
        assert_eq!(code(u64::MAX, u64::MAX), None);
    }

    #[test]
    fn what_is_no_core_file_is_refused() {
        let whole = core(&[(TEXT, b"code")]);
        assert_eq!(opened(b"").unwrap_err(), KernelMemoryError::Malformed);
        assert_eq!(opened(&whole[..100]).unwrap_err(), KernelMemoryError::Malformed);
        let mut program = whole.clone();
        program[16] = 2;
        assert_eq!(opened(&program).unwrap_err(), KernelMemoryError::Malformed, "a program");
        // A part that would wrap around.
        let mut forged = whole;
        let part = 64 + 56;
        forged[part + 16..part + 24].copy_from_slice(&u64::MAX.to_le_bytes());
        let memory = opened(&forged).unwrap();
        assert_eq!(memory.code(&(RelativeAddress(TEXT)..RelativeAddress(TEXT + 4))), None);
        let none = Path::new("/nowhere/kcore");
        assert_eq!(KernelMemory::open(none).unwrap_err(), KernelMemoryError::Missing);
    }
}
