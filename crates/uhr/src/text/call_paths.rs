//! `uhr call-paths` for people: a tree of callers or callees, or whole paths.

use uhr_model::Dimension;
use uhr_query::answers::{CallPathsAnswer, Direction, PathRow, Paths, TreeRow};

use super::clean::width;
use super::query::key_text;
use super::table::{Column, Table};
use super::wrap::{hang_items, wrap};
use super::{answer, quantity};
use crate::terminal::Terminal;

/// The answer's lines.
pub(crate) fn lines(paths: &CallPathsAnswer, terminal: Terminal) -> Vec<String> {
    let mut lines = answer::head(&paths.recording, Some(&paths.metric), &paths.request.filters, terminal);
    lines.extend(wrap(&function_in_words(paths), terminal.width));
    lines.push(String::new());
    let unit = paths.metric.unit.as_str();
    let notes = match &paths.rows {
        Paths::Tree(rows) => {
            lines.extend(tree(rows, paths.request.direction, unit).lines(terminal, 0));
            answer::interval_notes(rows.iter().map(|row| row.interval_note), terminal)
        }
        Paths::Whole(rows) => {
            let shares = rows.iter().map(|row| (row.self_share, row.self_share_ci95, row.interval_note));
            let shares = answer::share_cells(shares);
            lines.extend(whole(rows, &shares, unit, terminal));
            answer::interval_notes(rows.iter().map(|row| row.interval_note), terminal)
        }
    };
    lines.extend(notes);
    lines.push(String::new());
    lines.extend(answer::shown(&paths.shown, paths.request.direction == Direction::Paths));
    lines.extend(answer::coverage_in_short(&paths.coverage, &paths.metric.name, terminal));
    lines.extend(answer::next(&paths.next, terminal));
    lines
}

fn function_in_words(paths: &CallPathsAnswer) -> String {
    let totals = &paths.function;
    let unit = paths.metric.unit.as_str();
    let name = key_text(&totals.key);
    let what = match paths.request.direction {
        Direction::Paths => "whole paths through",
        Direction::Callers => "callers of",
        Direction::Callees => "callees of",
    };
    format!(
        "{what} {name}: self {} ({}), with callees {} ({})",
        quantity::share(totals.self_share),
        quantity::value(totals.own as f64, unit),
        answer::interval((totals.total_share, totals.total_share_ci95, totals.interval_note)),
        quantity::value(totals.total as f64, unit),
    )
}

fn tree(rows: &[TreeRow], direction: Direction, unit: &str) -> Table {
    let amount = if unit == "ns" { "time" } else { unit };
    // Of callers `self` is what has no further caller: nothing that one looks for.
    let has_own = direction == Direction::Callees;
    let own_column = has_own.then_some((Column::Extra, "self"));
    let columns = [(Column::Number, "total"), (Column::Extra, amount)].into_iter().chain(own_column);
    let mut table = Table::new(columns.chain([(Column::Name, "function"), (Column::Name, "module")]));
    let shares = rows.iter().map(|row| (row.total_share, row.total_share_ci95, row.interval_note));
    for (row, share) in rows.iter().zip(answer::share_cells(shares)) {
        let cell = |dimension| row.key.get(dimension).map(ToString::to_string).unwrap_or_default();
        let numbers = [share, quantity::value(row.total as f64, unit)].into_iter();
        let own = has_own.then(|| quantity::share(row.self_share));
        let names = [format!("{}{}", indent(row.depth), cell(Dimension::Function)), cell(Dimension::Module)];
        table.row(numbers.chain(own).chain(names));
    }
    table
}

/// Past a depth that leaves room for names, the number says more than blanks.
fn indent(depth: u64) -> String {
    const DEEPEST: usize = 24;
    match usize::try_from(depth) {
        Ok(depth) if depth <= DEEPEST => " ".repeat(depth),
        _ => format!("{}{depth}: ", " ".repeat(DEEPEST)),
    }
}

/// One path a row: its numbers, then its functions over as many lines as they need.
fn whole(rows: &[PathRow], shares: &[String], unit: &str, terminal: Terminal) -> Vec<String> {
    let amounts: Vec<String> = rows.iter().map(|row| quantity::value(row.own as f64, unit)).collect();
    let widest = |cells: &[String]| cells.iter().map(|cell| width(cell)).max().unwrap_or(0);
    let (share_width, amount_width) = (widest(shares), widest(&amounts));
    let path = |((row, share), amount): ((&PathRow, &String), &String)| {
        let first = format!("{share:>share_width$}  {amount:>amount_width$}  ");
        hang_items(&first, &names_of(row), " → ", terminal.width)
    };
    rows.iter().zip(shares).zip(&amounts).flat_map(path).collect()
}

/// The functions of a path, with marks where some are left out.
fn names_of(row: &PathRow) -> Vec<String> {
    let mut names = row.path.clone();
    // From the end, so that the places of the others stay.
    for gap in row.omitted.iter().rev() {
        if let Some(after) = usize::try_from(gap.after).ok().filter(|&after| after <= names.len()) {
            names.insert(after, format!("… {} more …", gap.functions));
        }
    }
    names
}
