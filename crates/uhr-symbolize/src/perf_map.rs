//! Perf maps: the text file in which a runtime lists the code that it generated.

use uhr_model::{RelativeAddress, Unsymbolized};

use crate::code_ranges::CodeRanges;
use crate::runtime_name::{self, MAX_NAME};
use crate::{Symbolized, Unnamed};

/// A long-running Node writes some hundred thousand lines.
const MAX_LINES: usize = 8_000_000;

/// The code that a perf map lists. Later lines replace earlier ones at the same addresses.
#[derive(Clone, Debug, Default)]
pub struct PerfMap<'a> {
    /// Start, end and name.
    code: Vec<(u64, u64, &'a [u8])>,
    ranges: CodeRanges,
    skipped_lines: usize,
}

impl<'a> PerfMap<'a> {
    /// Reads lines of `START SIZE NAME`, numbers in hex, with or without `0x`; the name is the rest of the line. Lines
    /// of another form are skipped and counted. A line without its newline is taken to be half written.
    pub fn parse(text: &'a [u8]) -> Self {
        let mut this = Self::default();
        let lines = text.split_inclusive(|&byte| byte == b'\n').enumerate();
        for (number, line) in lines {
            match line.strip_suffix(b"\n").filter(|_| number < MAX_LINES).and_then(parse_line) {
                Some((start, end, name)) => {
                    this.ranges.insert(start, end, this.code.len());
                    this.code.push((start, end, name));
                }
                None => this.skipped_lines += 1,
            }
        }
        this
    }

    /// Lines that were not understood.
    pub fn skipped_lines(&self) -> usize {
        self.skipped_lines
    }

    pub(crate) fn find(&self, address: RelativeAddress) -> Result<Symbolized, Unnamed> {
        let reason = if self.ranges.is_empty() { Unsymbolized::NoJitMap } else { Unsymbolized::NoSymbol };
        let found = self.ranges.find(address.0).and_then(|row| self.code.get(row));
        let (start, end, name) = found.ok_or(Unnamed::because(reason))?;
        let name = runtime_name::parse(&String::from_utf8_lossy(name));
        Ok(Symbolized {
            start: RelativeAddress(*start),
            end: Some(RelativeAddress(*end)),
            locations: vec![name.location],
            kernel_module: None,
            mode: name.mode,
        })
    }
}

fn parse_line(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut parts = line.splitn(3, |&byte| byte == b' ');
    let start = hex(parts.next()?)?;
    let size = hex(parts.next()?)?;
    let name = parts.next()?.trim_ascii();
    let end = start.checked_add(size)?;
    (!name.is_empty() && name.len() <= MAX_NAME && size > 0).then_some((start, end, name))
}

fn hex(digits: &[u8]) -> Option<u64> {
    let digits = digits.strip_prefix(b"0x").or(digits.strip_prefix(b"0X")).unwrap_or(digits);
    // from_str_radix would take a sign.
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with(['+', '-']))?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(map: &PerfMap<'_>, address: u64) -> Result<String, Unsymbolized> {
        let found = map.find(RelativeAddress(address)).map_err(|unnamed| unnamed.reason)?;
        Ok(found.locations[0].function.clone().unwrap())
    }

    #[test]
    fn later_lines_win_and_strange_ones_are_counted() {
        let text = b"1000 100 old one\n0x1040 0x10 new\n\nnonsense\n-1 10 sign\nffffffffffffffff 10 wraps\n\
            2000 0 empty\n2000 10\n3000 10 \xff\xfe\n4000 10 half";
        let map = PerfMap::parse(text);
        assert_eq!(name(&map, 0x103f), Ok("old one".into()));
        assert_eq!(name(&map, 0x1040), Ok("new".into()));
        assert_eq!(name(&map, 0x1050), Ok("old one".into()));
        assert_eq!(name(&map, 0x1100), Err(Unsymbolized::NoSymbol));
        assert_eq!(name(&map, 0x3000), Ok("\u{fffd}\u{fffd}".into()));
        assert_eq!(name(&map, 0x4000), Err(Unsymbolized::NoSymbol));
        assert_eq!(map.skipped_lines(), 7);
        assert_eq!(name(&PerfMap::parse(b""), 1), Err(Unsymbolized::NoJitMap));
    }
}
