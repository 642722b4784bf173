//! The code bytes of a recording's functions, cut into instructions where a question needs that.

use std::ops::Range;
use std::sync::OnceLock;

use uhr_model::NoCode;
use uhr_recording::tables::{CodeLineRow, CodeLines as Lines, MachineCode as Kept, MachineCodeRow};
use uhr_recording::{Recording, RecordingError, Table};

use super::Site;
use super::code_lines::CodeLines;
use crate::QueryError;
use crate::disassembly::starts;

/// The code of functions, by module and address.
#[derive(Debug, Default)]
pub(crate) struct MachineCode {
    /// By module, then by address.
    pieces: Vec<Piece>,
    /// The source of their instructions.
    pub(crate) lines: CodeLines,
    /// Whether the recording was made by an uhr that keeps code.
    pub(crate) is_kept: bool,
    /// The machine's architecture, where its code cannot be told as text yet: the pieces then have no bytes.
    pub(crate) not_disassembled: Option<String>,
}

/// A function, or a part of one.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Row of `modules`.
    pub(crate) module: u32,
    /// Its first address.
    pub(crate) start: u64,
    /// The address behind its last byte; not more than `start` where that is not known.
    pub(crate) end: u64,
    /// All its bytes, or none.
    pub(crate) bytes: Vec<u8>,
    /// Why there are none.
    pub(crate) missing: Option<NoCode>,
    /// Where its instructions begin, counted from `start`.
    starts: OnceLock<Vec<u32>>,
}

/// Functions inside of functions that are looked through for the one that holds an address.
const DEEPEST: usize = 16;

impl MachineCode {
    pub(super) fn read(recording: &Recording) -> Result<Self, QueryError> {
        if !recording.has_parquet::<Kept>() {
            return Ok(Self::default());
        }
        let code = rows_of::<Kept>(recording)?;
        let lines = rows_of::<Lines>(recording)?;
        let kept = Self::new(code, lines, recording.modules()?.len())?;
        Ok(kept.of_machine(&recording.manifest.host.architecture))
    }

    pub(super) fn new(
        rows: Vec<MachineCodeRow>,
        lines: Vec<CodeLineRow>,
        modules: usize,
    ) -> Result<Self, QueryError> {
        let damaged = |what: &str| Err(QueryError::Damaged(what.to_owned()));
        let mut pieces = Vec::with_capacity(rows.len());
        for row in rows {
            if row.module as usize >= modules {
                return damaged("the module of code is missing");
            }
            let length = row.end.checked_sub(row.start);
            if !row.bytes.is_empty() && length != Some(row.bytes.len() as u64) {
                return damaged("code is longer or shorter than it says");
            }
            if u32::try_from(row.bytes.len()).is_err() {
                return damaged("a function is longer than any");
            }
            pieces.push(Piece {
                module: row.module,
                start: row.start,
                end: row.end,
                bytes: row.bytes,
                missing: row.missing.and_then(NoCode::from_code),
                starts: OnceLock::new(),
            });
        }
        pieces.sort_by_key(|piece| (piece.module, piece.start));
        Ok(Self { pieces, lines: CodeLines::new(lines), is_kept: true, not_disassembled: None })
    }

    /// Knows whose code it is.
    pub(super) fn of_machine(mut self, architecture: &str) -> Self {
        if architecture != "x86_64" {
            self.pieces.iter_mut().for_each(|piece| piece.bytes.clear());
            self.not_disassembled = Some(architecture.to_owned());
        }
        self
    }

    /// The innermost function that holds a place.
    pub(crate) fn of(&self, site: Site) -> Option<&Piece> {
        let behind =
            self.pieces.partition_point(|piece| (piece.module, piece.start) <= (site.module, site.address));
        let before = self.pieces[..behind].iter().rev().take(DEEPEST);
        let holds = |piece: &&Piece| {
            piece.module == site.module && (piece.start == site.address || site.address < piece.end)
        };
        before.take_while(|piece| piece.module == site.module).find(holds)
    }

    /// The address of the instruction at a place: a call is seen by an address inside of it. Without the code, the address
    /// as it is.
    pub(crate) fn instruction_start(&self, site: Site) -> u64 {
        let start = || {
            let piece = self.of(site)?;
            Some(piece.start + piece.instruction(site.address)?.start as u64)
        };
        start().unwrap_or(site.address)
    }
}

fn rows_of<T: Table>(recording: &Recording) -> Result<Vec<T::Row>, RecordingError> {
    let table: T = recording.table()?;
    Ok((0..table.len()).map(|row| table.row(row)).collect())
}

impl Piece {
    /// Where each instruction begins, counted from the function's start.
    pub(crate) fn starts(&self) -> &[u32] {
        self.starts.get_or_init(|| starts(&self.bytes, self.start))
    }

    /// The number of the instruction that an address lies in.
    pub(crate) fn number(&self, address: u64) -> Option<usize> {
        let offset = address.checked_sub(self.start).filter(|&offset| offset < self.bytes.len() as u64)?;
        self.starts().partition_point(|&start| u64::from(start) <= offset).checked_sub(1)
    }

    /// The place in `bytes` of the instruction that an address lies in.
    pub(crate) fn instruction(&self, address: u64) -> Option<Range<usize>> {
        Some(self.place(self.number(address)?))
    }

    /// The place in `bytes` of the instruction of a number.
    pub(crate) fn place(&self, at: usize) -> Range<usize> {
        let starts = self.starts();
        let end = starts.get(at + 1).map_or(self.bytes.len(), |&next| next as usize);
        starts.get(at).map_or(end..end, |&start| start as usize..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(module: u32, start: u64, end: u64, bytes: &[u8]) -> MachineCodeRow {
        MachineCodeRow { module, start, end, bytes: bytes.to_vec(), missing: None }
    }

    #[test]
    fn forged_code_is_refused() {
        let read = |row| MachineCode::new(vec![row], Vec::new(), 2).map(|_| ());
        assert!(read(row(1, 0x10, 0x12, &[0x90, 0xc3])).is_ok());
        assert!(read(row(2, 0x10, 0x12, &[0x90, 0xc3])).is_err(), "no such module");
        assert!(read(row(1, 0x10, 0x13, &[0x90, 0xc3])).is_err(), "shorter than it says");
        assert!(read(row(1, u64::MAX, 0, &[0x90])).is_err(), "it ends before it begins");
        assert!(read(row(1, u64::MAX, 0, &[])).is_ok(), "without bytes nothing is read of it");
    }

    #[test]
    fn the_innermost_function_and_its_instruction() {
        let rows = vec![
            row(0, 0x100, 0x108, &[0x48, 0xf7, 0xf9, 0x90, 0x90, 0x90, 0x90, 0xc3]),
            row(0, 0x104, 0x106, &[0x31, 0xc0]),
            row(1, 0x100, 0x101, &[0xc3]),
        ];
        let code = MachineCode::new(rows, Vec::new(), 2).unwrap();
        let start = |module, address| code.of(Site { module, address }).map(|piece| piece.start);
        assert_eq!(
            [start(0, 0x103), start(0, 0x105), start(0, 0x107)],
            [Some(0x100), Some(0x104), Some(0x100)]
        );
        assert_eq!([start(0, 0xff), start(0, 0x108), start(1, 0x101), start(9, 0)], [None; 4]);
        // A call is seen by its last byte.
        assert_eq!(code.instruction_start(Site { module: 0, address: 0x102 }), 0x100);
        assert_eq!(code.instruction_start(Site { module: 0, address: 0x105 }), 0x104);
        assert_eq!(code.instruction_start(Site { module: 1, address: 0x500 }), 0x500);
    }

    #[test]
    fn code_of_another_architecture_is_not_told_as_this_one() {
        let rows = vec![row(0, 0x100, 0x104, &[0xc0, 0x03, 0x5f, 0xd6])];
        let code = MachineCode::new(rows, Vec::new(), 1).unwrap().of_machine("aarch64");
        assert_eq!(code.not_disassembled.as_deref(), Some("aarch64"));
        assert_eq!(code.instruction_start(Site { module: 0, address: 0x103 }), 0x103);
    }
}
