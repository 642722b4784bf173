//! System calls, counted: exactly where that was asked for, and otherwise from short windows.

use serde_json::Value;

use crate::harness::{Place, Recorded, Who, ask, has_ebpf, number, rows};

/// What a thread did: the number of calls of a kind that ended so, or their time.
fn of_thread(recorded: &Recorded, metric: &str, thread: &str) -> impl Fn(&str, &str) -> f64 + use<> {
    let answer = recorded
        .ask(&format!("query --metric {metric} --group-by syscall,errno --thread {thread} --limit 1000"));
    move |syscall, errno| {
        let is_it = |row: &&Value| row["key"]["syscall"] == syscall && row["key"]["errno"] == errno;
        rows(&answer).iter().find(is_it).map_or(0.0, |row| number(row, "self"))
    }
}

#[test]
fn every_call_is_counted_with_its_outcome_and_length() {
    if !has_ebpf() {
        return;
    }
    let place = Place::new();
    let program = place.c("calls.c", &[]);
    let recorded = place.record(Who::Us, "rec", &["--sampler", "ebpf", "--syscalls"], &[&program]);
    let Some(recorded) = recorded.or_skip() else { return };
    let truth = recorded.truth();
    let count = |thread: &str| of_thread(&recorded, "syscalls", thread);
    assert_eq!(count("asks")("getppid", "ok"), number(&truth, "asks"));
    let polls = count("polls");
    assert_eq!(polls("recvfrom", "EAGAIN"), number(&truth, "polls"));
    assert_eq!([polls("sendto", "ok"), polls("recvfrom", "ok")], [500.0; 2]);
    assert_eq!(count("seeks")("openat", "ENOENT"), number(&truth, "seeks"));
    assert_eq!(count("naps")("clock_nanosleep", "ok"), 40.0);
    let raises = count("raises");
    let raised = number(&truth, "raises");
    assert_eq!([raises("tgkill", "ok"), raises("rt_sigreturn", "ok")], [raised; 2]);
    // A new thread leaves the call that its maker made, and that is none of its own.
    let main = count("calls");
    assert_eq!(main("clone", "ok"), 20.0);
    assert_eq!(main("wait4", "ok"), 20.0);
    assert_eq!(main("clone3", "ok"), number(&truth, "threads"));
    assert_eq!(main("execve", "ok"), 1.0);

    let (time, naps) = (of_thread(&recorded, "syscall-time", "naps"), number(&truth, "naps"));
    let slept = time("clock_nanosleep", "ok");
    assert!(slept <= naps && slept >= naps * 0.97, "{slept} of {naps}");
    // It waited for longer than the naps took, and the program's end found it there.
    let time = of_thread(&recorded, "syscall-time", "listens");
    let listened = time("read", "ok") + time("read", "ERESTART");
    assert!(listened >= naps * 0.9, "{listened}, and naps took {naps}");
}

#[test]
fn windows_stand_for_the_calls_between_them() {
    if !has_ebpf() {
        return;
    }
    let place = Place::new();
    let program = place.c("calls.c", &[]);
    let recorded = place.record(Who::Us, "rec", &["--sampler", "ebpf"], &[&program, &"loop"]);
    let Some(recorded) = recorded.or_skip() else { return };
    let truth = recorded.truth();
    let answer = recorded.ask("query --metric syscalls --group-by syscall");
    // Some fifty windows of 3 ms: an estimate. Where the loop shares its CPU it runs in some of them and in others not.
    let is_alone = number(&truth, "delay_ns") < 1.2e9;
    let (least, most) = if is_alone { (0.6, 1.5) } else { (0.25, 3.0) };
    for syscall in ["getppid", "clock_nanosleep"] {
        let row = rows(&answer).iter().find(|row| row["key"]["syscall"] == syscall).unwrap();
        let (seen, counted) = (number(row, "self"), number(&truth, syscall));
        assert!(seen > counted * least && seen < counted * most, "{syscall}: {seen}, and it was {counted}");
    }
    let notes = answer["coverage"]["notes"].as_array().unwrap();
    let told = notes.iter().any(|note| note.as_str().unwrap().contains("windows"));
    assert!(told, "{notes:?}");
    // How long calls take was not measured, and which time goes to is known otherwise.
    let (code, answer) = ask(&recorded.rec, "query --metric syscall-time");
    assert_eq!((code, &answer["error"]["code"]), (1, &Value::from("metric-not-recorded")), "{answer}");
}

#[test]
fn perf_events_count_no_calls_and_say_so() {
    let place = Place::new();
    let refused = place.record(Who::Us, "rec", &["--sampler", "perf", "--syscalls"], &[&"true"]);
    assert_eq!(refused.code(), 125);
    assert!(refused.stderr.contains("eBPF sampler"), "{}", refused.stderr);
}
