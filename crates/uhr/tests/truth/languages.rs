//! C++, Rust and Go: names as their authors wrote them, whole stacks through templates, exceptions, closures, goroutines.

use std::process::Command;

use crate::harness::{Place, Recorded, Who, built, has, line_of, number, rows, source};
use crate::shares::{assert_bottom, assert_line, assert_path, assert_totals, assert_whole};

#[test]
fn cpp_templates_inlines_lambdas_and_exceptions() {
    let place = Place::new();
    let program = place.c("shares.cpp", &[]);
    let Some(recorded) = place.record(Who::Us, "rec", &[], &[&program]).or_skip() else { return };
    let grind = "planted::Grinder<unsigned long, 7>::grind(unsigned int)";
    let squared = full_name(&recorded, "squared");
    assert_totals(
        &recorded,
        &[
            (grind, "grind"),
            ("planted::Circle::area(unsigned int)", "area"),
            (&squared, "area"),
            ("planted::catcher(unsigned int)", "catcher"),
            ("planted::with_lambda(unsigned int)", "with_lambda"),
        ],
    );
    assert_line(&recorded, grind, line_of("shares.cpp", "grind"), 1.0);
    assert_line(&recorded, "planted::thrower(unsigned int)", line_of("shares.cpp", "thrower"), 1.0);
    assert_line(&recorded, &squared, line_of("shares.cpp", "squared"), 1.0);
    assert_whole(&recorded, "main");
    let path = [
        "main",
        "planted::catcher(unsigned int)",
        "planted::passes_on(unsigned int)",
        "planted::thrower(unsigned int)",
    ];
    assert_path(&recorded, "planted::thrower", &path);
    let answer = recorded.ask("query --group-by file,line --under planted::with_lambda --limit 100");
    let at = line_of("shares.cpp", "lambda");
    let of_line = rows(&answer).iter().find(|row| row["key"]["line"] == at);
    let share = of_line.map_or(0.0, |row| number(row, "self_share"));
    assert!(share > 0.9, "{share} of the lambda's time is at its line {at}: {answer:#}");
}

#[test]
fn rust_generics_closures_traits_and_inlines() {
    if !has("rustc") {
        return;
    }
    let place = Place::new();
    let program = place.path("shares_rs");
    built(
        Command::new("rustc")
            .args(["--edition", "2024", "-O", "-g", "-o"])
            .arg(&program)
            .arg(source("shares.rs")),
    );
    let Some(recorded) = place.record(Who::Us, "rec", &[], &[&program]).or_skip() else { return };
    let work = full_name(&recorded, "::work");
    let churn = full_name(&recorded, "::churn");
    let with_closure = full_name(&recorded, "::with_closure");
    let stirred = full_name(&recorded, "::stirred");
    let closure = full_name(&recorded, "::with_closure::{");
    let functions = [
        (&*work, "work"),
        (&*stirred, "work"),
        (&*churn, "churn"),
        (&*with_closure, "with_closure"),
        (&*closure, "with_closure"),
    ];
    assert_totals(&recorded, &functions);
    for (function, mark) in [(&stirred, "stirred"), (&churn, "churn"), (&closure, "closure")] {
        assert_on_line(&recorded, function, line_of("shares.rs", mark));
    }
    assert_whole(&recorded, "main");
}

/// The function's frames are on that line: in its own time, or in that of what was inlined into the line.
fn assert_on_line(recorded: &Recorded, function: &str, line: u64) {
    let answer = recorded.ask("query --group-by function,line --limit 1000");
    let of: Vec<_> = rows(&answer).iter().filter(|row| row["key"]["function"] == function).collect();
    let total = |row: &&serde_json::Value| row["total"].as_f64().unwrap();
    let all: f64 = of.iter().map(total).sum();
    let at: f64 = of.iter().filter(|row| row["key"]["line"] == line).map(total).sum();
    assert!(at / all > 0.9, "{function} is {} at line {line}: {of:#?}", at / all);
}

/// Functions that call nothing have no frame in Go, and their callers are there all the same.
#[test]
fn go_functions_and_the_bottom_of_goroutines() {
    go_is_right("auto");
}

#[test]
fn go_by_unwind_tables() {
    go_is_right("dwarf");
}

fn go_is_right(unwind: &str) {
    if !has_go() {
        return;
    }
    let place = Place::new();
    let program = place.path("shares_go");
    built(Command::new("go").args(["build", "-o"]).arg(&program).arg(source("shares.go")));
    let recorded = place.record(Who::Us, "rec", &["--unwind", unwind], &[&program]);
    let Some(recorded) = recorded.or_skip() else { return };
    assert_totals(
        &recorded,
        &[
            ("main.half", "half"),
            ("main.outer", "outer"),
            ("main.inner", "outer"),
            ("main.fifth", "fifth"),
            ("main.mixedIn", "fifth"),
        ],
    );
    assert_line(&recorded, "main.half", line_of("shares.go", "half"), 1.0);
    assert_line(&recorded, "main.mixedIn", line_of("shares.go", "mixedIn"), 1.0);
    assert_line(&recorded, "main.inner", line_of("shares.go", "inner"), 1.0);
    assert_bottom(&recorded, "main.main", 0.96);
    assert_path(
        &recorded,
        "main.inner",
        &["main.main", "main.measured", "main.outer", "main.middle", "main.inner"],
    );
    assert_bottom(&recorded, &full_name(&recorded, "runtime.goexit"), 0.96);
}

fn has_go() -> bool {
    let is_there = Command::new("go").arg("version").output().is_ok_and(|done| done.status.success());
    if !is_there {
        eprintln!("SKIPPED: there is no go here");
    }
    is_there
}

/// The whole name of the largest function whose name holds `part`.
fn full_name(recorded: &Recorded, part: &str) -> String {
    let answer = recorded.ask("query --group-by function --limit 1000 --detail full");
    let mut found: Vec<_> = rows(&answer)
        .iter()
        .filter_map(|row| Some((row["total"].as_u64()?, row["key"]["function"].as_str()?)))
        .filter(|(_, name)| name.contains(part) && (part.contains('{') || !name.contains('{')))
        .collect();
    found.sort();
    found.last().unwrap_or_else(|| panic!("no function with {part} in {answer:#}")).1.to_owned()
}
