//! Tables with aligned columns that fit the terminal.

use super::clean::{clean, cut_end, cut_start, width};
use crate::terminal::Terminal;

/// How the cells of a column stand, and what is cut when the line is too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Column {
    /// A number: to the right, never cut.
    Number,
    /// A name: to the left, cut at its end.
    Name,
    /// A path: to the left, cut at its start.
    Path,
}

/// Rows of cells under headings.
#[derive(Debug, Default)]
pub(crate) struct Table {
    columns: Vec<(Column, String)>,
    rows: Vec<Vec<String>>,
}

/// Blanks between columns.
const GAP: usize = 2;
/// A name is not cut below this: less says nothing.
const SHORTEST_NAME: usize = 8;

impl Table {
    /// A table of these columns.
    pub(crate) fn new(columns: impl IntoIterator<Item = (Column, &'static str)>) -> Self {
        let columns = columns.into_iter().map(|(column, heading)| (column, heading.to_owned())).collect();
        Self { columns, rows: Vec::new() }
    }

    /// Appends a row. Its cells may be hostile.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| clean(&cell).into_owned()).collect());
    }

    /// Whether it has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines: headings, then the rows, each behind `indent` blanks.
    pub(crate) fn lines(&self, terminal: Terminal, indent: usize) -> Vec<String> {
        let widths = self.widths(terminal.width.saturating_sub(indent));
        let headings: Vec<&str> = self.columns.iter().map(|(_, heading)| heading.as_str()).collect();
        let mut lines = Vec::new();
        if headings.iter().any(|heading| !heading.is_empty()) {
            lines.push(terminal.dim(&self.line(&headings, &widths, indent)));
        }
        for row in &self.rows {
            let cells: Vec<&str> = row.iter().map(String::as_str).collect();
            lines.push(self.line(&cells, &widths, indent));
        }
        lines
    }

    fn line(&self, cells: &[&str], widths: &[usize], indent: usize) -> String {
        let mut line = " ".repeat(indent);
        for (at, ((column, _), cell)) in self.columns.iter().zip(cells).enumerate() {
            if at > 0 {
                line.push_str(&" ".repeat(GAP));
            }
            let cell = match column {
                Column::Path => cut_start(cell, widths[at]),
                _ => cut_end(cell, widths[at]),
            };
            let pad = " ".repeat(widths[at].saturating_sub(width(&cell)));
            match column {
                Column::Number => line.extend([pad.as_str(), cell.as_ref()]),
                _ => line.extend([cell.as_ref(), pad.as_str()]),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }

    /// The width of each column: what its cells need, less what the widest names have to give for the line to fit.
    fn widths(&self, line: usize) -> Vec<usize> {
        let cells = |at: usize| self.rows.iter().filter_map(move |row| row.get(at)).map(|cell| width(cell));
        let mut widths: Vec<usize> = (self.columns.iter().enumerate())
            .map(|(at, (_, heading))| cells(at).max().unwrap_or(0).max(width(heading)))
            .collect();
        let gaps = GAP * self.columns.len().saturating_sub(1);
        let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(line);
        let names: Vec<usize> =
            (0..self.columns.len()).filter(|&at| self.columns[at].0 != Column::Number).collect();
        while excess > 0 {
            let Some(&widest) = names.iter().max_by_key(|&&at| widths[at]) else { break };
            // Down to the next widest, so that two long columns share what is missing.
            let next = names.iter().map(|&at| widths[at]).filter(|&w| w < widths[widest]).max();
            let spare = widths[widest] - next.unwrap_or(0).max(SHORTEST_NAME).min(widths[widest]);
            let give = spare.max(usize::from(widths[widest] > SHORTEST_NAME)).min(excess);
            if give == 0 {
                break;
            }
            widths[widest] -= give;
            excess -= give;
        }
        widths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Terminal = Terminal { width: 40, colour: false };

    fn table() -> Table {
        let mut table =
            Table::new([(Column::Number, "self"), (Column::Name, "function"), (Column::Path, "module")]);
        table.row(["45.6 %".into(), "parse_json".into(), "app".into()]);
        table.row([
            "1.0 %".into(),
            "a_function_with_a_rather_long_name".into(),
            "/usr/lib/x86_64/libc.so.6".into(),
        ]);
        table
    }

    #[test]
    fn columns_are_aligned_and_names_give_way() {
        assert_eq!(
            table().lines(PLAIN, 1),
            [
                "   self  function        module",
                " 45.6 %  parse_json      app",
                "  1.0 %  a_function_wi…  …64/libc.so.6",
            ]
        );
        let wide = Terminal { width: 200, ..PLAIN };
        assert_eq!(
            table().lines(wide, 0)[2],
            " 1.0 %  a_function_with_a_rather_long_name  /usr/lib/x86_64/libc.so.6"
        );
    }

    #[test]
    fn no_width_is_exceeded_and_numbers_are_never_cut() {
        for columns in 34..100 {
            for line in table().lines(Terminal { width: columns, colour: false }, 0) {
                assert!(width(&line) <= columns, "{columns}: {line}");
            }
        }
        let narrow = table().lines(Terminal { width: 10, colour: false }, 0);
        assert!(narrow[1].starts_with("45.6 %"));
    }

    #[test]
    fn hostile_cells_stay_in_their_line() {
        let mut table = Table::new([(Column::Name, "")]);
        table.row(["\x1b[2J\nroot".into()]);
        assert_eq!(table.lines(PLAIN, 0), ["\u{fffd}[2J\u{fffd}root"]);
    }
}
