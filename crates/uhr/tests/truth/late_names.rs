//! Names that come after the recording: from debug files that were installed later, and from the cache of debuginfod.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Place, Who, rows};

const PROGRAM: &str = "#include <time.h>
volatile unsigned long sink;
__attribute__((noinline)) static void hidden(unsigned long n) { while (n--) sink += n; }
static double now(void) { struct timespec at; clock_gettime(CLOCK_MONOTONIC, &at); return at.tv_sec + at.tv_nsec / 1e9; }
int main(void) { double end = now() + 0.4; while (now() < end) hidden(100000); return 0; }
";

fn run(tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool).args(arguments).output().unwrap();
    assert!(output.status.success(), "{tool} {arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn symbolize(rec: &Path, variables: &[(&str, &Path)], arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uhr"));
    command.env_remove("DEBUGINFOD_URLS").envs(variables.iter().copied());
    let output = command.arg("symbolize").arg(rec).arg("--json").args(arguments).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Every file of the recording, but those that hold names.
fn captured(rec: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(rec).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_file()) {
        let name = entry.file_name().into_string().unwrap();
        if !["locations.parquet", "modules.parquet", "manifest.json"].contains(&name.as_str()) {
            files.insert(name, fs::read(entry.path()).unwrap());
        }
    }
    files
}

#[test]
fn names_are_filled_in_later_and_never_taken_away() {
    let place = Place::new();
    let text = |name: &str| place.path(name).to_str().unwrap().to_owned();
    fs::write(place.path("late.c"), PROGRAM).unwrap();
    run("gcc", &["-O2", "-g", "-Wl,--build-id", &text("late.c"), "-o", &text("late")]);
    run("objcopy", &["--only-keep-debug", &text("late"), &text("away")]);
    fs::copy(place.path("away"), place.path("late.debug")).unwrap();
    run("objcopy", &["--strip-all", &format!("--add-gnu-debuglink={}", text("late.debug")), &text("late")]);
    fs::remove_file(place.path("late.debug")).unwrap();
    let program = place.path("late");
    let Some(recorded) = place.record(Who::Us, "rec", &[], &[&program]).or_skip() else { return };
    let has_hidden = || {
        let answer = recorded.ask("query --group-by function,line --limit 1000");
        rows(&answer).iter().any(|row| row["key"]["function"] == "hidden" && row["key"]["line"] == 3)
    };
    let rec = &recorded.rec;
    let before = captured(rec);
    assert!(before.contains_key("samples.parquet"));
    assert_eq!(symbolize(rec, &[], &[])["added"]["names"], 0);
    assert!(!has_hidden());

    // As a server would have left it there; the server itself is not there.
    let notes = run("readelf", &["-n", &text("late")]);
    let id = notes.split("Build ID: ").nth(1).unwrap().split_whitespace().next().unwrap();
    let cache = place.path("cache");
    fs::create_dir_all(cache.join(id)).unwrap();
    fs::copy(place.path("away"), cache.join(id).join("debuginfo")).unwrap();
    let dead = Path::new("http://127.0.0.1:1");
    let copy = place.path("copy");
    run("cp", &["-r", rec.to_str().unwrap(), copy.to_str().unwrap()]);
    let by_cache = symbolize(&copy, &[("DEBUGINFOD_CACHE_PATH", &cache), ("DEBUGINFOD_URLS", dead)], &[]);
    assert!(by_cache["added"]["names"].as_u64().unwrap() > 0, "{by_cache:#}");
    let source = &by_cache["modules"][0]["source"];
    assert!(source.as_str().unwrap().contains("from debuginfod"), "{by_cache:#}");
    let refused = symbolize(rec, &[], &["--debuginfod"]);
    assert_eq!((&refused["ok"], &refused["error"]["code"]), (&Value::Bool(false), &"no-servers".into()));

    // Installed beside the program.
    fs::copy(place.path("away"), place.path("late.debug")).unwrap();
    let answer = symbolize(rec, &[], &[]);
    assert!(answer["added"]["names"].as_u64().unwrap() > 0, "{answer:#}");
    assert_eq!(answer["modules"][0]["path"], text("late"));
    assert!(has_hidden());
    assert_eq!(captured(rec), before);

    // Another time there is nothing to add; nor is anything lost when all files are gone.
    let names = fs::read(rec.join("locations.parquet")).unwrap();
    for name in ["late", "late.debug"] {
        assert_eq!(
            symbolize(rec, &[], &[])["added"],
            serde_json::json!({"names": 0, "lines": 0, "inlined": 0})
        );
        fs::remove_file(place.path(name)).unwrap();
    }
    assert_eq!(symbolize(rec, &[], &[])["added"]["names"], 0);
    assert_eq!(fs::read(rec.join("locations.parquet")).unwrap(), names);
    assert!(has_hidden());
}
