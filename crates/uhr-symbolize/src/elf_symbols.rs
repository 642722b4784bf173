//! The symbol tables of ELF files: which function an address is in, and which of its names is shown.

use std::cmp::Reverse;
use std::ops::Range;

use object::elf::{self, FileHeader64, SectionHeader64, Sym64};
use object::read::SectionIndex;
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym};
use object::{Endianness, ReadRef};
use uhr_model::Svma;

/// The functions of one module, from every symbol table that was added.
#[derive(Debug, Default)]
pub(crate) struct ElfSymbols<'d> {
    symbols: Vec<Symbol<'d>>,
}

#[derive(Clone, Copy, Debug)]
struct Symbol<'d> {
    start: u64,
    /// Bytes, or 0 where an assembler function does not say.
    size: u64,
    /// Where its section ends: the last address that it can reach if it does not say its size.
    section_end: u64,
    binding: elf::SymbolBind,
    name: &'d [u8],
}

/// Functions by address, without overlap.
#[derive(Debug, Default)]
pub(crate) struct FunctionRanges<'d>(Vec<FunctionRange<'d>>);

#[derive(Debug)]
struct FunctionRange<'d> {
    start: u64,
    end: u64,
    /// Where the function begins: less than `start` behind a function that lies inside it.
    function_start: u64,
    /// Where it ends, other functions inside it included.
    function_end: u64,
    name: &'d [u8],
}

impl<'d> ElfSymbols<'d> {
    /// Adds the functions of the file's `.symtab` and `.dynsym`. A damaged table adds nothing.
    pub(crate) fn add_file<R: ReadRef<'d>>(&mut self, file: R) {
        let Ok(header) = FileHeader64::<Endianness>::parse(file) else { return };
        let Ok(endian) = header.endian() else { return };
        let Ok(sections) = header.sections(endian, file) else { return };
        for section in sections.iter() {
            if matches!(section.sh_type(endian), elf::SHT_SYMTAB | elf::SHT_DYNSYM) {
                self.add_table(file, endian, &sections, section);
            }
        }
    }

    fn add_table<R: ReadRef<'d>>(
        &mut self,
        file: R,
        endian: Endianness,
        sections: &SectionTable<'d, FileHeader64<Endianness>, R>,
        table: &SectionHeader64<Endianness>,
    ) {
        let Ok(symbols) = table.data_as_array::<Sym64<Endianness>, R>(endian, file) else { return };
        // The whole string table at once: name by name would be one read of the file each.
        let strings = sections.section(table.link(endian)).and_then(|strings| strings.data(endian, file));
        let Ok(strings) = strings else { return };
        self.symbols.reserve(symbols.len() / 2);
        self.symbols.extend(symbols.iter().filter_map(|symbol| function(symbol, endian, sections, strings)));
    }

    /// Settles which function each address belongs to.
    ///
    /// A symbol that says its size owns exactly these bytes, and the innermost one wins. One that does not (a label
    /// in assembler) reaches to the next symbol or the end of its section, but never into a function with a size.
    pub(crate) fn into_ranges(mut self) -> FunctionRanges<'d> {
        self.symbols
            .sort_unstable_by(|a, b| a.start.cmp(&b.start).then_with(|| a.preference().cmp(&b.preference())));
        self.symbols.dedup_by(|later, kept| {
            let same = later.start == kept.start;
            if same {
                kept.size = kept.size.max(later.size);
            }
            same
        });
        let mut ranges = sized_ranges(&self.symbols);
        add_unsized_ranges(&self.symbols, &mut ranges);
        FunctionRanges(ranges)
    }
}

impl<'d> FunctionRanges<'d> {
    /// The name and the bounds of the function that the address is in, or `None` in a gap between functions.
    pub(crate) fn find(&self, address: Svma) -> Option<(&'d [u8], Range<Svma>)> {
        let after = self.0.partition_point(|range| range.start <= address.0);
        let range = self.0.get(after.checked_sub(1)?).filter(|range| address.0 < range.end)?;
        Some((range.name, Svma(range.function_start)..Svma(range.function_end)))
    }
}

impl Symbol<'_> {
    /// Of several symbols at one address the smallest is shown: global before weak before local, then fewer leading
    /// underscores, then the longer name; the name itself makes the choice the same everywhere.
    fn preference(&self) -> (u8, usize, Reverse<usize>, &[u8]) {
        let binding = match self.binding {
            elf::STB_LOCAL => 2,
            elf::STB_WEAK => 1,
            _ => 0,
        };
        (binding, leading_underscores(self.name), Reverse(self.name.len()), self.name)
    }
}

/// Names with fewer are meant for programmers.
pub(crate) fn leading_underscores(name: &[u8]) -> usize {
    name.iter().take_while(|&&byte| byte == b'_').count()
}

/// The symbol, if it names code: a function, or a label without a type in an executable section.
fn function<'d, R: ReadRef<'d>>(
    symbol: &Sym64<Endianness>,
    endian: Endianness,
    sections: &SectionTable<'d, FileHeader64<Endianness>, R>,
    strings: &'d [u8],
) -> Option<Symbol<'d>> {
    let kind = symbol.st_type();
    if !matches!(kind, elf::STT_FUNC | elf::STT_GNU_IFUNC | elf::STT_NOTYPE) {
        return None;
    }
    let index = symbol.st_shndx(endian);
    if index == elf::SHN_UNDEF {
        return None;
    }
    let section = sections.section(SectionIndex(usize::from(index.0))).ok();
    let executable = section.is_some_and(|section| section.sh_flags(endian).contains(elf::SHF_EXECINSTR));
    if kind == elf::STT_NOTYPE && !executable {
        return None;
    }
    let name = strings.get(symbol.st_name(endian) as usize..)?.split(|&byte| byte == 0).next()?;
    // `memcpy@@GLIBC_2.14`: the version is not part of the name.
    let name = name.iter().position(|&byte| byte == b'@').filter(|&at| at > 0).map_or(name, |at| &name[..at]);
    if name.is_empty() || (kind == elf::STT_NOTYPE && is_marker(name)) {
        return None;
    }
    let start = symbol.st_value(endian);
    let section_end =
        section.map_or(start, |section| section.sh_addr(endian).saturating_add(section.sh_size(endian)));
    Some(Symbol { start, size: symbol.st_size(endian), section_end, binding: symbol.st_bind(), name })
}

/// `$x`, `$d.12` tell code from data in ARM and RISC-V files; `.L12`, `.annobin_...` are the compiler's own labels.
fn is_marker(name: &[u8]) -> bool {
    match name {
        [b'.', ..] => true,
        [b'$', kind, rest @ ..] => kind.is_ascii_lowercase() && (rest.is_empty() || rest[0] == b'.'),
        _ => false,
    }
}

/// One sweep over the sorted symbols with a size. `open` holds the functions around the current address.
fn sized_ranges<'d>(symbols: &[Symbol<'d>]) -> Vec<FunctionRange<'d>> {
    let mut ranges: Vec<FunctionRange<'d>> = Vec::with_capacity(symbols.len());
    let mut open: Vec<&Symbol<'d>> = Vec::new();
    let mut at = 0;
    for next in symbols.iter().filter(|symbol| symbol.size > 0) {
        close_until(next.start, &mut at, &mut open, &mut ranges);
        open.push(next);
    }
    close_until(u64::MAX, &mut at, &mut open, &mut ranges);
    ranges
}

fn close_until<'d>(
    limit: u64,
    at: &mut u64,
    open: &mut Vec<&Symbol<'d>>,
    ranges: &mut Vec<FunctionRange<'d>>,
) {
    while let Some(symbol) = open.last() {
        let start = symbol.start.max(*at);
        let end = symbol.start.saturating_add(symbol.size);
        let stop = end.min(limit);
        if start < stop {
            ranges.push(FunctionRange {
                start,
                end: stop,
                function_start: symbol.start,
                function_end: end,
                name: symbol.name,
            });
            *at = stop;
        }
        if end > limit {
            return;
        }
        open.pop();
    }
    *at = (*at).max(limit);
}

fn add_unsized_ranges<'d>(symbols: &[Symbol<'d>], ranges: &mut Vec<FunctionRange<'d>>) {
    let sized = ranges.len();
    for (row, symbol) in symbols.iter().enumerate().filter(|(_, symbol)| symbol.size == 0) {
        let before = ranges[..sized].partition_point(|range| range.start <= symbol.start);
        if before.checked_sub(1).is_some_and(|row| symbol.start < ranges[row].end) {
            continue;
        }
        let next = symbols.get(row + 1).map_or(u64::MAX, |next| next.start);
        let end = next.min(symbol.section_end);
        if symbol.start < end {
            ranges.push(FunctionRange {
                start: symbol.start,
                end,
                function_start: symbol.start,
                function_end: end,
                name: symbol.name,
            });
        }
    }
    ranges.sort_unstable_by_key(|range| range.start);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(name: &str, start: u64, size: u64, binding: elf::SymbolBind) -> Symbol<'_> {
        Symbol { start, size, section_end: 0x1000, binding, name: name.as_bytes() }
    }

    fn names(symbols: Vec<Symbol<'_>>, addresses: &[u64]) -> Vec<String> {
        let ranges = ElfSymbols { symbols }.into_ranges();
        let name = |&at| match ranges.find(Svma(at)) {
            Some((name, range)) => format!("{}+{:#x}", String::from_utf8_lossy(name), at - range.start.0),
            None => "-".to_owned(),
        };
        addresses.iter().map(name).collect()
    }

    #[test]
    fn which_of_several_names() {
        use elf::{STB_GLOBAL, STB_LOCAL, STB_WEAK};
        let at = |name, binding| symbol(name, 0x10, 8, binding);
        let pick = |symbols: Vec<_>| names(symbols, &[0x12]).remove(0);
        assert_eq!(
            pick(vec![at("longest", STB_LOCAL), at("weak", STB_WEAK), at("__g", STB_GLOBAL)]),
            "__g+0x2"
        );
        assert_eq!(pick(vec![at("__libc_malloc", STB_GLOBAL), at("malloc", STB_GLOBAL)]), "malloc+0x2");
        assert_eq!(pick(vec![at("read", STB_WEAK), at("read_long", STB_WEAK)]), "read_long+0x2");
        assert_eq!(pick(vec![at("b", STB_WEAK), at("a", STB_WEAK)]), "a+0x2");
    }

    #[test]
    fn gaps_nesting_and_labels_without_size() {
        let symbols = vec![
            symbol("outer", 0x100, 0x100, elf::STB_GLOBAL),
            symbol("inner", 0x120, 0x10, elf::STB_LOCAL),
            symbol("label_inside", 0x140, 0, elf::STB_GLOBAL),
            symbol("asm", 0x300, 0, elf::STB_LOCAL),
            symbol("asm2", 0x310, 0, elf::STB_LOCAL),
            symbol("sized", 0x400, 4, elf::STB_LOCAL),
            symbol("last", 0xff0, 0, elf::STB_LOCAL),
        ];
        let asked = [
            0xff, 0x100, 0x11f, 0x120, 0x130, 0x141, 0x1ff, 0x200, 0x2ff, 0x305, 0x3ff, 0x403, 0x404, 0xfff,
            0x1000,
        ];
        let told = [
            "-",
            "outer+0x0",
            "outer+0x1f",
            "inner+0x0",
            "outer+0x30",
            "outer+0x41",
            "outer+0xff",
            "-",
            "-",
            "asm+0x5",
            "asm2+0xef",
            "sized+0x3",
            "-",
            "last+0xf",
            "-",
        ];
        assert_eq!(names(symbols, &asked), told);
    }
}
