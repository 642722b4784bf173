//! `uhr query` for people: one row a group.

use uhr_model::{Dimension, DimensionKind};
use uhr_query::answers::{CountedRow, Key, KeyValue, QueryAnswer, ResidentBytes, Rows};

use super::table::{Column, Table};
use super::{answer, quantity};
use crate::args::Detail;
use crate::terminal::Terminal;

/// The answer's lines.
pub(crate) fn lines(query: &QueryAnswer, detail: Detail, terminal: Terminal) -> Vec<String> {
    let mut lines = answer::head(&query.recording, Some(&query.metric), &query.request.filters, terminal);
    lines.push(String::new());
    // Names are given whole then, at any length.
    let page = if detail == Detail::Full { Terminal { width: usize::MAX, ..terminal } } else { terminal };
    if query.rows.is_empty() {
        lines.push(match query.shown.of {
            0 => "nothing fits".to_owned(),
            of => format!("no rows after {}", quantity::count(of as f64)),
        });
    }
    match &query.rows {
        rows if rows.is_empty() => (),
        Rows::Counted(rows) => {
            lines.extend(counted(query, rows, detail).lines(page, 0));
            lines.extend(answer::interval_notes(rows.iter().map(|row| row.interval_note), terminal));
        }
        Rows::Resident(rows) => lines.extend(resident(rows).lines(page, 0)),
    }
    lines.push(String::new());
    if !query.rows.is_empty() {
        lines.extend(answer::shown(&query.shown, matches!(query.rows, Rows::Counted(_))));
    }
    lines.extend(answer::coverage_in_short(&query.coverage, &query.metric.name, terminal));
    lines.extend(answer::next(&query.next, terminal));
    lines
}

fn counted(query: &QueryAnswer, rows: &[CountedRow], detail: Detail) -> Table {
    let unit = query.metric.unit.as_str();
    let amount = if unit == "ns" { "time" } else { unit };
    let full = detail == Detail::Full;
    let dimensions = dimensions(rows.iter().map(|row| &row.key));
    // Of a whole sample self and total are one thing.
    let has_total = dimensions.iter().any(|dimension| dimension.kind() == DimensionKind::Frame);
    let mut columns = Vec::new();
    if has_total {
        columns.extend([(Column::Number, "self"), (Column::Extra, amount), (Column::Extra, "total")]);
    } else {
        columns.extend([(Column::Number, "share"), (Column::Extra, amount)]);
    }
    if full && has_total {
        columns.extend([amount, "self samples", "total samples"].map(|heading| (Column::Extra, heading)));
    } else if full {
        columns.push((Column::Extra, "samples"));
    }
    columns.extend(dimensions.iter().map(|&dimension| (column_of(dimension), heading(dimension))));
    let mut table = Table::new(columns);
    let own =
        answer::share_cells(rows.iter().map(|row| (row.self_share, row.self_share_ci95, row.interval_note)));
    let total = answer::share_cells(
        rows.iter().map(|row| (row.total_share, row.total_share_ci95, row.interval_note)),
    );
    for ((row, own), total) in rows.iter().zip(own).zip(total) {
        let mut cells = vec![own, quantity::value(row.own as f64, unit)];
        if has_total {
            cells.push(total);
        }
        if full && has_total {
            cells.extend([
                quantity::value(row.total as f64, unit),
                count(row.self_samples),
                count(row.total_samples),
            ]);
        } else if full {
            cells.push(count(row.self_samples));
        }
        table.row(cells.into_iter().chain(key_cells(&row.key, &dimensions)));
    }
    table
}

fn count(count: u64) -> String {
    quantity::count(count as f64)
}

fn resident(rows: &[ResidentBytes]) -> Table {
    let dimensions = dimensions(rows.iter().map(|row| &row.key));
    let numbers = ["min", "mean", "max", "last"].map(|heading| (Column::Extra, heading));
    let names = dimensions.iter().map(|&dimension| (column_of(dimension), heading(dimension)));
    let mut table = Table::new(numbers.into_iter().chain(names));
    for row in rows {
        let bytes = [row.min, row.mean, row.max, row.last].map(|bytes| quantity::bytes(bytes as f64));
        table.row(bytes.into_iter().chain(key_cells(&row.key, &dimensions)));
    }
    table
}

/// The dimensions of all keys, in the order of the first that has each: a marker such as `[too short to sample]` stands
/// without its module.
fn dimensions<'a>(keys: impl Iterator<Item = &'a Key>) -> Vec<Dimension> {
    let mut all = Vec::new();
    for (dimension, _) in keys.flat_map(|key| &key.0) {
        if !all.contains(dimension) {
            all.push(*dimension);
        }
    }
    all
}

/// Of a part of time the key is where it begins.
fn heading(dimension: Dimension) -> &'static str {
    if dimension == Dimension::Time { "from" } else { dimension.name() }
}

fn column_of(dimension: Dimension) -> Column {
    match dimension {
        Dimension::File => Column::Path,
        Dimension::Line | Dimension::Time => Column::Number,
        _ => Column::Name,
    }
}

fn key_cells(key: &Key, dimensions: &[Dimension]) -> Vec<String> {
    let mut cells: Vec<String> = Vec::new();
    for &dimension in dimensions {
        let cell = match (dimension, key.get(dimension)) {
            // Whose file is unknown has no line either: once is enough.
            (Dimension::Line, Some(KeyValue::Unknown)) | (_, None) => String::new(),
            (_, Some(value)) => key_cell(value),
        };
        let is_repeated = is_marker(&cell) && cells.contains(&cell);
        cells.push(if is_repeated { String::new() } else { cell });
    }
    cells
}

/// A key in one phrase: `parse_json (app)`.
pub(crate) fn key_text(key: &Key) -> String {
    let mut text = String::new();
    for (_, value) in &key.0 {
        let cell = key_cell(value);
        if text.is_empty() {
            text = cell;
        } else if text != cell {
            text = format!("{text} ({cell})");
        }
    }
    text
}

/// Whether it stands for what has no name, such as `[too short to sample]`, which is said once a row.
fn is_marker(cell: &str) -> bool {
    cell.starts_with('[')
}

/// A key as a cell.
pub(crate) fn key_cell(value: &KeyValue) -> String {
    match value {
        KeyValue::Process { start_s: Some(start), .. } | KeyValue::Thread { start_s: Some(start), .. } => {
            format!("{value} from {}", quantity::time(start * 1e9))
        }
        KeyValue::Seconds(seconds) => quantity::time(seconds * 1e9),
        _ => value.to_string(),
    }
}
