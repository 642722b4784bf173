//! Width, colour, pipes.

use std::process::{Command, Stdio};

use crate::fixture::{Fixture, Ran};

#[test]
fn a_pipe_gets_no_colour_and_100_columns() {
    let fixture = Fixture::new();
    let ran = fixture.run(&["query", "rec"]);
    assert!(!ran.stdout.contains('\x1b'));
    for width in ["20", "40", "72", "junk", "0"] {
        let ran = Ran::of(fixture.uhr(&["query", "rec"]).env("COLUMNS", width).output().unwrap());
        let most = width.parse().unwrap_or(100_usize);
        let most = if most == 0 { 100 } else { most.max(40) };
        for line in ran.stdout.lines().filter(|line| !line.contains("uhr ")) {
            assert!(line.chars().count() <= most, "{width}: {line}");
        }
    }
}

/// Runs `uhr` on a terminal made by script(1), 80 columns wide.
fn on_terminal(fixture: &Fixture, variables: &str, args: &str) -> Option<String> {
    let command = format!("stty cols 80; {variables} {} {args}", env!("CARGO_BIN_EXE_uhr"));
    let output = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .current_dir(fixture.path(""))
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else {
        eprintln!("SKIPPED: there is no script(1) here to make a terminal with");
        return None;
    };
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_terminal_gets_colour_unless_it_is_declined() {
    let fixture = Fixture::new();
    let Some(text) = on_terminal(&fixture, "", "query rec") else { return };
    assert!(text.contains("\x1b[1m"), "{text:?}");
    for variables in ["NO_COLOR=1", "TERM=dumb"] {
        let text = on_terminal(&fixture, variables, "query rec").unwrap();
        assert!(!text.contains('\x1b'), "{variables}: {text:?}");
    }
    let json = on_terminal(&fixture, "", "query rec --json").unwrap();
    assert!(!json.contains('\x1b'));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let fixture = Fixture::new();
    for args in [
        &["query", "rec"][..],
        &["query", "rec", "--json"],
        &["flamegraph", "rec"],
        &["completions", "bash"],
        &["export", "rec", "--format", "collapsed"],
        &["schema", "query"],
        &["man"],
    ] {
        let mut child = fixture.uhr(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
    }
}

#[test]
fn a_full_disk_is_a_failure_that_is_said() {
    let fixture = Fixture::new();
    for args in [&["query", "rec"][..], &["query", "rec", "--json"], &["flamegraph", "rec"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = fixture.uhr(args).stdout(full).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("uhr: cannot write the answer: No space left"), "{args:?}: {said}");
    }
}
