//! The source of every instruction of busy functions, whether a sample fell on it or not.

use uhr_recording::tables::CodeLineRow;

use super::Site;

/// The innermost source of a run of instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CodeLine {
    module: u32,
    /// Its first address.
    address: u64,
    /// The innermost function; missing where nothing is known.
    pub(crate) function: Option<String>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    /// Whether that function was inlined into another.
    pub(crate) is_inlined: bool,
}

/// By module and address, one an address.
#[derive(Debug, Default)]
pub(crate) struct CodeLines(Vec<CodeLine>);

impl CodeLines {
    pub(super) fn new(mut rows: Vec<CodeLineRow>) -> Self {
        rows.sort_by_key(|row| (row.module, row.address, row.depth));
        let mut lines: Vec<CodeLine> = Vec::with_capacity(rows.len());
        for row in rows {
            let last =
                lines.last_mut().filter(|last| (last.module, last.address) == (row.module, row.address));
            match last {
                Some(last) if row.depth > 0 => last.is_inlined = true,
                // Where one function ends another may begin.
                Some(last) if last.function.is_some() => (),
                Some(last) => (last.function, last.file, last.line) = (row.function, row.file, row.line),
                None => lines.push(CodeLine {
                    module: row.module,
                    address: row.address,
                    function: row.function,
                    file: row.file,
                    line: row.line,
                    is_inlined: false,
                }),
            }
        }
        Self(lines)
    }

    /// The source of the instruction at a place in a function that begins at `start`.
    pub(crate) fn of(&self, site: Site, start: u64) -> Option<&CodeLine> {
        let behind =
            self.0.partition_point(|line| (line.module, line.address) <= (site.module, site.address));
        let line = self.0.get(behind.checked_sub(1)?)?;
        (line.module == site.module && line.address >= start && line.file.is_some()).then_some(line)
    }
}
