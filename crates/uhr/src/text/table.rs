//! Tables with aligned columns that fit the terminal.

use super::clean::{clean, cut_end, cut_middle, cut_start, width};
use crate::terminal::Terminal;

/// How the cells of a column stand, and what is cut when the line is too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Column {
    /// A number: to the right, never cut.
    Number,
    /// A number that is left out where the names would have no room; of several the first one first.
    Extra,
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
    pub(crate) fn new<'a>(columns: impl IntoIterator<Item = (Column, &'a str)>) -> Self {
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
        let columns = self.fitting(terminal.width.saturating_sub(indent));
        let headings: Vec<&str> = self.columns.iter().map(|(_, heading)| heading.as_str()).collect();
        let mut lines = Vec::new();
        if headings.iter().any(|heading| !heading.is_empty()) {
            lines.push(terminal.dim(&self.line(&headings, &columns, indent)));
        }
        for row in &self.rows {
            let cells: Vec<&str> = row.iter().map(String::as_str).collect();
            lines.push(self.line(&cells, &columns, indent));
        }
        lines
    }

    fn line(&self, cells: &[&str], columns: &[(usize, usize)], indent: usize) -> String {
        let mut line = " ".repeat(indent);
        for (place, &(at, columns)) in columns.iter().enumerate() {
            if place > 0 {
                line.push_str(&" ".repeat(GAP));
            }
            let cell = cells.get(at).copied().unwrap_or_default();
            let kind = self.columns[at].0;
            let cell = match kind {
                Column::Path => cut_start(cell, columns),
                Column::Name => cut_middle(cell, columns),
                _ => cut_end(cell, columns),
            };
            let pad = " ".repeat(columns.saturating_sub(width(&cell)));
            if kind.is_number() {
                line.extend([pad.as_str(), cell.as_ref()]);
            } else {
                line.extend([cell.as_ref(), pad.as_str()]);
            }
        }
        line.truncate(line.trim_end().len());
        line
    }

    /// The columns that are shown, and the width of each: what its cells need, less what the widest names have to give
    /// for the line to fit.
    fn fitting(&self, line: usize) -> Vec<(usize, usize)> {
        let cells = |at: usize| self.rows.iter().filter_map(move |row| row.get(at)).map(|cell| width(cell));
        let wanted = |(at, (_, heading)): (usize, &(Column, String))| {
            (at, cells(at).max().unwrap_or(0).max(width(heading)).min(line))
        };
        let mut shown: Vec<(usize, usize)> = self.columns.iter().enumerate().map(wanted).collect();
        let kind = |at: usize| self.columns[at].0;
        let gaps = |shown: &[(usize, usize)]| GAP * shown.len().saturating_sub(1);
        let least = |shown: &[(usize, usize)]| {
            let least = |&(at, width): &(usize, usize)| {
                if kind(at).is_number() { width } else { width.min(SHORTEST_NAME) }
            };
            shown.iter().map(least).sum::<usize>() + gaps(shown)
        };
        while least(&shown) > line
            && let Some(extra) = shown.iter().position(|&(at, _)| kind(at) == Column::Extra)
        {
            shown.remove(extra);
        }
        let all: usize = shown.iter().map(|&(_, width)| width).sum();
        for _ in line..all + gaps(&shown) {
            let may_give =
                |&&mut (at, width): &&mut (usize, usize)| !kind(at).is_number() && width > SHORTEST_NAME;
            let widest = shown.iter_mut().filter(may_give).max_by_key(|(_, width)| *width);
            let Some((_, width)) = widest else { break };
            *width -= 1;
        }
        shown
    }
}

impl Column {
    fn is_number(self) -> bool {
        matches!(self, Self::Number | Self::Extra)
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
                "   self  function         module",
                " 45.6 %  parse_json       app",
                "  1.0 %  a_function_wit…  …_64/libc.so.6",
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
    fn numbers_that_can_be_missed_go_before_names_do() {
        let mut table = Table::new([
            (Column::Number, "self"),
            (Column::Extra, "time"),
            (Column::Extra, "total"),
            (Column::Name, "function"),
        ]);
        table.row(["45.6 %".into(), "1.23 s".into(), "98.7 %".into(), "parse_json".into()]);
        let row = |width| table.lines(Terminal { width, colour: false }, 0)[1].clone();
        assert_eq!(row(40), "45.6 %  1.23 s  98.7 %  parse_json");
        assert_eq!(row(32), "45.6 %  1.23 s  98.7 %  parse_j…");
        assert_eq!(row(31), "45.6 %  98.7 %  parse_json");
        assert_eq!(row(20), "45.6 %  parse_json");
    }

    #[test]
    fn hostile_cells_stay_in_their_line() {
        let mut table = Table::new([(Column::Name, "")]);
        table.row(["\x1b[2J\nroot".into()]);
        assert_eq!(table.lines(PLAIN, 0), ["\u{fffd}[2J\u{fffd}root"]);
    }
}
