//! More waiting threads than one look takes: the next look goes on where it stopped, so that each has its turn.

use std::process::Command;

use crate::harness::{Place, Running, Who, has_ebpf, number, row, rows, wait_until};

#[test]
fn each_of_a_crowd_is_looked_at_in_its_turn() {
    if !has_ebpf() {
        return;
    }
    let place = Place::new();
    let program = place.c("crowd.c", &[]);
    let recorded = place.record(Who::Us, "rec", &["--sampler", "ebpf"], &[&program]);
    let Some(recorded) = recorded.or_skip() else { return };
    let truth = recorded.truth();
    let by_name = recorded.ask("query --metric off-cpu --idle --group-by thread-name");
    for name in ["waiter", "sleeper"] {
        let (seen, away) = (number(row(&by_name, "thread-name", name), "self"), number(&truth, name));
        assert!((0.97..1.03).contains(&(seen / away)), "{name}: {seen}, and it was {away}");
    }
    // Those who wait all the time have all been looked at, though others come before them again and again.
    let code = recorded.ask("query --metric off-cpu --idle --thread waiter --group-by function --limit 100");
    let waiting = number(row(&code, "function", "waits"), "total_share");
    assert!(waiting > 0.97, "{waiting} of the waiting has a stack: {code:#}");
    // However rows are put together, what is said of them stays the same.
    let notes = |by: &str| {
        let answer = recorded.ask(&format!("query --metric off-cpu --idle --group-by {by}"));
        assert!(!rows(&answer).is_empty());
        let notes = answer["coverage"]["notes"].as_array().unwrap().clone();
        notes.into_iter().find(|note| note.as_str().unwrap().contains("had their stack taken"))
    };
    assert_eq!(notes("wait"), notes("thread,function"));
}

/// To attach to many threads takes a while, in which they switch and run.
#[test]
fn nobody_waits_longer_than_the_recording_of_a_crowd_that_was_attached_to() {
    let place = Place::new();
    let program = place.c("crowd.c", &[]);
    for sampler in ["perf", "ebpf"] {
        if sampler == "ebpf" && !has_ebpf() {
            return;
        }
        let crowd = Running::program(&place, "crowd", &mut Command::new(&program));
        let tasks = format!("/proc/{}/task", crowd.pid());
        wait_until("all are there", || std::fs::read_dir(&tasks).is_ok_and(|tasks| tasks.count() > 600));
        let (pid, rec) = (crowd.pid().to_string(), format!("{sampler}.rec"));
        let options = ["--sampler", sampler, "--duration", "1s", "--pid", &pid];
        let Some(recorded) = place.record(Who::Us, &rec, &options, &[]).or_skip() else { return };
        let answer = recorded.ask("query --metric off-cpu --idle --group-by thread --limit 1000");
        let length_ns = number(&answer["recording"], "duration_s") * 1e9;
        assert!(rows(&answer).len() >= 600, "{sampler}: {}", rows(&answer).len());
        for row in rows(&answer) {
            let waited = number(row, "self");
            assert!(waited < length_ns + 1e5, "{sampler}: {waited} ns in a recording of {length_ns}: {row}");
        }
    }
}
