//! Whether a planted share of CPU time lies where uhr says it does.

use serde_json::Value;

use crate::harness::{Recorded, find, number, row, rows};

/// Fails unless the true share lies in the printed interval. A 95 % interval is wrong once in twenty by its nature, and
/// there are a hundred of them here: it is stretched to twice its width, which is wrong once in ten thousand. How often
/// the printed one holds the truth is tested apart (`intervals.rs`).
pub(crate) fn assert_share(what: &str, printed: &Value, kind: &str, truth: f64) {
    let [low, high] = interval(printed, kind);
    if printed["interval_note"] == "long-phases" {
        // Three in a hundred rows say so by chance; the share is still right.
        let share = printed[format!("{kind}_share")].as_f64().unwrap();
        assert!((share - truth).abs() < 0.06, "{what}: {share}, and the truth is {truth}");
        return;
    }
    assert!(high - low < 0.2, "{what}: an interval of [{low}, {high}] says nothing");
    let share = printed[format!("{kind}_share")].as_f64().unwrap();
    let (below, above) = (share - low + 0.003, high - share + 0.003);
    assert!(
        (share - 2.0 * below..=share + 2.0 * above).contains(&truth),
        "{what}: {share} in [{low}, {high}], and the truth is {truth}"
    );
}

/// The printed 95 % interval of a row.
pub(crate) fn interval(row: &Value, kind: &str) -> [f64; 2] {
    let printed = &row[format!("{kind}_share_ci95")];
    [printed[0].as_f64().unwrap(), printed[1].as_f64().unwrap()]
}

/// Holds the total shares of functions against what the program says. `functions`: the name that uhr shows, and its name
/// in the program's truth.
pub(crate) fn assert_totals(recorded: &Recorded, functions: &[(&str, &str)]) {
    let truth = recorded.truth();
    let answer = recorded.ask("query --group-by function --limit 1000");
    let all = truth["cpu_ns"].as_f64().unwrap();
    for (shown, name) in functions {
        let share = truth[name].as_f64().unwrap() / all;
        assert_share(shown, row(&answer, "function", shown), "total", share);
    }
}

/// The share of a function's own time that uhr puts on one of its lines.
pub(crate) fn share_of_line(answer: &Value, function: &str, line: u64) -> f64 {
    let of = |row: &&Value| row["key"]["function"] == function;
    let own = |row: &Value| row["self"].as_f64().unwrap();
    let all: f64 = rows(answer).iter().filter(of).map(own).sum();
    let at: f64 = rows(answer).iter().filter(of).filter(|row| row["key"]["line"] == line).map(own).sum();
    at / all
}

/// Fails unless `share` of the function's own time is on that line, give or take a tenth.
pub(crate) fn assert_line(recorded: &Recorded, function: &str, line: u64, share: f64) {
    let answer = recorded.ask("query --group-by function,line --limit 1000");
    let seen = share_of_line(&answer, function, line);
    assert!(
        (seen - share).abs() <= 0.1,
        "{function}:{line}: {seen} of its own time, not {share}: {answer:#}"
    );
}

/// Fails unless 99 % of the samples have whole stacks, and as much of the time lies below `bottom`.
pub(crate) fn assert_whole(recorded: &Recorded, bottom: &str) {
    assert_bottom(recorded, bottom, 0.985);
    let answer = recorded.ask("query --group-by function --limit 1");
    let whole = number(&answer["coverage"], "stacks_complete_share");
    assert!(whole >= 0.99, "{:#}", answer["coverage"]);
}

/// Fails unless that share of the time lies below `bottom`.
pub(crate) fn assert_bottom(recorded: &Recorded, bottom: &str, least: f64) {
    let answer = recorded.ask("query --group-by function --limit 1000");
    let below = number(row(&answer, "function", bottom), "total_share");
    // Kernel time that may not be looked into has no stack.
    let hidden =
        find(&answer, "function", "[kernel, not visible]").map_or(0.0, |row| number(row, "self_share"));
    assert!(below + hidden >= least, "{below} of the time is below {bottom}: {answer:#}");
}

/// The path that most of a function's time was spent on, from the thread's first function to the leaf.
pub(crate) fn main_path(recorded: &Recorded, function: &str) -> (Vec<String>, f64) {
    let answer = recorded.ask(&format!("call-paths --function {function} --detail full"));
    let first = &rows(&answer)[0];
    let path = first["path"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned());
    (path.collect(), first["self_share"].as_f64().unwrap())
}

/// Fails unless nearly all of a function's time was spent on exactly this path, counted from `path[0]` on.
pub(crate) fn assert_path(recorded: &Recorded, function: &str, path: &[&str]) {
    let (seen, _) = main_path(recorded, function);
    let from = seen.iter().position(|name| name == path[0]).unwrap_or_else(|| panic!("{seen:?}"));
    assert_eq!(seen[from..], *path, "{seen:?}");
    // What it calls, and what interrupts it, lies on the same path.
    let answer = recorded.ask(&format!("call-paths --function {function} --detail full --limit 1000"));
    let begins = |row: &&Value| {
        let names: Vec<&str> = row["path"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        names.len() >= seen.len() && names.iter().zip(&seen).all(|(name, of)| name == of)
    };
    let share: f64 = rows(&answer).iter().filter(begins).map(|row| number(row, "self_share")).sum();
    assert!(share >= 0.95, "{share} of the time of {function} is on {seen:?}");
}
