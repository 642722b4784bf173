//! `uhr call-paths --wakers` for people: one chain a row, from the thread that waited back to what began it.

use uhr_query::answers::{KeyValue, WakerChain, WakerChainsAnswer};

use super::clean::width;
use super::query::key_cell;
use super::wrap::{hang_items, wrap};
use super::{answer, quantity};
use crate::terminal::Terminal;

/// The answer's lines.
pub(crate) fn lines(chains: &WakerChainsAnswer, terminal: Terminal) -> Vec<String> {
    let mut lines = answer::head(&chains.recording, Some(&chains.metric), &chains.request.filters, terminal);
    lines.extend(wrap(
        "who waited, ← what ended the wait, ← what had ended that one's own last wait",
        terminal.width,
    ));
    lines.push(String::new());
    if chains.rows.is_empty() {
        lines.push("nothing fits".to_owned());
    }
    lines.extend(rows(&chains.rows, terminal));
    lines.extend(answer::interval_notes(chains.rows.iter().map(|row| row.interval_note), terminal));
    lines.push(String::new());
    lines.extend(answer::shown(&chains.shown, true));
    lines.extend(answer::coverage_in_short(&chains.coverage, &chains.metric.name, terminal));
    lines.extend(answer::next(&chains.next, terminal));
    lines
}

fn rows(rows: &[WakerChain], terminal: Terminal) -> Vec<String> {
    let shares = rows.iter().map(|row| (row.self_share, row.self_share_ci95, row.interval_note));
    let shares = answer::share_cells(shares);
    let times: Vec<String> = rows.iter().map(|row| quantity::time(row.own as f64)).collect();
    let widest = |cells: &[String]| cells.iter().map(|cell| width(cell)).max().unwrap_or(0);
    let (share_width, time_width) = (widest(&shares), widest(&times));
    let chain = |((row, share), time): ((&WakerChain, &String), &String)| {
        let first = format!("{share:>share_width$}  {time:>time_width$}  ");
        hang_items(&first, &steps(row), " ← ", terminal.width)
    };
    rows.iter().zip(&shares).zip(&times).flat_map(chain).collect()
}

/// The steps of a chain: a thread with what it waited for, then its wakers, the first with where it was.
fn steps(row: &WakerChain) -> Vec<String> {
    let mut steps = vec![format!("{}: {}", key_cell(&row.waiter), row.wait)];
    for (hop, waker) in row.woken_by.iter().enumerate() {
        let place = row.waker_function.as_ref().filter(|_| hop == 0);
        let place = place.map_or(String::new(), |function| format!(" in {function}"));
        steps.push(format!("{}{place}", key_cell(waker)));
    }
    if row.woken_by.is_empty() {
        steps.push(key_cell(&KeyValue::Unknown));
    }
    if row.is_cut {
        steps.push("…".to_owned());
    }
    steps
}
