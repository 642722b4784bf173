//! Help, version, completions, manual pages.

use crate::fixture::Fixture;

const COMMANDS: &[&str] = &[
    "doctor",
    "record",
    "overview",
    "query",
    "call-paths",
    "flamegraph",
    "export",
    "schema",
    "completions",
    "man",
];

#[test]
fn help_goes_to_stdout_and_succeeds() {
    let fixture = Fixture::empty();
    let help = fixture.run(&["--help"]);
    assert_eq!((help.status, help.stderr.as_str()), (0, ""));
    for command in COMMANDS {
        assert!(help.stdout.contains(&format!("  {command}")), "{command}");
        let of_command = fixture.run(&[command, "--help"]);
        assert_eq!((of_command.status, of_command.stderr.as_str()), (0, ""), "{command}");
        assert!(of_command.stdout.contains("Usage: uhr"), "{command}");
    }
    assert!(fixture.run(&["query", "--help"]).stdout.contains("Examples:"));
    assert_eq!(fixture.run(&["--version"]).stdout, format!("uhr {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn no_line_of_help_is_wider_than_the_page() {
    let fixture = Fixture::empty();
    for command in COMMANDS {
        for line in fixture.run(&[command, "--help"]).stdout.lines() {
            assert!(line.chars().count() <= 110, "{command}: {line}");
        }
    }
}

#[test]
fn a_bare_uhr_shows_the_way_in_and_is_no_success() {
    let bare = Fixture::empty().run(&[]);
    assert_eq!((bare.status, bare.stdout.as_str()), (2, ""));
    assert!(bare.stderr.contains("Usage: uhr"));
}

#[test]
fn completions_of_every_shell_know_the_commands_and_dimensions() {
    let fixture = Fixture::empty();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = fixture.run(&["completions", shell]);
        assert_eq!(script.status, 0, "{shell}");
        for word in ["call-paths", "group-by"] {
            assert!(script.stdout.contains(word), "{shell}: {word}");
        }
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = fixture.run(&["completions", shell]).stdout;
        assert!(script.contains("thread-name") && script.contains("off-cpu"), "{shell}");
    }
}

#[test]
fn bash_accepts_its_completions() {
    let script = Fixture::empty().run(&["completions", "bash"]).stdout;
    let status = std::process::Command::new("bash").args(["-n", "-c", &script]).status().unwrap();
    assert!(status.success());
}

#[test]
fn manual_pages_are_troff_under_the_right_name() {
    let fixture = Fixture::empty();
    let uhr = fixture.run(&["man"]);
    assert_eq!(uhr.status, 0);
    assert!(uhr.stdout.contains(".TH uhr 1"), "{}", &uhr.stdout[..200]);
    let record = fixture.run(&["man", "record"]);
    assert!(record.stdout.contains(".TH uhr-record 1"), "{}", &record.stdout[..200]);
    let none = fixture.run(&["man", "nothing"]);
    assert_eq!(none.status, 2);
}
