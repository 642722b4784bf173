//! Threads and children that are too short to be sampled: their time on CPU is exact all the same.

use crate::harness::{Place, Who, number};

fn time_is_exact(who: Who, sampler: &str, kind: &str, count: &str) {
    let place = Place::new();
    let program = place.c("short.c", &[]);
    let summary = place.path("summary.json");
    let options = ["--sampler", sampler, "--summary", summary.to_str().unwrap()];
    let recorded = place.record(who, "rec", &options, &[&program, &kind, &count]);
    let Some(recorded) = recorded.or_skip() else { return };
    let answer = recorded.ask("query --group-by command");
    let (truth, seen) = (recorded.truth(), number(&answer["metric"], "total"));
    let (least, most) = (number(&truth, "least_ns"), number(&truth, "most_ns"));
    assert!(least * 0.98 <= seen && seen <= most * 1.02, "{seen} ns on CPU, and it was {least} to {most}");
    let summary: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(summary).unwrap()).unwrap();
    let expected = count.parse::<u64>().unwrap() + 1;
    assert_eq!(summary["threads"], expected, "{summary:#}");
    let processes = if kind == "children" { expected } else { 1 };
    assert_eq!(summary["processes"], processes, "{summary:#}");
    assert_eq!(summary["lost"], 0);
}

#[test]
fn two_hundred_short_threads() {
    time_is_exact(Who::Us, "auto", "threads", "200");
}

#[test]
fn two_hundred_short_threads_by_perf_events() {
    time_is_exact(Who::Us, "perf", "threads", "200");
}

#[test]
fn two_hundred_short_threads_of_an_ordinary_user() {
    time_is_exact(Who::Ordinary, "auto", "threads", "200");
}

#[test]
fn two_thousand_children() {
    time_is_exact(Who::Us, "auto", "children", "2000");
}

#[test]
fn a_thousand_children_of_an_ordinary_user() {
    time_is_exact(Who::Ordinary, "auto", "children", "1000");
}
