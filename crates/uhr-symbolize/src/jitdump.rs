//! Jitdumps: the binary file in which a runtime writes its generated code, with lines.
//! Format: `tools/perf/Documentation/jitdump-specification.txt` of the Linux sources.
//!
//! Records carry times, in nanoseconds or in cycles (a flag says which, and some writers get it wrong). They are not
//! used: the last code at an address is the answer.

use std::collections::BTreeSet;
use std::ops::Range;

use rustc_hash::FxHashMap;
use uhr_model::{RelativeAddress, Unsymbolized};

use crate::code_ranges::CodeRanges;
use crate::runtime_name::{self, MAX_NAME};
use crate::{LineStart, Location, Symbolized, Unnamed};

const MAGIC: u32 = 0x4A69_5444;
const HEADER_SIZE: usize = 40;
const RECORD_HEADER_SIZE: usize = 16;
const FLAG_ARCH_TIMESTAMP: u64 = 1;
const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
const CODE_DEBUG_INFO: u32 = 2;
const CODE_CLOSE: u32 = 3;
/// Longer names of files are damage: no path can be (`PATH_MAX`).
const MAX_FILE_NAME: usize = 4096;
/// Lines of all functions of a dump that are handed out, and bytes of names with them. A forged dump names one long file with a
/// million lines in a few megabytes.
const MAX_LINES: usize = 1 << 17;
const MAX_LINE_NAMES: usize = 16 << 20;
/// Stands for the name of the entry before it.
const SAME_FILE: &[u8] = b"\xff";

/// Why a file is not taken as a jitdump.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JitdumpError {
    /// It does not begin as a jitdump does.
    #[error("not a jitdump")]
    NotJitdump,
    /// A version of the format that is not known.
    #[error("jitdump of unknown version {0}")]
    Version(u32),
}

/// The code that a jitdump lists.
#[derive(Clone, Debug, Default)]
pub struct Jitdump<'a> {
    code: Vec<Code<'a>>,
    ranges: CodeRanges,
    /// The entries of all functions' line tables, in file order.
    lines: Vec<Line<'a>>,
    arch_timestamps: bool,
    skipped_records: usize,
}

#[derive(Clone, Debug)]
struct Code<'a> {
    start: u64,
    size: u64,
    name: &'a [u8],
    /// The code itself; empty where the writer left it out.
    bytes: &'a [u8],
    /// Where the code was when its lines were written, less where it is now.
    moved_by: u64,
    /// Its part of [`Jitdump::lines`], sorted by address.
    lines: Range<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Line<'a> {
    address: u64,
    line: u32,
    file: &'a [u8],
}

impl<'a> Jitdump<'a> {
    /// Reads all records up to the end, the close record or the first one that is cut off. Damaged records are skipped
    /// and counted.
    ///
    /// # Errors
    /// [`JitdumpError`] if `bytes` is not a jitdump, of either byte order.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, JitdumpError> {
        let magic = bytes.first_chunk::<4>().ok_or(JitdumpError::NotJitdump)?;
        let big_endian = match (u32::from_le_bytes(*magic), u32::from_be_bytes(*magic)) {
            (MAGIC, _) => false,
            (_, MAGIC) => true,
            _ => return Err(JitdumpError::NotJitdump),
        };
        let mut header = Reader { bytes, at: 4, big_endian };
        let fields = (header.u32(), header.u32(), header.skip(20).and_then(|()| header.u64()));
        let (Some(version), Some(size), Some(flags)) = fields else { return Err(JitdumpError::NotJitdump) };
        if version != 1 {
            return Err(JitdumpError::Version(version));
        }
        let mut this = Self { arch_timestamps: flags & FLAG_ARCH_TIMESTAMP != 0, ..Self::default() };
        let rest = bytes.get((size as usize).max(HEADER_SIZE)..).unwrap_or_default();
        this.read_records(Reader { bytes: rest, at: 0, big_endian });
        Ok(this)
    }

    /// Whether the writer says that its times are processor cycles instead of nanoseconds of the monotonic clock.
    pub fn has_arch_timestamps(&self) -> bool {
        self.arch_timestamps
    }

    /// Records that were not understood.
    pub fn skipped_records(&self) -> usize {
        self.skipped_records
    }

    fn read_records(&mut self, mut file: Reader<'a>) {
        let mut by_index = FxHashMap::default();
        // Lines come before the code that they are for.
        let mut pending = None;
        while !file.is_at_end() {
            let Some((id, mut record)) = file.record() else {
                self.skipped_records += 1;
                return;
            };
            let understood = match id {
                CODE_LOAD => self.load(&mut record, &mut by_index, &mut pending),
                CODE_MOVE => self.move_code(&mut record, &mut by_index),
                CODE_DEBUG_INFO => {
                    pending = self.debug_info(&mut record);
                    pending.as_ref().map(|_| ())
                }
                CODE_CLOSE => return,
                // Unwinding information, and whatever later versions add: not names.
                _ => Some(()),
            };
            self.skipped_records += usize::from(understood.is_none());
        }
    }

    fn load(
        &mut self,
        record: &mut Reader<'a>,
        by_index: &mut FxHashMap<u64, usize>,
        pending: &mut Option<(u64, Range<usize>)>,
    ) -> Option<()> {
        record.skip(8)?;
        let _vma = record.u64()?;
        let (start, size, index) = (record.u64()?, record.u64()?, record.u64()?);
        let name = record.text().filter(|name| name.len() <= MAX_NAME)?;
        let bytes = usize::try_from(size).ok().and_then(|size| record.take(size)).unwrap_or_default();
        let end = start.checked_add(size)?;
        let lines = pending.take().filter(|lines| lines.0 == start).map_or(0..0, |lines| lines.1);
        by_index.insert(index, self.code.len());
        self.ranges.insert(start, end, self.code.len());
        self.code.push(Code { start, size, name, bytes, moved_by: 0, lines });
        Some(())
    }

    fn move_code(&mut self, record: &mut Reader<'a>, by_index: &mut FxHashMap<u64, usize>) -> Option<()> {
        record.skip(16)?;
        let (old_start, start, size, index) = (record.u64()?, record.u64()?, record.u64()?, record.u64()?);
        let row = by_index.get(&index).copied().or_else(|| self.ranges.find(old_start))?;
        let end = start.checked_add(size)?;
        let old = self.code.get(row)?;
        let moved_by = old.moved_by.wrapping_add(old.start).wrapping_sub(start);
        let moved =
            Code { start, size, name: old.name, bytes: old.bytes, moved_by, lines: old.lines.clone() };
        by_index.insert(index, self.code.len());
        self.ranges.insert(start, end, self.code.len());
        self.code.push(moved);
        Some(())
    }

    /// The address of the code that the lines are for, and the lines.
    fn debug_info(&mut self, record: &mut Reader<'a>) -> Option<(u64, Range<usize>)> {
        let (code, count) = (record.u64()?, record.u64()?);
        let first = self.lines.len();
        let mut file = &b""[..];
        for _ in 0..count {
            let entry = record.u64().zip(record.u32()).zip(record.u32().and_then(|_| record.text()));
            let Some(((address, line), name)) = entry else {
                self.lines.truncate(first);
                return None;
            };
            if name != SAME_FILE {
                file = name;
            }
            if file.len() > MAX_FILE_NAME {
                self.lines.truncate(first);
                return None;
            }
            self.lines.push(Line { address, line, file });
        }
        self.lines[first..].sort_by_key(|line| line.address);
        Some((code, first..self.lines.len()))
    }

    pub(crate) fn find(&self, address: RelativeAddress) -> Result<Symbolized, Unnamed> {
        let reason = if self.ranges.is_empty() { Unsymbolized::NoJitMap } else { Unsymbolized::NoSymbol };
        let found = self.ranges.find(address.0).and_then(|row| self.code.get(row));
        let code = found.ok_or(Unnamed::because(reason))?;
        let mut name = runtime_name::parse(&String::from_utf8_lossy(code.name));
        if let Some(line) = self.line(code, address.0) {
            name.location = line.location(name.location);
        }
        Ok(Symbolized {
            start: RelativeAddress(code.start),
            end: code.start.checked_add(code.size).map(RelativeAddress),
            locations: vec![name.location],
            kernel_module: None,
            mode: name.mode,
        })
    }

    /// The lines of the functions that were found, as far as they are wanted.
    pub(crate) fn whole_functions(
        &self,
        found: &[Result<Symbolized, Unnamed>],
        wants_lines: &dyn Fn(Range<RelativeAddress>) -> bool,
    ) -> Vec<LineStart> {
        let ranges = found.iter().flatten().filter_map(|found| Some((found.start, found.end?)));
        let ranges: BTreeSet<(RelativeAddress, RelativeAddress)> = ranges.collect();
        let (mut starts, mut name_bytes) = (Vec::<LineStart>::new(), 0);
        for (start, end) in ranges {
            let row = self.ranges.find(start.0);
            let code = row.and_then(|row| self.code.get(row));
            let lines = code.and_then(|code| self.lines.get(code.lines.clone()).zip(Some(code)));
            let Some((lines, code)) = lines.filter(|(lines, _)| !lines.is_empty()) else { continue };
            if !wants_lines(start..end) {
                continue;
            }
            let name = runtime_name::parse(&String::from_utf8_lossy(code.name)).location;
            let places = lines.iter().map(|line| (line.address.wrapping_sub(code.moved_by), line));
            // Newer code can lie where a part of this was.
            let is_own =
                |address: u64| (start.0..end.0).contains(&address) && self.ranges.find(address) == row;
            for (address, line) in places.filter(|(address, _)| is_own(*address)) {
                let location = line.location(name.clone());
                name_bytes += [&location.function, &location.file]
                    .into_iter()
                    .flatten()
                    .map(String::len)
                    .sum::<usize>();
                if starts.len() >= MAX_LINES || name_bytes > MAX_LINE_NAMES {
                    break;
                }
                let own = LineStart { address: RelativeAddress(address), locations: vec![location] };
                // A statement that compiles to nothing begins where the next one does.
                match starts.last_mut().filter(|last| last.address == own.address) {
                    Some(last) => *last = own,
                    None => starts.push(own),
                }
            }
            starts.push(LineStart { address: end, locations: Vec::new() });
        }
        starts
    }

    /// The bytes of exactly this range of addresses, where one function holds it all. Code that moved is not known: what
    /// refers to other places in it was changed on the way.
    pub(crate) fn bytes(&self, range: &Range<u64>) -> Option<&'a [u8]> {
        let code = self.code.get(self.ranges.find(range.start)?).filter(|code| code.moved_by == 0)?;
        let first = usize::try_from(range.start.checked_sub(code.start)?).ok()?;
        let length = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
        code.bytes.get(first..first.checked_add(length)?)
    }

    fn line(&self, code: &Code<'a>, address: u64) -> Option<&Line<'a>> {
        let lines = self.lines.get(code.lines.clone())?;
        let address = address.wrapping_add(code.moved_by);
        lines.get(lines.partition_point(|line| line.address <= address).checked_sub(1)?)
    }
}

impl Line<'_> {
    /// Where it is, in the function that a name says. A name can have a file, too.
    fn location(&self, name: Location) -> Location {
        let file = Some(String::from_utf8_lossy(self.file).into_owned()).filter(|file| !file.is_empty());
        Location { file: file.or(name.file), line: Some(self.line).filter(|&line| line > 0), ..name }
    }
}

/// Reads fields of either byte order; `None` past the end.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    big_endian: bool,
}

impl<'a> Reader<'a> {
    fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.at = self.at.checked_add(bytes).filter(|&at| at <= self.bytes.len())?;
        Some(())
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(bytes)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let array = *self.bytes.get(self.at..)?.first_chunk::<N>()?;
        self.at += N;
        Some(array)
    }

    fn u32(&mut self) -> Option<u32> {
        let bytes = self.array()?;
        Some(if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn u64(&mut self) -> Option<u64> {
        let bytes = self.array()?;
        Some(if self.big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    }

    /// Bytes up to the next zero byte, which is passed over.
    fn text(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let length = rest.iter().position(|&byte| byte == 0)?;
        self.at += length + 1;
        Some(&rest[..length])
    }

    /// The kind of the next record, and a reader of its body alone.
    fn record(&mut self) -> Option<(u32, Reader<'a>)> {
        let (id, size) = (self.u32()?, self.u32()? as usize);
        let _timestamp = self.u64()?;
        let body = size.checked_sub(RECORD_HEADER_SIZE)?;
        let end = self.at.checked_add(body)?;
        let bytes = self.bytes.get(self.at..end)?;
        self.at = end;
        Some((id, Reader { bytes, at: 0, big_endian: self.big_endian }))
    }
}
