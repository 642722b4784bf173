//! How `uhr record` ends: with the command's own status, or with one that says why it could not run.

use crate::harness::{Place, Running, Who, is_root, wait_until};
use std::process::Command;

fn status_of(who: Who, command: &[&str]) -> (i32, String) {
    let place = Place::new();
    let words: Vec<&dyn AsRef<std::ffi::OsStr>> = command.iter().map(|word| word as _).collect();
    let recorded = place.record(who, "rec", &[], &words);
    (recorded.code(), recorded.stderr)
}

#[test]
fn the_commands_own_status() {
    for who in [Who::Us, Who::Ordinary] {
        assert_eq!(status_of(who, &["true"]).0, 0);
        let (code, said) = status_of(who, &["sh", "-c", "exit 42"]);
        assert_eq!(code, 42);
        assert!(!said.contains("signal"), "{said}");
        for (name, number) in [("KILL", 9), ("SEGV", 11)] {
            let (code, said) = status_of(who, &["sh", "-c", &format!("kill -{name} $$")]);
            assert_eq!(code, 128 + number);
            assert!(said.contains(&format!("SIG{name}")), "the shell does not say it: {said}");
        }
    }
}

#[test]
fn a_program_that_ends_at_once_is_no_failure_and_it_is_said() {
    let (code, said) = status_of(Who::Us, &["true"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("too short") || said.contains(" sample"), "{said}");
}

#[test]
fn a_command_that_is_not_there_or_cannot_be_run() {
    let (code, said) = status_of(Who::Us, &["no-such-program-anywhere"]);
    assert_eq!(code, 127, "{said}");
    assert!(said.contains("no-such-program-anywhere"), "{said}");
    let (code, said) = status_of(Who::Us, &["/etc/passwd"]);
    assert_eq!(code, 126, "{said}");
    assert!(said.contains("/etc/passwd"), "{said}");
}

#[test]
fn an_output_that_exists_is_not_touched_and_the_command_not_run() {
    let place = Place::new();
    std::fs::create_dir(place.path("rec")).unwrap();
    let mark = place.path("ran");
    let recorded = place.record(Who::Us, "rec", &[], &[&"touch", &mark]);
    assert_eq!(recorded.code(), 125);
    assert!(recorded.stderr.contains("exists"), "{}", recorded.stderr);
    assert!(!mark.exists(), "the command ran");
    assert_eq!(std::fs::read_dir(place.path("rec")).unwrap().count(), 0);
}

#[test]
fn an_output_that_cannot_be_made() {
    let place = Place::new();
    let mark = place.path("ran");
    std::fs::write(place.path("file"), "").unwrap();
    let rec = place.path("file").join("rec");
    let recorded = place.record(Who::Us, "rec", &["-o", rec.to_str().unwrap()], &[&"touch", &mark]);
    assert_eq!(recorded.code(), 125, "{}", recorded.stderr);
    assert!(recorded.stderr.contains(rec.to_str().unwrap()), "{}", recorded.stderr);
    assert!(!mark.exists(), "the command ran");
}

#[test]
fn a_pid_that_nobody_has() {
    let place = Place::new();
    let recorded = place.record(Who::Us, "rec", &["--pid", "4194303"], &[]);
    assert_eq!(recorded.code(), 1, "{}", recorded.stderr);
    assert!(recorded.stderr.contains("4194303"), "{}", recorded.stderr);
    assert!(!recorded.rec.exists());
}

/// It has a number, a name and a parent, and nothing of it runs.
#[test]
fn a_process_that_has_ended_and_is_still_listed() {
    let place = Place::new();
    // The shell becomes a program that does not ask after its child.
    let mut parent = Command::new("sh");
    parent.args(["-c", "sleep 0 & echo $!; exec sleep 60"]);
    let parent = Running::program(&place, "parent", &mut parent);
    let is_zombie = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('Z'))
    };
    wait_until("the child has ended", || is_zombie(parent.said().trim()));
    let pid = parent.said().trim().to_owned();
    for sampler in ["auto", "perf"] {
        let recorded = place.record(Who::Us, "rec", &["--sampler", sampler, "--pid", &pid], &[]);
        assert_eq!(recorded.code(), 1, "{}", recorded.stderr);
        assert!(recorded.stderr.contains(&format!("process {pid} has ended")), "{}", recorded.stderr);
        assert!(!recorded.rec.exists());
    }
}

#[test]
fn a_process_of_another_user() {
    if !is_root() {
        eprintln!("SKIPPED: only root can start a process of another user");
        return;
    }
    let place = Place::new();
    let victim = Running::program(&place, "victim", Command::new("sleep").arg("30"));
    let pid = victim.pid().to_string();
    let recorded = place.record(Who::Ordinary, "rec", &["--pid", &pid], &[]);
    assert!([1, 3].contains(&recorded.code()), "{}: {}", recorded.code(), recorded.stderr);
    assert!(recorded.stderr.contains(&pid), "it names the process: {}", recorded.stderr);
    assert!(!recorded.rec.exists());
}

#[test]
fn usage_is_told_apart_from_failure() {
    let place = Place::new();
    assert_eq!(place.record(Who::Us, "rec", &["--no-such-flag"], &[&"true"]).code(), 2);
    assert_eq!(place.record(Who::Us, "rec", &[], &[]).code(), 2, "neither a command nor a pid");
}
