//! Stacks of waits are taken by a clock and by lot. What they stand for must not depend on how long the waits are.

use serde_json::Value;

use crate::harness::{Place, Recorded, Who, assert_near, has_ebpf, number, row, rows};
use crate::shares::interval;

/// Threads that wait for all lengths by one system call.
const MIXED: &[(&str, &[&str])] = &[
    ("napper", &["naps_100us", "naps_1ms", "naps_10ms", "naps_100ms"]),
    ("worder", &["word_100us", "word_1ms", "word_10ms", "word_100ms"]),
];

fn by_function(recorded: &Recorded, thread: &str) -> Value {
    recorded.ask(&format!("query --metric off-cpu --group-by function --limit 1000 --thread {thread}"))
}

/// The function's true time lies in the printed interval, stretched to twice its width (see `assert_share`), or is 5 %
/// off at most.
fn assert_function(answer: &Value, truth: &Value, all_ns: f64, function: &str) {
    let seen = row(answer, "function", function);
    let (share, true_share) = (number(seen, "total_share"), number(truth, function) / all_ns);
    let [low, high] = interval(seen, "total");
    let is_wide = high - low > 0.5;
    let holds = (2.0 * low - share..=2.0 * high - share).contains(&true_share);
    let is_close = (share / true_share - 1.0).abs() <= 0.05;
    let is_near = (share - true_share).abs() < 0.12;
    assert!(
        is_close || (holds && !is_wide) || (is_wide && is_near),
        "{function}: {share} in [{low}, {high}], and the truth is {true_share}"
    );
}

/// What uhr itself puts on a stack to read it is no function that waits.
fn assert_ends_where_it_waits(answer: &Value) {
    let is_own =
        |name: &str| name.starts_with("bpf_") || name.starts_with("[kernel]+") || name == "__schedule";
    let own = rows(answer).iter().filter(|row| row["key"]["function"].as_str().is_some_and(is_own));
    let share: f64 = own.map(|row| number(row, "self_share")).sum();
    assert!(share < 0.01, "{share} of the waits end in what reads their stacks: {answer:#}");
}

#[test]
fn waits_of_all_lengths_have_their_shares() {
    if has_ebpf() {
        assert_shares(&Place::new());
    }
}

/// Before 5.18 stacks of waits are read from outside.
#[test]
fn waits_of_all_lengths_have_their_shares_by_older_programs() {
    if !has_ebpf() {
        return;
    }
    let place = Place::with_older_programs();
    let Some(recorded) = assert_shares(&place) else { return };
    let notes = recorded.ask("query")["coverage"]["notes"].to_string();
    assert!(notes.contains("no user stacks of waits read in the kernel, but read from outside"), "{notes}");
}

fn assert_shares(place: &Place) -> Option<Recorded> {
    let program = place.c("lengths.c", &[]);
    let recorded = place.record(Who::Us, "rec", &["--sampler", "ebpf"], &[&program, &"7"]).or_skip()?;
    let truth = recorded.truth();
    for (thread, functions) in MIXED {
        let truth = &truth[thread];
        let away: f64 = functions.iter().map(|function| number(truth, function)).sum();
        let answer = by_function(&recorded, thread);
        let seen = number(&answer["metric"], "total");
        let least = away - number(truth, "delay_ns");
        assert!(
            least * 0.98 <= seen && seen <= away * 1.02,
            "{thread}: {seen}, and it was {least} to {away}"
        );
        assert_ends_where_it_waits(&answer);
        functions.iter().for_each(|function| assert_function(&answer, truth, away, function));
    }
    // A thread that keeps step with the clock, and one whose waits are longer than any look is away.
    for (thread, function) in [("in-step", "naps_exactly_10ms"), ("sleeper", "naps_1s")] {
        let answer = by_function(&recorded, thread);
        let seen = number(row(&answer, "function", function), "total");
        let away = number(&truth[thread], function) - number(&truth[thread], "delay_ns") / 2.0;
        assert_near(function, seen, away, 0.03);
    }
    Some(recorded)
}
