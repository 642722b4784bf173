//! `uhr call-paths` for people: a tree of callers or callees, or whole paths.

use uhr_model::Dimension;
use uhr_query::answers::{CallPathsAnswer, Direction, PathRow, Paths, TreeRow};

use super::table::{Column, Table};
use super::wrap::{hang, wrap};
use super::{answer, quantity};
use crate::terminal::Terminal;
use crate::text::clean::width;

/// The answer's lines.
pub(crate) fn lines(paths: &CallPathsAnswer, terminal: Terminal) -> Vec<String> {
    let mut lines = answer::head(&paths.recording, Some(&paths.metric), &paths.request.filters, terminal);
    lines.extend(wrap(&function_in_words(paths), terminal.width));
    lines.push(String::new());
    let unit = paths.metric.unit.as_str();
    match &paths.rows {
        Paths::Tree(rows) => {
            lines.extend(tree(rows, unit).lines(terminal, 0));
            lines.extend(answer::interval_notes(rows.iter().map(|row| row.interval_note), terminal));
        }
        Paths::Whole(rows) => {
            lines.extend(rows.iter().flat_map(|row| path(row, unit, terminal)));
            lines.extend(answer::interval_notes(rows.iter().map(|row| row.interval_note), terminal));
        }
    }
    lines.push(String::new());
    lines.extend(answer::shown(&paths.shown));
    lines.extend(answer::coverage(&paths.coverage, &paths.metric.name, terminal));
    lines.extend(answer::next(&paths.next, terminal));
    lines
}

fn function_in_words(paths: &CallPathsAnswer) -> String {
    let totals = &paths.function;
    let unit = paths.metric.unit.as_str();
    let name = name_of(&totals.key);
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

fn tree(rows: &[TreeRow], unit: &str) -> Table {
    let amount = if unit == "ns" { "time" } else { unit };
    let mut table = Table::new([
        (Column::Number, "total"),
        (Column::Extra, amount),
        (Column::Extra, "self"),
        (Column::Name, "function"),
        (Column::Path, "module"),
    ]);
    let shares = answer::share_cells(
        rows.iter().map(|row| (row.total_share, row.total_share_ci95, row.interval_note)),
    );
    for (row, share) in rows.iter().zip(shares) {
        // Past a depth that fits a line the number says more than blanks.
        let depth = usize::try_from(row.depth).unwrap_or(usize::MAX);
        let indent = if depth <= 16 { "  ".repeat(depth) } else { format!("{}{depth}: ", "  ".repeat(16)) };
        let cell = |dimension| row.key.get(dimension).map(ToString::to_string).unwrap_or_default();
        table.row([
            share,
            quantity::value(row.total as f64, unit),
            quantity::share(row.self_share),
            format!("{indent}{}", cell(Dimension::Function)),
            cell(Dimension::Module),
        ]);
    }
    table
}

fn path(row: &PathRow, unit: &str, terminal: Terminal) -> Vec<String> {
    let share = answer::interval((row.self_share, row.self_share_ci95, row.interval_note));
    let first = format!("{share:>12}  {:>8}  ", quantity::value(row.own as f64, unit));
    let mut names = row.path.clone();
    if let Some(after) =
        row.omitted_after.and_then(|after| usize::try_from(after).ok()).filter(|&at| at <= names.len())
    {
        names.insert(after, format!("… {} more …", row.omitted));
    }
    debug_assert!(width(&first) < terminal.width, "the narrowest terminal has room for the numbers");
    hang(&first, &names.join(" → "), terminal.width)
}

fn name_of(key: &uhr_query::answers::Key) -> String {
    let function = key.get(Dimension::Function).map(ToString::to_string).unwrap_or_default();
    match key.get(Dimension::Module) {
        Some(module) => format!("{function} ({module})"),
        None => function,
    }
}
