//! A running process with threads and children that come and go, recorded by one and by two at once.

use serde_json::Value;
use std::process::Command;

use crate::harness::{Place, Recorded, Running, Who, assert_near, find, has_ebpf, number, row, wait_until};

fn steady_is_right(recorded: &Recorded) {
    let answer = recorded.ask("query --group-by function --thread steady --limit 1000");
    for (function, share) in [("twice", 2.0 / 3.0), ("once", 1.0 / 3.0)] {
        let seen = number(row(&answer, "function", function), "total_share");
        // On a busy machine it gets a CPU for a few hundred samples only.
        assert!((seen - share).abs() < 0.1, "{function}: {seen}, and the truth is {share}");
    }
    // Whatever the machine was busy with: it ran, or waited for a CPU, all the time.
    let of = |metric: &str| {
        let answer = recorded.ask(&format!("query --metric {metric} --group-by thread-name --limit 100"));
        find(&answer, "thread-name", "steady").map_or(0.0, |row| number(row, "self"))
    };
    let all = of("cpu") + of("runqueue") + of("off-cpu");
    assert_near("steady", all, number(&answer["recording"], "duration_s") * 1e9, 0.05);
}

/// New threads and children belong to it.
fn newcomers_are_there(recorded: &Recorded) {
    let answer = recorded.ask("query --group-by thread-name --limit 100");
    let names: Vec<&Value> = ["newborn", "child"].map(|name| row(&answer, "thread-name", name)).to_vec();
    assert!(names.iter().all(|row| number(row, "self") > 0.0), "{answer:#}");
}

#[test]
fn two_at_once_record_a_running_process() {
    if !has_ebpf() {
        return;
    }
    let place = Place::new();
    let program = place.c("crew.c", &[]);
    let crew = Running::program(&place, "crew", Command::new(&program).arg("20"));
    wait_until("it runs", || crew.said().contains("it runs"));
    let pid = crew.pid().to_string();
    let options = ["--sampler", "ebpf", "--duration", "2s", "--pid", &pid];
    let both = ["one", "two"].map(|rec| place.start(Who::Us, rec, &options, &[]));
    for recorder in both {
        let Some(recorded) = recorder.end().or_skip() else { return };
        steady_is_right(&recorded);
        newcomers_are_there(&recorded);
    }
}
