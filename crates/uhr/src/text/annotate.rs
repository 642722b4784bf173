//! `uhr annotate` for people: lines with their text, or instructions under the lines that they were made from.

use uhr_query::answers::{AnnotateAnswer, Annotated, InstructionRow, LineRow};

use super::clean::{clean, cut_end};
use super::query::key_text;
use super::table::{Column, Table};
use super::wrap::{hang, wrap};
use super::{answer, quantity};
use crate::terminal::Terminal;

/// The answer's lines.
pub(crate) fn lines(annotated: &AnnotateAnswer, terminal: Terminal) -> Vec<String> {
    let mut lines =
        answer::head(&annotated.recording, Some(&annotated.metric), &annotated.request.filters, terminal);
    lines.extend(wrap(&function_in_words(annotated), terminal.width));
    lines.push(String::new());
    let unit = annotated.metric.unit.as_str();
    match &annotated.rows {
        Annotated::Lines(rows) => {
            lines.extend(source_lines(rows, unit, terminal));
            lines.extend(answer::interval_notes(rows.iter().map(|row| row.interval_note), terminal));
        }
        Annotated::Instructions(rows) => {
            lines.extend(instructions(rows, terminal));
            let notes = rows.iter().filter(|row| row.self_share.is_some()).map(|row| row.interval_note);
            lines.extend(answer::interval_notes(notes, terminal));
        }
    }
    lines.push(String::new());
    lines.extend(answer::shown(&annotated.shown, true));
    for source in &annotated.sources {
        if let Some(why) = source.absent {
            let sentence = format!("no text of {}: {why}", source.file);
            lines.extend(hang("source: ", &sentence, terminal.width));
        }
    }
    lines.extend(answer::coverage_in_short(&annotated.coverage, &annotated.metric.name, terminal));
    lines.extend(answer::next(&annotated.next, terminal));
    lines
}

fn function_in_words(annotated: &AnnotateAnswer) -> String {
    let totals = &annotated.function;
    let unit = annotated.metric.unit.as_str();
    let what = match annotated.rows {
        Annotated::Lines(_) => "lines of",
        Annotated::Instructions(_) => "instructions of",
    };
    format!(
        "{what} {}: self {} ({}), with callees {} ({}); shares below are of the latter",
        key_text(&totals.key),
        quantity::share(totals.self_share),
        quantity::value(totals.own as f64, unit),
        answer::interval((totals.total_share, totals.total_share_ci95, totals.interval_note)),
        quantity::value(totals.total as f64, unit),
    )
}

/// Lines under the names of their files.
fn source_lines(rows: &[LineRow], unit: &str, terminal: Terminal) -> Vec<String> {
    let amount = if unit == "ns" { "time" } else { unit };
    let own =
        answer::share_cells(rows.iter().map(|row| (row.self_share, row.self_share_ci95, row.interval_note)));
    let total = answer::share_cells(
        rows.iter().map(|row| (row.total_share, row.total_share_ci95, row.interval_note)),
    );
    let columns = [
        (Column::Number, "self"),
        (Column::Extra, amount),
        (Column::Number, "total"),
        (Column::Number, "line"),
        (Column::Name, "source"),
    ];
    let mut table = Table::new(columns);
    for ((row, own), total) in rows.iter().zip(own).zip(total) {
        let line = row.line.map_or_else(|| "?".to_owned(), |line| line.to_string());
        let text = row.text.clone().unwrap_or_default();
        table.row([own, quantity::value(row.own as f64, unit), total, line, text]);
    }
    let mut all = table.lines(terminal, 0).into_iter();
    let mut lines: Vec<String> = all.next().into_iter().collect();
    let mut file = None;
    for (row, line) in rows.iter().zip(all) {
        if file != Some(&row.file) {
            let name = row.file.as_deref().unwrap_or("[no line information]");
            lines.push(terminal.dim(&clean(name)));
            file = Some(&row.file);
        }
        lines.push(line);
    }
    lines
}

/// Instructions under the lines that they were made from, with marks at the targets of jumps.
fn instructions(rows: &[InstructionRow], terminal: Terminal) -> Vec<String> {
    let share = |row: &InstructionRow| row.self_share.unwrap_or_default();
    let costly = || rows.iter().filter(|row| row.self_share.is_some());
    let no_interval = [0.0, 0.0];
    let own = answer::share_cells(
        costly().map(|row| (share(row), row.self_share_ci95.unwrap_or(no_interval), row.interval_note)),
    );
    let total = answer::share_cells(costly().map(|row| {
        let total = row.total_share.unwrap_or_default();
        (total, row.total_share_ci95.unwrap_or(no_interval), row.interval_note)
    }));
    let mut cells = own.into_iter().zip(total);
    let columns = [
        (Column::Number, "self"),
        (Column::Extra, "total"),
        (Column::Number, "address"),
        (Column::Name, "bytes"),
        (Column::Name, ""),
        (Column::Name, "instruction"),
    ];
    let mut table = Table::new(columns);
    for row in rows {
        let (own, total) =
            if row.self_share.is_some() { cells.next().unwrap_or_default() } else { Default::default() };
        let address = row.address.trim_start_matches("0x").to_owned();
        let mark = if row.is_target { "»" } else { "" };
        let bytes = row.bytes.clone().unwrap_or_default();
        let text = row.text.clone().unwrap_or_else(|| "[no code]".to_owned());
        table.row([own, total, address, bytes, mark.to_owned(), format!("{text}{}", direction(row))]);
    }
    let mut all = table.lines(terminal, 0).into_iter();
    let mut lines: Vec<String> = all.next().into_iter().collect();
    let mut heading = None;
    for (row, line) in rows.iter().zip(all) {
        if row.omitted_before > 0 {
            lines.push(terminal.dim(&format!("… {} …", answer::plural(row.omitted_before, "instruction"))));
        }
        let place = (&row.file, row.line, &row.inlined_from);
        if let Some(words) = place_in_words(row)
            && heading != Some(place)
        {
            lines.push(terminal.dim(&cut_end(&clean(&words), terminal.width)));
            heading = Some(place);
        }
        lines.push(line);
    }
    lines
}

/// Which way a jump inside of the function goes.
fn direction(row: &InstructionRow) -> &'static str {
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or_default();
    match &row.jump {
        Some(target) if number(target) <= number(&row.address) => " ↑",
        Some(_) => " ↓",
        None => "",
    }
}

/// The line that an instruction was made from: `parse.c:12  x /= y;  (inlined from f)`.
fn place_in_words(row: &InstructionRow) -> Option<String> {
    let file = row.file.as_deref().map(|file| file.rsplit('/').next().unwrap_or(file))?;
    let line = row.line.map_or_else(|| "?".to_owned(), |line| line.to_string());
    let source = row.source.as_deref().map(|text| format!("  {}", text.trim_start())).unwrap_or_default();
    let inlined =
        row.inlined_from.as_deref().map(|name| format!("  (inlined from {name})")).unwrap_or_default();
    Some(format!("{file}:{line}{inlined}{source}"))
}
