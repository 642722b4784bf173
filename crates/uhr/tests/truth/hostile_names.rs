//! Names that a target chose to break readers with: separators, markup, control characters.

use std::process::Command;

use crate::harness::{Place, Recorded, Who, built, has, rows};

const RENAMED: &[(&str, &str)] = &[
    ("semicolon", "x;y 12"),
    ("markup", "<script>alert(1)</script>"),
    ("control", "red\u{1b}[31m\tline\nbreak"),
];

fn record() -> Option<(Place, Recorded)> {
    if !has("objcopy") {
        return None;
    }
    let place = Place::new();
    let program = place.c("hostile.c", &["-g0"]);
    let mut objcopy = Command::new("objcopy");
    for (from, to) in RENAMED {
        objcopy.arg("--redefine-sym").arg(format!("{from}={to}"));
    }
    built(objcopy.arg(&program));
    let recorded = place.record(Who::Us, "rec", &[], &[&program]).or_skip()?;
    Some((place, recorded))
}

/// Control characters do not reach a terminal or a program, whatever is asked.
fn assert_clean(text: &str) {
    let bad = text.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(bad, None, "{text:?}");
}

fn printed(recorded: &Recorded, words: &[&str]) -> String {
    let mut uhr = Command::new(env!("CARGO_BIN_EXE_uhr"));
    let done = uhr.arg(words[0]).arg(&recorded.rec).args(&words[1..]).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn hostile_names_in_answers_pictures_and_exports() {
    let Some((_place, recorded)) = record() else { return };
    let functions = recorded.ask("query --group-by function --limit 100");
    let names: Vec<&str> =
        rows(&functions).iter().filter_map(|row| row["key"]["function"].as_str()).collect();
    for part in ["x;y 12", "<script>alert(1)</script>"] {
        assert!(names.contains(&part), "{part}: {names:?}");
    }
    let control = names.iter().find(|name| name.starts_with("red")).unwrap_or_else(|| panic!("{names:?}"));
    assert_clean(control);
    assert!(!control.contains('\n'), "{control:?}");
    let threads = recorded.ask("query --group-by thread-name --limit 100");
    let names: Vec<&str> =
        rows(&threads).iter().filter_map(|row| row["key"]["thread-name"].as_str()).collect();
    for part in ["a;b 7", "<script>", ") R 1 2 ("] {
        assert!(names.contains(&part), "{part}: {names:?}");
    }
    names.iter().for_each(|name| assert_clean(name));
    for words in [
        &["query", "--group-by", "function,thread"][..],
        &["query", "--group-by", "thread", "--json"],
        &["overview"],
        &["call-paths", "--function", "x;y 12"],
    ] {
        assert_clean(&printed(&recorded, words));
    }
}

#[test]
fn hostile_names_do_not_break_collapsed_stacks() {
    let Some((_place, recorded)) = record() else { return };
    let text = printed(&recorded, &["export", "--format", "collapsed"]);
    assert_clean(&text);
    for line in text.lines() {
        let (path, count) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
        assert!(count.parse::<u64>().is_ok(), "{line:?}");
        assert!(!path.is_empty() && path.split(';').all(|frame| !frame.is_empty()), "{line:?}");
    }
    // The separator in a name would make two frames of one.
    let split = text.lines().filter(|line| line.split(';').any(|frame| frame == "y 12" || frame == "b 7"));
    assert_eq!(split.collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn hostile_names_do_not_become_markup_in_a_picture() {
    let Some((place, recorded)) = record() else { return };
    let svg = place.path("cpu.svg");
    printed(&recorded, &["flamegraph", "-o", svg.to_str().unwrap()]);
    let text = std::fs::read_to_string(svg).unwrap();
    assert!(!text.contains("<script>alert"), "a name became a script");
    assert!(text.contains("&lt;script&gt;alert(1)"), "the name is shown as text");
    assert_clean(&text);
}
