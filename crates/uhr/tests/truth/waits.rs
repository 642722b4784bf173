//! Time off CPU: how long threads slept and waited, for what, and which function waited.

use serde_json::Value;

use crate::harness::{Place, Recorded, Who, find, number, row, rows};

/// Each thread of the program, the function that it waits in, and what for.
const WAITS: &[(&str, &str, &str)] = &[
    ("sleeper", "naps_here", "sleep"),
    ("locker", "waits_for_lock", "lock"),
    ("conditioner", "waits_for_condition", "lock"),
    ("piper", "waits_for_pipe", "pipe"),
    ("parent", "waits_for_child", "child"),
];

fn record(who: Who, sampler: &str) -> Option<Recorded> {
    let place = Place::new();
    let program = place.c("waits.c", &[]);
    let recorded = place.record(who, "rec", &["--sampler", sampler], &[&program]).or_skip()?;
    check_threads(&recorded);
    check_functions(&recorded);
    check_kinds(&recorded, who);
    Some(recorded)
}

/// The program knows how long it waited, and how long it then had to wait for a CPU: uhr may count the latter or not.
fn assert_waited(what: &str, seen: f64, truth: &Value) {
    let (least, most) = (number(truth, "least_ns"), number(truth, "most_ns"));
    assert!(least * 0.98 <= seen && seen <= most * 1.02, "{what}: {seen}, and it was {least} to {most}");
}

fn check_threads(recorded: &Recorded) {
    let answer = recorded.ask("query --metric off-cpu --group-by thread --limit 100");
    for (thread, _, _) in WAITS {
        let seen = row(&answer, "thread", thread)["self"].as_f64().unwrap();
        assert_waited(thread, seen, &recorded.truth()[thread]);
    }
}

fn check_functions(recorded: &Recorded) {
    for (thread, function, _) in WAITS {
        let of_thread = format!("query --metric off-cpu --group-by function --limit 1000 --thread {thread}");
        let answer = recorded.ask(&of_thread);
        let seen = row(&answer, "function", function)["total"].as_f64().unwrap();
        assert_waited(function, seen, &recorded.truth()[thread]);
    }
}

fn check_kinds(recorded: &Recorded, who: Who) {
    for (thread, _, kind) in WAITS {
        let answer = recorded.ask(&format!("query --metric off-cpu --group-by wait --thread {thread}"));
        let first = rows(&answer)[0]["key"]["wait"].as_str().unwrap();
        // Of a read from outside only the system call is seen, and not what kind of file it reads.
        let is_told = first == *kind || (who.is_ordinary() && *kind == "pipe" && first == "other");
        assert!(is_told, "{thread} waits for {first}, not {kind}: {answer:#}");
    }
}

#[test]
fn waits_have_their_lengths_kinds_and_functions() {
    record(Who::Us, "auto");
}

#[test]
fn waits_by_perf_events() {
    record(Who::Us, "perf");
}

#[test]
fn an_ordinary_user_sees_waits_with_the_functions_too() {
    record(Who::Ordinary, "auto");
}

#[test]
fn a_sleeper_is_not_busy() {
    let place = Place::new();
    let recorded = place.record(Who::Us, "rec", &[], &[&"sleep", &"1"]);
    let Some(recorded) = recorded.or_skip() else { return };
    let cpu = recorded.ask("query --group-by thread");
    assert!(cpu["metric"]["total"].as_f64().unwrap() < 0.1e9, "{cpu:#}");
    let waits = recorded.ask("query --metric off-cpu --group-by thread");
    let slept = find(&waits, "thread", "sleep").unwrap()["self"].as_f64().unwrap();
    assert!((0.99e9..1.5e9).contains(&slept), "{slept}");
    let overview = recorded.ask("overview");
    assert_eq!(overview["activity"]["verdict"], "waiting", "{:#}", overview["activity"]);
}
