//! Programs whose file is another one by the time that they are recorded, as after an upgrade, or gone.

use std::fs;
use std::process::Command;

use crate::harness::{Place, Recorded, Running, Who, built, number, rows, wait_until};

/// A program that only works in a function of that name. What comes before it makes two of them lie differently.
fn build(place: &Place, out: &str, function: &str, before: usize) {
    let padding: String = (0..before).map(|n| format!("int pad{n}(int x) {{ return x * {n}; }}\n")).collect();
    let source = format!(
        "#include <stdio.h>\nvolatile unsigned long sink;\n{padding}
        __attribute__((noinline)) void {function}(unsigned long n) {{ while (n--) sink += n; }}
        int main(void) {{ puts(\"up\"); fflush(stdout); for (;;) {function}(100000); }}\n"
    );
    let file = place.path(&format!("{out}.c"));
    fs::write(&file, source).unwrap();
    built(
        Command::new("gcc").args(["-O1", "-g", "-Wl,--build-id"]).arg(&file).arg("-o").arg(place.path(out)),
    );
}

fn has(recorded: &Recorded, function: &str) -> bool {
    let answer = recorded.ask("query --group-by function --limit 1000");
    rows(&answer).iter().any(|row| row["key"]["function"] == function && number(row, "self_share") > 0.8)
}

#[test]
fn names_are_those_of_the_file_that_runs() {
    let place = Place::new();
    for (number, is_replaced) in [true, false].into_iter().enumerate() {
        let rec = format!("rec{number}");
        build(&place, "program", "old_work", 0);
        build(&place, "other", "new_work", 300);
        let program = place.path("program");
        let target = Running::program(&place, "program", &mut Command::new(&program));
        wait_until("it runs", || target.said().contains("up"));
        if is_replaced {
            fs::rename(place.path("other"), &program).unwrap();
        } else {
            fs::remove_file(&program).unwrap();
        }
        let pid = target.pid().to_string();
        let Some(recorded) =
            place.record(Who::Us, &rec, &["--duration", "500ms", "--pid", &pid], &[]).or_skip()
        else {
            return;
        };
        assert!(has(&recorded, "old_work"), "replaced: {is_replaced}");
        // Later the file that runs is gone for good; what stands at its path does not name it anew.
        drop(target);
        let again =
            Command::new(env!("CARGO_BIN_EXE_uhr")).arg("symbolize").arg(&recorded.rec).output().unwrap();
        assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
        assert!(has(&recorded, "old_work"));
        let answer = recorded.ask("query --group-by function --limit 1000");
        let names = rows(&answer).iter().map(|row| row["key"]["function"].as_str().unwrap_or_default());
        assert!(names.into_iter().all(|name| !name.contains("new_work") && !name.starts_with("pad")));
    }
}
