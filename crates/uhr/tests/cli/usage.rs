//! Errors: their exit status, their words, their JSON.

use crate::fixture::{Fixture, Ran};

/// Runs with and without `--json`; both have to fail with `status`, the first with this code.
fn fails(fixture: &Fixture, args: &[&str], status: i32, code: &str) -> serde_json::Value {
    let text = fixture.run(args);
    assert_eq!((text.status, text.stdout.as_str()), (status, ""), "{args:?}: {}", text.stderr);
    assert!(text.stderr.starts_with("uhr: "), "{args:?}: {}", text.stderr);
    let with_json: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
    let json = fixture.run(&with_json);
    assert_eq!(json.status, status, "{args:?}");
    let answer = json.json();
    assert_eq!(answer["schema"], "uhr.error/1");
    assert_eq!(answer["ok"], false);
    assert_eq!(answer["error"]["code"], code, "{args:?}: {answer}");
    assert!(!answer["error"]["message"].as_str().unwrap().is_empty());
    answer["error"].clone()
}

#[test]
fn what_is_wrong_whatever_the_recording_holds_is_usage() {
    let fixture = Fixture::new();
    for (args, code) in [
        (&["query", "rec", "--group-by", "colour"][..], "unknown-dimension"),
        (&["query", "rec", "--group-by", "function,colour"], "unknown-dimension"),
        (&["query", "rec", "--group-by", "time:soon"], "unknown-dimension"),
        (&["query", "rec", "--metric", "joy"], "unknown-metric"),
        (&["query", "rec", "--mode", "turbo"], "unknown-mode"),
        (&["query", "rec", "--limit", "0"], "usage"),
        (&["query", "rec", "--bogus"], "usage"),
        (&["call-paths", "rec"], "usage"),
        (&["frobnicate"], "usage"),
        (&["query", "rec", "--from", "yesterday"], "bad-time"),
        (&["query", "rec", "--from", "1s", "--to", "0.5s"], "window-empty"),
        (&["query", "rec", "--from", "20s", "--to", "15s"], "window-empty"),
        (&["query", "rec", "--group-by", "region"], "dimension-not-of-metric"),
        (&["schema", "nothing"], "unknown-schema"),
        (&["doctor", "--pid", "0"], "usage"),
    ] {
        fails(&fixture, args, 2, code);
    }
}

#[test]
fn a_question_that_does_not_fit_names_one_that_does() {
    let fixture = Fixture::new();
    for (args, status, code, next) in [
        (&["query", "rec", "--from", "20s"][..], 1, "window-outside-recording", "uhr overview rec"),
        (
            &["query", "rec", "-m", "resident", "-g", "function"],
            2,
            "dimension-not-of-metric",
            "uhr query rec --metric resident --group-by process",
        ),
        (
            &["query", "rec", "-g", "region"],
            2,
            "dimension-not-of-metric",
            "uhr query rec --metric page-faults --group-by region",
        ),
        (&["doctor", "--pid", "4194304"], 1, "no-such-process", "uhr doctor"),
    ] {
        assert_eq!(fails(&fixture, args, status, code)["next"], serde_json::json!([next]), "{args:?}");
    }
}

#[test]
fn what_is_designed_and_not_there_yet_is_said() {
    let ran = Fixture::empty().run(&["record", "--with", "x", "--", "true"]);
    assert_eq!(ran.status, 2);
    assert!(ran.stderr.starts_with("uhr: --with is not in this version\n"), "{}", ran.stderr);
}

#[test]
fn a_recording_of_somebody_else_is_not_called_none() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let fixture = Fixture::new();
    let set = |name: &str, mode| {
        std::fs::set_permissions(fixture.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    // SAFETY: it asks for a number.
    let is_root = unsafe { libc::geteuid() } == 0;
    set("", 0o755);
    set("rec", if is_root { 0o700 } else { 0 });
    let as_another = |args: &[&str]| {
        let mut uhr = fixture.uhr(args);
        if is_root {
            uhr.uid(65_534).gid(65_534);
        }
        uhr.output().map(Ran::of)
    };
    let (named, newest) = (as_another(&["query", "rec", "--json"]), as_another(&["query", "--json"]));
    set("rec", 0o700);
    let (Ok(ran), Ok(newest)) = (named, newest) else {
        eprintln!("SKIPPED: another user cannot run the uhr that was built");
        return;
    };
    let error = &newest.json()["error"];
    assert!(error["hint"].as_str().unwrap().starts_with("this user may not read rec;"), "{error}");
    let error = &ran.json()["error"];
    assert_eq!((ran.status, &error["code"]), (1, &"io".into()));
    assert_eq!(error["message"], "cannot read rec: Permission denied");
    assert_eq!(error["hint"], "sudo chown -R \"$USER\" rec");
}

#[test]
fn an_unknown_dimension_names_those_that_there_are() {
    let error = fails(&Fixture::new(), &["query", "rec", "--group-by", "colour"], 2, "unknown-dimension");
    let words = error.to_string();
    assert!(words.contains("thread-name") && words.contains("wait"), "{words}");
}

#[test]
fn what_depends_on_the_recording_is_failure() {
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.path("empty")).unwrap();
    for (args, code) in [
        (&["query", "nothing"][..], "no-recording"),
        (&["query", "empty"], "no-recording"),
        (&["overview", "nothing"], "no-recording"),
        (&["call-paths", "rec", "--function", "no_such_function"], "unknown-function"),
        (&["query", "rec", "--under", "no_such_function"], "unknown-function"),
        (&["query", "rec", "--process", "nobody"], "unknown-process"),
        (&["query", "rec", "--thread", "nobody"], "unknown-thread"),
        (&["query", "rec", "--module", "nothing.so"], "unknown-module"),
        (&["query", "rec", "--from", "20s"], "window-outside-recording"),
    ] {
        fails(&fixture, args, 1, code);
    }
}

#[test]
fn an_ambiguous_function_lists_candidates() {
    let fixture = Fixture::new();
    let error = fails(&fixture, &["call-paths", "rec", "--function", "a"], 1, "ambiguous-function");
    let candidates = error["candidates"].as_array().unwrap();
    assert!(candidates.iter().any(|candidate| candidate["name"] == "parse_json"), "{error}");
    let text = fixture.run(&["call-paths", "rec", "--function", "a"]).stderr;
    assert!(text.contains("parse_json") && text.contains("next: uhr call-paths rec"), "{text}");
}

#[test]
fn a_folder_without_recordings_says_how_to_make_one() {
    let error = fails(&Fixture::empty(), &["overview"], 1, "no-recording");
    assert!(error["hint"].as_str().unwrap().contains("uhr record"));
}

#[test]
fn without_a_name_the_newest_recording_is_taken_and_said() {
    let fixture = Fixture::new();
    fixture.add_later("a-later-one");
    let ran = fixture.run(&["query", "--json"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert_eq!(ran.json()["recording"]["path"], "a-later-one");
    assert_eq!(ran.stderr, "uhr: a-later-one (the newest recording here)\n");
}

#[test]
fn an_output_is_never_overwritten() {
    let fixture = Fixture::new();
    std::fs::write(fixture.path("taken.svg"), "mine").unwrap();
    fails(&fixture, &["flamegraph", "rec", "-o", "taken.svg"], 1, "exists");
    fails(&fixture, &["export", "rec", "--format", "collapsed", "-o", "taken.svg"], 1, "exists");
    assert_eq!(std::fs::read_to_string(fixture.path("taken.svg")).unwrap(), "mine");
    fails(&fixture, &["flamegraph", "rec", "-o", "no/such/folder.svg"], 1, "io");
}

#[test]
fn damaged_and_foreign_recordings_are_named() {
    let fixture = Fixture::new();
    let table = fixture.path("rec/samples.parquet");
    let bytes = std::fs::read(&table).unwrap();
    std::fs::write(&table, &bytes[..bytes.len() / 2]).unwrap();
    let error = fails(&fixture, &["query", "rec"], 1, "damaged-recording");
    assert!(error["message"].as_str().unwrap().contains("samples.parquet"), "{error}");
    std::fs::write(fixture.path("rec/manifest.json"), r#"{"format": "another", "format_version": 1}"#)
        .unwrap();
    fails(&fixture, &["query", "rec"], 1, "no-recording");
    std::fs::write(fixture.path("rec/manifest.json"), r#"{"format": "uhr-recording", "format_version": 99}"#)
        .unwrap();
    fails(&fixture, &["query", "rec"], 1, "recording-too-new");
    std::fs::write(fixture.path("rec/manifest.json"), "{").unwrap();
    fails(&fixture, &["query", "rec"], 1, "no-recording");
}

#[test]
fn record_refuses_what_makes_no_sense() {
    let fixture = Fixture::empty();
    for args in [
        &["record"][..],
        &["record", "--pid", "1", "--", "true"],
        &["record", "-a", "--as", "nobody"],
        &["record", "--stack-size", "1M", "--", "true"],
        &["record", "-F", "0", "--", "true"],
        &["record", "--duration", "soon", "--", "true"],
        &["record", "--unwind", "magic", "--", "true"],
        &["record", "--sampler", "magic", "--", "true"],
        &["record", "--cgroup", "/", "--", "true"],
    ] {
        assert_eq!(fixture.run(args).status, 2, "{args:?}");
    }
}

#[test]
fn json_behind_the_dashes_belongs_to_the_command() {
    let fixture = Fixture::new();
    let ran = fixture.run(&["record", "--bogus", "--", "jq", "--json"]);
    assert_eq!((ran.status, ran.stdout.as_str()), (2, ""));
    let ran = fixture.run(&["record", "-o", "rec", "echo", "--json"]);
    assert_eq!((ran.status, ran.stdout.as_str()), (125, ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("rec exists already"), "{}", ran.stderr);
}
