//! Tens of thousands of different stacks: none takes the place of another, and what is lost is told.

use std::process::Command;

use crate::harness::{Place, Who, assert_near, has_ebpf, number, row};

#[test]
fn the_hottest_of_thirty_thousand_stacks() {
    if has_ebpf() {
        check("ebpf");
    }
}

#[test]
fn the_hottest_of_thirty_thousand_stacks_by_perf_events() {
    check("perf");
}

fn check(sampler: &str) {
    let place = Place::new();
    let program = place.c("many_stacks.c", &[]);
    let recorded = place.record(Who::Us, "rec", &["--sampler", sampler], &[&program, &"3"]);
    let Some(recorded) = recorded.or_skip() else { return };
    let truth = recorded.truth();
    let answer = recorded.ask("query --under main --group-by function --limit 1000");
    let [hot, cold] =
        ["hot_path", "cold_paths"].map(|name| number(row(&answer, "function", name), "total_samples"));
    let planted = number(&truth, "hot_path") / number(&truth, "cold_paths");
    assert_near("hot to cold", hot / cold, planted, 0.06);
    assert_eq!(number(&answer["coverage"], "lost"), 0.0, "{answer:#}");

    // No stack has a call that the source has not.
    let export = Command::new(env!("CARGO_BIN_EXE_uhr"))
        .args(["export", "--format", "collapsed"])
        .arg(&recorded.rec)
        .output()
        .unwrap();
    let text = String::from_utf8(export.stdout).unwrap();
    let is_step = |name: &str| name.strip_prefix("step").is_some_and(|n| n.len() == 1);
    let mut steps = 0;
    for line in text.lines() {
        let (path, _count) = line.rsplit_once(' ').unwrap();
        let frames: Vec<&str> = path.split(';').collect();
        for call in frames.windows(2).filter(|call| is_step(call[1])) {
            assert!(is_step(call[0]) || call[0] == "cold_paths", "{call:?} in {line}");
        }
        if frames.contains(&"leaf") && frames.contains(&"cold_paths") {
            assert_eq!(frames.iter().filter(|frame| is_step(frame)).count(), 13, "{line}");
            steps += 1;
        }
    }
    assert!(steps > 500, "{steps} different stacks");
}
