use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, ReadRef};

use super::{Segment, Segments};
use crate::{BuildId, FileOffset, Svma};

/// Why a file is not taken as ELF.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// It does not begin as a 64-bit ELF file does.
    #[error("not a 64-bit ELF file")]
    NotElf,
    /// Its headers contradict themselves or point outside the file.
    #[error("malformed ELF file: {0}")]
    Malformed(&'static str),
}

/// The name and checksum of a separate debug file (`.gnu_debuglink`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DebugLink {
    /// File name, without a folder.
    pub name: String,
    /// CRC-32 of the whole debug file.
    pub crc: u32,
}

/// One section of an ELF file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Where it is stated to be, or 0 if it is not loaded.
    pub address: Svma,
    /// Where it is in the file.
    pub offset: FileOffset,
    /// Its length in bytes, in the file.
    pub size: u64,
    /// Whether it has bytes in the file (not `.bss`, and not left behind in a separate debug file).
    pub in_file: bool,
}

/// The processor that a file's code is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Machine {
    /// x86-64.
    X86_64,
    /// 64-bit ARM, little endian.
    Aarch64,
    /// Another one.
    #[default]
    Other,
}

/// The headers of one 64-bit ELF file.
#[derive(Clone, Debug)]
pub struct ElfFile {
    /// The processor.
    pub machine: Machine,
    /// The build id, if the file has one.
    pub build_id: Option<BuildId>,
    /// The loadable segments.
    pub segments: Segments,
    /// The sections; empty if the file has no section table.
    pub sections: Vec<Section>,
    /// The separate debug file that it names.
    pub debug_link: Option<DebugLink>,
    /// Whether it names a program interpreter, or is not position-independent: a program rather than a library.
    pub is_program: bool,
    /// The libraries that it needs (`DT_NEEDED`), empty for a static program.
    pub needed: Vec<String>,
}

/// More sections or segments than any real file has: a forged header must not cost memory.
const MAX_HEADERS: usize = 65_536;

impl ElfFile {
    /// Reads the headers.
    ///
    /// # Errors
    /// [`ElfError`] if `file` is not a 64-bit ELF file, or its headers are damaged.
    pub fn parse<'a, R: ReadRef<'a>>(file: R) -> Result<Self, ElfError> {
        let header = elf::FileHeader64::<Endianness>::parse(file).map_err(|_| ElfError::NotElf)?;
        let endian = header.endian().map_err(|_| ElfError::NotElf)?;
        let programs =
            header.program_headers(endian, file).map_err(|_| ElfError::Malformed("program headers"))?;
        if programs.len() > MAX_HEADERS {
            return Err(ElfError::Malformed("too many program headers"));
        }
        let mut segments = Vec::new();
        let mut build_id = None;
        let mut has_interpreter = false;
        for program in programs {
            match program.p_type(endian) {
                elf::PT_LOAD => segments.push(Segment {
                    address: Svma(program.p_vaddr(endian)),
                    memory_size: program.p_memsz(endian),
                    offset: FileOffset(program.p_offset(endian)),
                    file_size: program.p_filesz(endian),
                    executable: program.p_flags(endian).contains(elf::PF_X),
                }),
                elf::PT_NOTE if build_id.is_none() => {
                    if let Ok(Some(notes)) = program.notes(endian, file) {
                        build_id = find_build_id(endian, notes);
                    }
                }
                elf::PT_INTERP => has_interpreter = true,
                _ => {}
            }
        }
        let mut this = Self {
            machine: match (header.e_machine(endian), endian) {
                (elf::EM_X86_64, Endianness::Little) => Machine::X86_64,
                (elf::EM_AARCH64, Endianness::Little) => Machine::Aarch64,
                _ => Machine::Other,
            },
            build_id,
            segments: Segments::new(segments),
            sections: Vec::new(),
            debug_link: None,
            is_program: has_interpreter || header.e_type(endian) == elf::ET_EXEC,
            needed: Vec::new(),
        };
        this.read_sections(header, endian, file);
        Ok(this)
    }

    /// The section table is optional at run time, so damage in it leaves what the segments said.
    fn read_sections<'a, R: ReadRef<'a>>(
        &mut self,
        header: &elf::FileHeader64<Endianness>,
        endian: Endianness,
        file: R,
    ) {
        let Ok(table) = header.sections(endian, file) else { return };
        for section in table.iter().take(MAX_HEADERS) {
            let Ok(name) = table.section_name(endian, section) else { continue };
            let name = String::from_utf8_lossy(name).into_owned();
            if self.build_id.is_none()
                && let Ok(Some(notes)) = section.notes(endian, file)
            {
                self.build_id = find_build_id(endian, notes);
            }
            if name == ".gnu_debuglink"
                && let Ok(bytes) = section.data(endian, file)
            {
                self.debug_link = parse_debug_link(bytes);
            }
            if section.sh_type(endian) == elf::SHT_DYNAMIC
                && let Ok(dynamic) = table.dynamic_table(endian, file)
            {
                let needed = dynamic.iter().filter(|entry| entry.tag == elf::DT_NEEDED).take(MAX_HEADERS);
                self.needed = needed
                    .filter_map(|entry| dynamic.string(entry).ok())
                    .map(|name| String::from_utf8_lossy(name).into_owned())
                    .collect();
            }
            self.sections.push(Section {
                name,
                address: Svma(section.sh_addr(endian)),
                offset: FileOffset(section.sh_offset(endian)),
                size: section.sh_size(endian),
                in_file: section.sh_type(endian) != elf::SHT_NOBITS,
            });
        }
    }

    /// The section of that name, if it has bytes in the file.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name && section.in_file)
    }

    /// The bytes of a section, at most `limit` of them, or `None` if it is missing, larger, or outside the file.
    pub fn section_bytes<'a, R: ReadRef<'a>>(&self, file: R, name: &str, limit: u64) -> Option<&'a [u8]> {
        let section = self.section(name).filter(|section| section.size <= limit)?;
        file.read_bytes_at(section.offset.0, section.size).ok()
    }
}

fn find_build_id(
    endian: Endianness,
    mut notes: object::read::elf::NoteIterator<'_, elf::FileHeader64<Endianness>>,
) -> Option<BuildId> {
    while let Ok(Some(note)) = notes.next() {
        if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
            return BuildId::new(note.desc());
        }
    }
    None
}

/// A name that ends with a zero byte, padding to a multiple of four, then the checksum in four bytes. The padding
/// depends on the name's length, so the checksum is at the first multiple of four behind the zero byte.
fn parse_debug_link(bytes: &[u8]) -> Option<DebugLink> {
    let name_length = bytes.iter().position(|&byte| byte == 0)?;
    let at = (name_length + 1).next_multiple_of(4);
    let crc = bytes.get(at..at + 4)?;
    Some(DebugLink {
        name: String::from_utf8_lossy(&bytes[..name_length]).into_owned(),
        crc: u32::from_le_bytes(crc.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_links_with_names_of_every_padding() {
        for length in 1..=9 {
            let name = "d".repeat(length);
            let mut bytes = name.clone().into_bytes();
            bytes.push(0);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes.extend(0x1234_5678u32.to_le_bytes());
            assert_eq!(parse_debug_link(&bytes), Some(DebugLink { name, crc: 0x1234_5678 }));
        }
        assert_eq!(parse_debug_link(b"no end"), None);
        assert_eq!(parse_debug_link(b"cut\0\x01\x02"), None);
    }

    #[test]
    fn the_running_test_program_describes_itself() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let file = ElfFile::parse(bytes.as_slice()).unwrap();
        assert!(file.is_program);
        assert!(file.segments.iter().any(|segment| segment.executable));
        assert!(file.needed.iter().any(|name| name.starts_with("libc.so")));
        assert!(file.section_bytes(bytes.as_slice(), ".eh_frame", 1 << 30).is_some());
        assert!(file.section_bytes(bytes.as_slice(), ".eh_frame", 1).is_none());
    }

    #[test]
    fn hostile_bytes_are_refused() {
        assert!(matches!(ElfFile::parse(&b"#!/bin/sh"[..]), Err(ElfError::NotElf)));
        let mut bytes = std::fs::read("/proc/self/exe").unwrap();
        bytes.truncate(4096);
        let _ = ElfFile::parse(bytes.as_slice());
        for at in 0..64 {
            let mut forged = bytes.clone();
            forged[at] = 0xff;
            let _ = ElfFile::parse(forged.as_slice());
        }
    }
}
