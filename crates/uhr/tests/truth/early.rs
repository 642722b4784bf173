//! A command from its first instruction, and after it has executed another program under the same pid.

use std::process::Command;

use crate::harness::{
    Place, Recorded, Running, Who, assert_on_cpu, has, has_ebpf, number, row, rows, taken_ns,
};

fn check(recorded: &Recorded, taken_ns: f64) {
    let truth = recorded.truth();
    let answer = recorded.ask("query --group-by function --limit 1000");
    for function in ["before_main", "in_main", "when_again"] {
        let seen = number(row(&answer, "function", function), "total");
        assert_on_cpu(function, seen, number(&truth, function), taken_ns);
    }
    let by_process = recorded.ask("query --group-by process");
    let pids: Vec<f64> = rows(&by_process)
        .iter()
        .filter(|row| number(row, "self_share") > 0.1)
        .map(|row| row["key"]["process"]["pid"].as_f64().unwrap())
        .collect();
    assert_eq!(pids, [number(&truth, "pid"); 2], "one process, two programs: {by_process:#}");
}

#[test]
fn a_command_is_recorded_from_its_first_instruction() {
    let place = Place::new();
    let program = place.c("early.c", &[]);
    for sampler in ["ebpf", "perf"] {
        if sampler == "ebpf" && !has_ebpf() {
            continue;
        }
        let before_ns = taken_ns();
        let Some(recorded) = place.record(Who::Us, sampler, &["--sampler", sampler], &[&program]).or_skip()
        else {
            return;
        };
        check(&recorded, taken_ns() - before_ns);
    }
}

#[test]
fn pids_are_those_of_the_namespace_that_uhr_runs_in() {
    if !has_ebpf() || !has("unshare") {
        return;
    }
    let place = Place::new();
    let (program, rec) = (place.c("early.c", &[]), place.path("rec"));
    let mut inside = Command::new("unshare");
    inside.args(["-p", "-f", "--mount-proc", env!("CARGO_BIN_EXE_uhr"), "record", "--sampler", "ebpf", "-o"]);
    inside.arg(&rec).arg("--").arg(&program);
    let before_ns = taken_ns();
    let mut recorded = Running::program(&place, "unshare", &mut inside).end();
    if recorded.stderr.contains("unshare failed") {
        eprintln!("SKIPPED: {}", recorded.stderr);
        return;
    }
    assert_eq!(recorded.code(), 0, "{}", recorded.stderr);
    recorded.rec = rec;
    assert!(number(&recorded.truth(), "pid") < 100.0, "a namespace of its own");
    check(&recorded, taken_ns() - before_ns);
}
