//! Go's own table of functions, `.gopclntab`: the runtime needs it for its stack traces, so even a stripped Go program
//! has it. Formats of Go 1.16, 1.18 and 1.20 (`src/debug/gosym/pclntab.go` and `src/runtime/symtab.go` of Go).

use std::ops::Range;

use object::elf::FileHeader64;
use object::read::elf::{FileHeader, Rela, SectionHeader};
use object::{Endianness, ReadRef};
use uhr_model::Svma;
use uhr_model::object::ElfFile;

use crate::Location;

/// Larger tables than any known program's are left alone.
const MAX_TABLE: u64 = 512 << 20;
/// More steps than the longest function has lines.
const MAX_STEPS: usize = 1 << 20;
/// The longest names of functions and files.
const MAX_NAME: usize = 64 * 1024;
/// Where the words of the header begin.
const HEADER: usize = 8;
/// The file number of a function's unit that has no file.
const NO_FILE: u32 = u32::MAX;

/// The functions of one little-endian 64-bit Go program.
#[derive(Debug)]
pub(crate) struct GoTable<'d> {
    bytes: &'d [u8],
    /// Whether entries are offsets of 4 bytes from `text` (Go 1.18), or addresses of 8.
    has_offsets: bool,
    text: u64,
    /// Instructions begin at multiples of it.
    quantum: u64,
    functions: u64,
    names: &'d [u8],
    units: &'d [u8],
    files: &'d [u8],
    values: &'d [u8],
    entries: &'d [u8],
}

impl<'d> GoTable<'d> {
    /// The table of `file`, or `None` if it has none that is understood.
    pub(crate) fn new<R: ReadRef<'d>>(elf: &ElfFile, file: R) -> Option<Self> {
        let name =
            [".gopclntab", ".data.rel.ro.gopclntab"].into_iter().find(|name| elf.section(name).is_some())?;
        let bytes = elf.section_bytes(file, name, MAX_TABLE)?;
        let mut table = Self::parse(bytes)?;
        if table.has_offsets && table.text == 0 {
            let field = elf.section(name)?.address.0.checked_add((HEADER + 2 * 8) as u64)?;
            table.text = relocated(file, field).or_else(|| start_of_text(elf))?;
        }
        Some(table)
    }

    fn parse(bytes: &'d [u8]) -> Option<Self> {
        let magic = u32_at(bytes, 0)?;
        let has_offsets = match magic {
            0xffff_fff1 | 0xffff_fff0 => true,
            0xffff_fffa => false,
            _ => return None,
        };
        let (quantum, pointer) = (*bytes.get(6)?, *bytes.get(7)?);
        if pointer != 8 || !matches!(quantum, 1 | 2 | 4) {
            return None;
        }
        let word = |row: usize| u64_at(bytes, HEADER + row * 8);
        let part = |row: usize| bytes.get(usize::try_from(word(row)?).ok()?..);
        // Go 1.16 has no word for the start of the text.
        let first = if has_offsets { 3 } else { 2 };
        Some(Self {
            bytes,
            has_offsets,
            text: if has_offsets { word(2)? } else { 0 },
            quantum: u64::from(quantum),
            functions: word(0)?,
            names: part(first)?,
            units: part(first + 1)?,
            files: part(first + 2)?,
            values: part(first + 3)?,
            entries: part(first + 4)?,
        })
    }

    /// The function at an address with its file and line, and where it begins.
    pub(crate) fn find(&self, address: Svma) -> Option<(Range<Svma>, Vec<Location>)> {
        let after = self.functions_until(address.0);
        // The last entry only says where the last function ends.
        let row = after.checked_sub(1).filter(|&row| row < self.functions)?;
        let (start, offset) = self.entry(row)?;
        let function = self.entries.get(usize::try_from(offset).ok()?..)?;
        // Behind the start, which is as wide as an entry's: name, arguments, deferred return, stack, file, line, count, unit.
        let fields = function.get(if self.has_offsets { 4 } else { 8 }..)?;
        let field = |row: usize| u32_at(fields, row * 4);
        let name = text_at(self.names, field(0)?)?;
        let line = self.value(field(5)?, start, address.0).and_then(|line| u32::try_from(line).ok());
        let file = self.value(field(4)?, start, address.0).and_then(|file| self.file(field(7)?, file));
        let place = Location { function: Some(name), file, line: line.filter(|&line| line > 0) };
        let end = self.entry_start(row + 1)?;
        Some((Svma(start)..Svma(end.max(start)), vec![place]))
    }

    /// How many entries begin at or before an address.
    fn functions_until(&self, address: u64) -> u64 {
        let (mut low, mut high) = (0, self.functions.saturating_add(1).min(self.bytes.len() as u64));
        while low < high {
            let middle = low + (high - low) / 2;
            match self.entry_start(middle) {
                Some(start) if start <= address => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    fn entry_start(&self, row: u64) -> Option<u64> {
        let at = usize::try_from(row).ok()?.checked_mul(self.entry_size())?;
        if self.has_offsets {
            self.text.checked_add(u64::from(u32_at(self.entries, at)?))
        } else {
            u64_at(self.entries, at)
        }
    }

    /// Where a function begins, and where in `entries` it is described.
    fn entry(&self, row: u64) -> Option<(u64, u64)> {
        let at = usize::try_from(row).ok()?.checked_mul(self.entry_size())?;
        let offset = if self.has_offsets {
            u64::from(u32_at(self.entries, at + 4)?)
        } else {
            u64_at(self.entries, at + 8)?
        };
        Some((self.entry_start(row)?, offset))
    }

    fn entry_size(&self) -> usize {
        if self.has_offsets { 8 } else { 16 }
    }

    /// What a table of values says at an address: pairs of differences, first of the value, then of the address.
    fn value(&self, table: u32, start: u64, address: u64) -> Option<i32> {
        let mut rest = self.values.get(table as usize..)?;
        let (mut value, mut at) = (-1i32, start);
        for step in 0..MAX_STEPS {
            let change = variable_length(&mut rest)?;
            if change == 0 && step > 0 {
                return None;
            }
            let half = (change >> 1) as i32;
            value = value.wrapping_add(if change & 1 == 1 { !half } else { half });
            at = at.checked_add(u64::from(variable_length(&mut rest)?) * self.quantum)?;
            if address < at {
                return Some(value);
            }
        }
        None
    }

    fn file(&self, unit: u32, file: i32) -> Option<String> {
        let row = unit.checked_add(u32::try_from(file).ok()?)?;
        let offset =
            u32_at(self.units, (row as usize).checked_mul(4)?).filter(|&offset| offset != NO_FILE)?;
        text_at(self.files, offset)
    }
}

/// What the loader writes at a place, in a position-independent program.
fn relocated<'d, R: ReadRef<'d>>(file: R, place: u64) -> Option<u64> {
    let header = FileHeader64::<Endianness>::parse(file).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, file).ok()?;
    sections.iter().find_map(|section| {
        let (relocations, _) = section.rela(endian, file).ok()??;
        let found = relocations.iter().find(|relocation| relocation.r_offset(endian) == place)?;
        u64::try_from(found.r_addend(endian)).ok().filter(|&addend| addend != 0)
    })
}

/// Go's code is the whole of `.text` where Go's own linker put the program together, which makes no `.init`.
fn start_of_text(elf: &ElfFile) -> Option<u64> {
    let is_gos_own = elf.section(".init").is_none();
    elf.section(".text").filter(|_| is_gos_own).map(|text| text.address.0)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn text_at(bytes: &[u8], at: u32) -> Option<String> {
    let bytes = bytes.get(at as usize..)?;
    let length = bytes.iter().take(MAX_NAME).position(|&byte| byte == 0).filter(|&length| length > 0)?;
    Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

/// Seven bits a byte, the lowest first.
fn variable_length(bytes: &mut &[u8]) -> Option<u32> {
    let mut value = 0u32;
    for shift in (0..35).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u32::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Damaged tables name wrongly or not at all; nothing panics and nothing runs on.
        #[test]
        fn forged_tables(
            magic in 0usize..3,
            words in proptest::collection::vec(prop_oneof![0u64..400, any::<u64>()], 8),
            body in proptest::collection::vec(any::<u8>(), 0..400),
            address in prop_oneof![0u64..1000, any::<u64>()],
        ) {
            let magic = [0xffff_fff1u32, 0xffff_fff0, 0xffff_fffa][magic];
            let mut bytes = magic.to_le_bytes().to_vec();
            bytes.extend([0, 0, 1, 8]);
            words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
            bytes.extend(body);
            if let Some(table) = GoTable::parse(&bytes) {
                table.find(Svma(address));
            }
        }
    }
}
