//! Ctrl-C and its like: a whole recording, nothing left running, nothing ended that should not be.

use std::io::Write;
use std::process::{Command, Stdio};

use uhr_recording::{Recording, State};

use crate::harness::{Place, Recorded, Running, Who, has, number, wait_until};

/// Records phases until it has run for a second, sends uhr a signal, and waits for its end.
fn interrupted(signal: &str, behaviour: &str, again: bool) -> Option<Recorded> {
    let place = Place::new();
    let program = place.c("phases.c", &[]);
    let uhr = place.start(Who::Us, "rec", &[], &[&program, &"20", &behaviour]);
    wait_until("it runs", || uhr.said().lines().count() >= 10 || !uhr.complained().is_empty());
    if !uhr.complained().is_empty() {
        eprintln!("SKIPPED: {}", uhr.complained());
        return None;
    }
    uhr.signal(signal);
    if again {
        std::thread::sleep(std::time::Duration::from_millis(700));
        uhr.signal(signal);
    }
    let recorded = uhr.end();
    assert_whole(&recorded);
    Some(recorded)
}

fn assert_whole(recorded: &Recorded) {
    let recording = Recording::open(&recorded.rec).unwrap();
    assert_eq!(recording.manifest.state, State::Complete, "{}", recorded.stderr);
    assert!(number(&recorded.ask("query --group-by function")["metric"], "samples") > 50.0);
}

/// Nobody at a terminal has told the command, so uhr passes the signal on.
#[test]
fn a_signal_to_uhr_ends_the_command_and_finishes_the_recording() {
    let Some(recorded) = interrupted("INT", "", false) else { return };
    assert_eq!(recorded.code(), 128 + 2, "the command's own status: {}", recorded.stderr);
    let Some(recorded) = interrupted("TERM", "", false) else { return };
    assert_eq!(recorded.code(), 128 + 15, "{}", recorded.stderr);
}

#[test]
fn a_command_that_tidies_up_may_do_so() {
    let Some(recorded) = interrupted("INT", "exit-on-int", false) else { return };
    assert_eq!(recorded.code(), 7, "{}", recorded.stderr);
    assert!(recorded.stdout.contains("by signal"));
}

#[test]
fn a_second_interrupt_ends_a_command_that_ignores_the_first() {
    let Some(recorded) = interrupted("INT", "ignore-int", true) else { return };
    assert_eq!(recorded.code(), 128 + 9, "{}", recorded.stderr);
}

/// At a terminal, Ctrl-C goes to uhr and the command alike: one press ends both, and the command hears of it once.
#[test]
fn one_ctrl_c_at_a_terminal() {
    if !has("script") {
        return;
    }
    let place = Place::new();
    let program = place.c("phases.c", &[]);
    let line = format!(
        // `exec`: no shell is left in between, which Ctrl-C would end too (dash) or not (bash).
        "exec {} record -o {} -- {} 20 exit-on-int",
        env!("CARGO_BIN_EXE_uhr"),
        place.path("rec").display(),
        program.display()
    );
    let log = place.path("typescript");
    let mut terminal = Command::new("script")
        .args(["-q", "-e", "-f", "-c", &line])
        .arg(&log)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut keyboard = terminal.stdin.take().unwrap();
    let said = || String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned();
    let mut ended = || terminal.try_wait().unwrap();
    wait_until("it runs", || said().matches("from_ns").count() >= 5 || ended().is_some());
    keyboard.write_all(&[3]).unwrap();
    wait_until("it ended", || ended().is_some());
    drop(keyboard);
    let code = terminal.wait().unwrap().code();
    let said = said();
    if said.contains("perf_event_paranoid") {
        eprintln!("SKIPPED: {said}");
        return;
    }
    assert_eq!(code, Some(7), "{said}");
    assert_eq!(said.matches("by signal").count(), 1, "{said}");
    assert_eq!(Recording::open(&place.path("rec")).unwrap().manifest.state, State::Complete, "{said}");
}

#[test]
fn an_interrupt_ends_the_recording_of_a_process_that_goes_on() {
    let place = Place::new();
    let program = place.c("phases.c", &[]);
    let target = Running::program(&place, "target", Command::new(&program).arg("4"));
    let uhr = place.start(Who::Us, "rec", &["--pid", &target.pid().to_string()], &[]);
    wait_until("it records", || target.said().lines().count() >= 15);
    uhr.signal("INT");
    let recorded = uhr.end();
    let Some(recorded) = recorded.or_skip() else { return };
    assert_whole(&recorded);
    let target = target.end();
    assert_eq!(target.code(), 0);
    assert!(target.stdout.contains("by itself"));
}
