//! Names of linkage stubs: `puts@plt`. They have no symbols; each jumps through a slot that a relocation fills.

use std::ops::Range;

use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, Rela, SectionHeader, Sym, SymbolTable};
use object::{Endianness, ReadRef};
use rustc_hash::FxHashMap;
use uhr_model::Svma;
use uhr_model::object::ElfFile;

/// Larger sections than any known program's are left alone.
const MAX_SECTION: u64 = 64 << 20;
const STUB_SIZE: u64 = 16;
/// x86-64: `jmp *DISPLACEMENT(%rip)`.
const JUMP: [u8; 2] = [0xff, 0x25];
const JUMP_SIZE: usize = 6;

/// The linkage stubs of one x86-64 module.
pub(crate) struct LinkageStubs<'d, R: ReadRef<'d>> {
    /// Start, end and the dynamic symbol that the stub jumps to, sorted.
    stubs: Vec<(u64, u64, object::SymbolIndex)>,
    symbols: SymbolTable<'d, FileHeader64<Endianness>, R>,
    endian: Endianness,
}

impl<'d, R: ReadRef<'d>> LinkageStubs<'d, R> {
    /// The stubs of `file`, or `None` if it has none that are understood.
    pub(crate) fn new(described: &ElfFile, file: R) -> Option<Self> {
        let header = FileHeader64::<Endianness>::parse(file).ok()?;
        let endian = header.endian().ok()?;
        if header.e_machine(endian) != elf::EM_X86_64 {
            return None;
        }
        let sections = header.sections(endian, file).ok()?;
        let symbols = sections.symbols(endian, file, elf::SHT_DYNSYM).ok()?;
        let mut slots = FxHashMap::default();
        for section in sections.iter() {
            let Ok(Some((relocations, _))) = section.rela(endian, file) else { continue };
            let into_slots = relocations.iter().filter(|relocation| {
                matches!(relocation.r_type(endian, false), elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT)
            });
            slots.extend(into_slots.filter_map(|relocation| {
                Some((relocation.r_offset(endian), relocation.symbol(endian, false)?))
            }));
        }
        let mut stubs = Vec::new();
        for name in [".plt", ".plt.sec", ".plt.got"] {
            if let Some(section) = described.section(name)
                && let Some(code) = described.section_bytes(file, name, MAX_SECTION)
            {
                find_stubs(section.address, code, &slots, &mut stubs);
            }
        }
        stubs.sort_unstable_by_key(|stub| stub.0);
        Some(Self { stubs, symbols, endian })
    }

    /// The name of the function that the stub at the address jumps to, and where the stub is.
    pub(crate) fn find(&self, address: Svma) -> Option<(&'d [u8], Range<Svma>)> {
        let after = self.stubs.partition_point(|stub| stub.0 <= address.0);
        let &(start, end, symbol) = self.stubs.get(after.checked_sub(1)?)?;
        let symbol = self.symbols.symbol(symbol).ok().filter(|_| address.0 < end)?;
        let name = symbol.name(self.endian, self.symbols.strings()).ok()?;
        (!name.is_empty()).then_some((name, Svma(start)..Svma(end)))
    }
}

/// Each stub has one jump. It is at the stub's start, or behind the landing pad of control-flow protection (`endbr64`,
/// four bytes, and a one-byte prefix); stubs begin at multiples of 8 or 16.
fn find_stubs(
    section: Svma,
    code: &[u8],
    slots: &FxHashMap<u64, object::SymbolIndex>,
    stubs: &mut Vec<(u64, u64, object::SymbolIndex)>,
) {
    let first = stubs.len();
    for (at, jump) in code.windows(JUMP_SIZE).enumerate().filter(|(_, bytes)| bytes.starts_with(&JUMP)) {
        let displacement = i32::from_le_bytes([jump[2], jump[3], jump[4], jump[5]]);
        let next = section.0.wrapping_add((at + JUMP_SIZE) as u64);
        let slot = next.wrapping_add_signed(i64::from(displacement));
        let Some(&symbol) = slots.get(&slot) else { continue };
        let start = section.0.saturating_add((at & !7) as u64);
        if stubs.len() > first
            && let Some(previous) = stubs.last_mut()
        {
            previous.1 = previous.1.min(start);
        }
        stubs.push((start, start.saturating_add(STUB_SIZE), symbol));
    }
}
