//! Python and JavaScript, by the maps that their runtimes write.

use std::path::PathBuf;
use std::process::Command;

use crate::harness::{Place, Recorded, Who, has, line_of, number, row, rows};
use crate::shares::assert_totals;

/// A Python that writes perf maps: 3.12 or newer, on the path or in pyenv's folder.
fn python() -> Option<PathBuf> {
    let on_path = ["python3.14", "python3.13", "python3.12", "python3"].map(PathBuf::from);
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let installed = std::fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = installed.map(|version| version.path().join("bin/python3")).collect();
    found.sort();
    found.reverse();
    found.extend(on_path);
    let works = |python: &PathBuf| {
        let probe = "import sys; sys.activate_stack_trampoline('perf'); sys.deactivate_stack_trampoline()";
        Command::new(python).args(["-c", probe]).output().is_ok_and(|done| done.status.success())
    };
    let python = found.into_iter().find(works);
    if python.is_none() {
        eprintln!("SKIPPED: there is no Python 3.12 or newer that writes perf maps here");
    }
    // Behind a shim stands the program itself.
    let real = Command::new(python?).args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    Some(String::from_utf8(real.stdout).unwrap().trim().into())
}

/// Runtimes leave their maps in /tmp.
fn remove_maps(recorded: &Recorded) {
    let answer = recorded.ask("query --group-by process --limit 100");
    for pid in rows(&answer).iter().filter_map(|row| row["key"]["process"]["pid"].as_u64()) {
        let _ = std::fs::remove_file(format!("/tmp/perf-{pid}.map"));
    }
}

fn python_functions(recorded: &Recorded) {
    assert_totals(
        recorded,
        &[("half", "half"), ("outer", "outer"), ("inner", "outer"), ("Worker.fifth", "Worker.fifth")],
    );
    let answer = recorded.ask("query --group-by function,file --limit 1000");
    for function in ["half", "inner", "Worker.fifth", "main"] {
        let file = row(&answer, "function", function)["key"]["file"].as_str().unwrap_or_default();
        assert!(file.ends_with("programs/shares.py"), "{function} is in {file}");
    }
    // Python frames stand between the native ones, callers first.
    let answer = recorded.ask("call-paths --function inner --detail full");
    let path = rows(&answer)[0]["path"].as_array().unwrap();
    let python: Vec<&str> = path.iter().filter_map(|name| name.as_str()).collect();
    let at =
        |name: &str| python.iter().position(|shown| *shown == name).unwrap_or_else(|| panic!("{python:?}"));
    assert!(
        at("main") < at("measured") && at("measured") < at("outer") && at("outer") < at("inner"),
        "{python:?}"
    );
}

#[test]
fn python_functions_have_their_shares() {
    let Some(python) = python() else { return };
    let place = Place::new();
    let script = crate::harness::source("shares.py");
    let recorded = place.record(Who::Us, "rec", &[], &[&python, &"-X", &"perf", &script]);
    let Some(recorded) = recorded.or_skip() else { return };
    remove_maps(&recorded);
    python_functions(&recorded);
    // How long the interpreter takes to start and to end is the machine's affair; while it imports, its stack is deeper than
    // what is copied of it.
    let truth = recorded.truth();
    let measured: f64 = ["half", "outer", "Worker.fifth"].iter().map(|name| number(&truth, name)).sum();
    let answer = recorded.ask("query --group-by function --limit 1000");
    let main = number(row(&answer, "function", "main"), "total");
    assert!(main >= 0.97 * measured, "{main} ns below main, which measured {measured}");
    assert!(number(&answer["coverage"], "stacks_complete_share") >= 0.98, "{:#}", answer["coverage"]);
}

#[test]
fn javascript_functions_have_their_shares() {
    if !has("node") {
        return;
    }
    let place = Place::new();
    let script = crate::harness::source("shares.js");
    let recorded = place.record(
        Who::Us,
        "rec",
        &[],
        &[
            &"node",
            &"--perf-basic-prof",
            &"--interpreted-frames-native-stack",
            &"--no-turbo-inlining",
            &script,
        ],
    );
    let Some(recorded) = recorded.or_skip() else { return };
    remove_maps(&recorded);
    assert_totals(&recorded, &[("half", "half"), ("outer", "outer"), ("inner", "outer"), ("fifth", "fifth")]);
    let answer = recorded.ask("query --group-by function --limit 1000");
    // The script's own frames are the interpreter's until V8 compiles them, which it may never do with `main`.
    let whole = row(&answer, "function", "node::Start(int, char**)");
    assert!(whole["total_share"].as_f64().unwrap() > 0.9, "{answer:#}");
    let lines = recorded.ask("query --group-by function,file,line --limit 1000");
    let key = &row(&lines, "function", "half")["key"];
    assert!(key["file"].as_str().unwrap_or_default().ends_with("programs/shares.js"), "{key}");
    assert_eq!(key["line"], line_of("shares.js", "half"), "V8 tells where a function begins");
    let modes = recorded.ask("query --group-by mode");
    let truth = recorded.truth();
    let measured: f64 = ["half", "outer", "fifth"].iter().map(|name| number(&truth, name)).sum();
    let generated = number(row(&modes, "mode", "jit"), "self");
    assert!(
        (0.9 * measured..1.05 * measured).contains(&generated),
        "{generated} ns, and {measured} were measured"
    );
}
