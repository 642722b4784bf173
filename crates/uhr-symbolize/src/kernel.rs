//! The kernel's names: `/proc/kallsyms`, which holds modules and BPF programs too.

use uhr_model::{RelativeAddress, Unsymbolized};

use crate::elf_symbols::leading_underscores;
use crate::{Location, Symbolized, Unnamed, demangle};

/// Nothing says where the last function before a hole ends (between modules, behind the kernel), so no function is
/// taken to be longer than this. The largest BPF programs come near it.
const MAX_FUNCTION: u64 = 256 * 1024;
/// Ten times what a kernel with all its modules has.
const MAX_SYMBOLS: usize = 4_000_000;

/// The functions of the running kernel.
#[derive(Clone, Debug, Default)]
pub struct KernelSymbols<'a> {
    symbols: Vec<KernelSymbol<'a>>,
    restricted: bool,
    skipped_lines: usize,
}

#[derive(Clone, Copy, Debug)]
struct KernelSymbol<'a> {
    address: u64,
    /// `None` for data, which only says that the function before it has ended.
    function: Option<&'a str>,
    module: Option<&'a str>,
    weak: bool,
    global: bool,
}

impl<'a> KernelSymbols<'a> {
    /// Reads the text of `/proc/kallsyms`: `ADDRESS TYPE NAME`, and `[MODULE]` behind a tab where there is one.
    /// Lines of another form are skipped and counted.
    pub fn parse(text: &'a str) -> Self {
        let mut this = Self::default();
        for line in text.lines() {
            match parse_line(line).filter(|_| this.symbols.len() < MAX_SYMBOLS) {
                Some(symbol) => this.symbols.push(symbol),
                None => this.skipped_lines += 1,
            }
        }
        // With kptr_restrict every address reads as zero. Per-CPU symbols of x86 are near zero anyway.
        this.restricted = !this.symbols.iter().any(|symbol| symbol.function.is_some() && symbol.address != 0);
        this.symbols.sort_unstable_by(|a, b| {
            a.address.cmp(&b.address).then_with(|| a.preference().cmp(&b.preference()))
        });
        this.symbols.dedup_by_key(|symbol| symbol.address);
        this
    }

    /// Whether the kernel hides its addresses from the reader of the text (`kernel.kptr_restrict`).
    pub fn is_restricted(&self) -> bool {
        self.restricted
    }

    /// Lines that were not understood.
    pub fn skipped_lines(&self) -> usize {
        self.skipped_lines
    }

    pub(crate) fn find(&self, address: RelativeAddress) -> Result<Symbolized, Unnamed> {
        let unnamed = Unnamed::because;
        if self.restricted {
            return Err(unnamed(Unsymbolized::KernelRestricted));
        }
        let after = self.symbols.partition_point(|symbol| symbol.address <= address.0);
        let symbol = after.checked_sub(1).and_then(|row| self.symbols.get(row));
        let symbol = symbol.filter(|symbol| address.0 - symbol.address < MAX_FUNCTION);
        let found = symbol.and_then(|symbol| Some((symbol, symbol.function?)));
        let (symbol, name) = found.ok_or(unnamed(Unsymbolized::NoSymbol))?;
        Ok(Symbolized {
            start: RelativeAddress(symbol.address),
            // What follows the last function before a hole is not known.
            end: self.symbols.get(after).map(|next| RelativeAddress(next.address)),
            locations: vec![Location { function: Some(demangle(name)), ..Location::default() }],
            kernel_module: symbol.module.map(str::to_owned),
            mode: None,
        })
    }
}

impl KernelSymbol<'_> {
    /// The smallest is shown: the rule of ELF symbols, and functions before data.
    fn preference(&self) -> (bool, u8, usize, std::cmp::Reverse<usize>, &str) {
        let name = self.function.unwrap_or_default();
        let binding = match (self.weak, self.global) {
            (true, _) => 1,
            (false, true) => 0,
            (false, false) => 2,
        };
        let underscores = leading_underscores(name.as_bytes());
        (self.function.is_none(), binding, underscores, std::cmp::Reverse(name.len()), name)
    }
}

fn parse_line(line: &str) -> Option<KernelSymbol<'_>> {
    let (address, rest) = line.split_once(' ')?;
    let (kind, rest) = rest.split_once(' ')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let (name, module) = match rest.split_once('\t') {
        Some((name, module)) => {
            (name, module.trim().strip_prefix('[').and_then(|name| name.strip_suffix(']')))
        }
        None => (rest, None),
    };
    let name = name.trim();
    let is_code = matches!(kind, "t" | "T" | "w" | "W");
    Some(KernelSymbol {
        address,
        function: (is_code && !name.is_empty()).then_some(name),
        module,
        weak: matches!(kind, "w" | "W"),
        global: kind.starts_with(|kind: char| kind.is_ascii_uppercase()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(symbols: &KernelSymbols<'_>, address: u64) -> Result<(String, Option<String>), Unsymbolized> {
        let found = symbols.find(RelativeAddress(address)).map_err(|unnamed| unnamed.reason)?;
        Ok((found.locations[0].function.clone().unwrap(), found.kernel_module))
    }

    const TEXT: &str = "\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000040 t local_alias
ffffffff81000040 T __x64_sys_read
ffffffff81000040 W weak_alias_with_long_name
ffffffff81000100 T _etext
ffffffff81200000 D some_data
ffffffffc0001000 t nft_do_chain\t[nf_tables]
ffffffffc0002000 t bpf_prog_6deef7357e7b4530_sd_fw_ingress\t[bpf]
";

    #[test]
    fn kernel_modules_and_bpf() {
        let symbols = KernelSymbols::parse(TEXT);
        assert_eq!(name(&symbols, 0xffff_ffff_8100_0050), Ok(("__x64_sys_read".into(), None)));
        assert_eq!(name(&symbols, 0xffff_ffff_8100_0000), Ok(("_stext".into(), None)));
        assert_eq!(name(&symbols, 0xffff_ffff_8120_0010), Err(Unsymbolized::NoSymbol));
        assert_eq!(
            name(&symbols, 0xffff_ffff_c000_1001),
            Ok(("nft_do_chain".into(), Some("nf_tables".into())))
        );
        assert_eq!(
            name(&symbols, 0xffff_ffff_c000_2fff),
            Ok(("bpf_prog_6deef7357e7b4530_sd_fw_ingress".into(), Some("bpf".into())))
        );
        assert_eq!(name(&symbols, 0xffff_ffff_c020_0000), Err(Unsymbolized::NoSymbol));
        assert_eq!(name(&symbols, 0x10), Err(Unsymbolized::NoSymbol));
    }

    #[test]
    fn hidden_addresses() {
        let hidden: String = TEXT.lines().map(|line| format!("{:016}{}\n", 0, &line[16..])).collect();
        let symbols = KernelSymbols::parse(&hidden);
        assert!(symbols.is_restricted());
        assert_eq!(name(&symbols, 0xffff_ffff_8100_0050), Err(Unsymbolized::KernelRestricted));
        let answer = crate::symbolize(&crate::ModuleSource::Kernel(&symbols), &[RelativeAddress(u64::MAX)]);
        assert_eq!(answer.notes, [crate::Note::KernelRestricted]);
        assert_eq!(name(&KernelSymbols::parse(""), 1), Err(Unsymbolized::KernelRestricted));
    }

    #[test]
    fn strange_lines_are_counted() {
        let symbols = KernelSymbols::parse("x\n\nffffffff81000000 T ok\nzz T no\nffffffff81000010 T \n");
        assert_eq!(symbols.skipped_lines(), 3);
        assert_eq!(name(&symbols, 0xffff_ffff_8100_0001), Ok(("ok".into(), None)));
    }
}
