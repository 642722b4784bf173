//! Agreement with `perf record` and `perf report`, on the same process in the same two seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use uhr_recording::Recording;
use uhr_recording::tables::Mappings;

use crate::harness::{Place, Recorded, Running, Who, has, row, rows, wait_until};
use crate::shares::interval;

/// Both profilers on a program that runs for as long as they need.
fn record_both() -> Option<(Place, Recorded, String)> {
    if !has("perf") {
        return None;
    }
    let place = Place::new();
    let program = place.c("shares.c", &["-fno-omit-frame-pointer", "-DKEEP_FRAMES"]);
    let mut target = Running::program(&place, "target", Command::new(&program).arg("30"));
    let pid = target.pid().to_string();
    let data = place.path("perf.data");
    let mut perf = Command::new("perf");
    perf.args(["record", "-F", "999", "-e", "cpu-clock", "-g", "-p", &pid, "-o"])
        .arg(&data)
        .args(["--", "sleep", "2"]);
    let perf = Running::program(&place, "perf", &mut perf);
    wait_until("perf writes", || data.metadata().is_ok_and(|file| file.len() > 0));
    let recorded = place.record(Who::Us, "rec", &["--duration", "2s", "--pid", &pid], &[]);
    let perf = perf.end();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    target.kill();
    let recorded = recorded.or_skip()?;
    if perf.code() != 0 {
        eprintln!("SKIPPED: perf cannot record here: {}", perf.stderr);
        return None;
    }
    Some((place, recorded, maps))
}

fn perf(place: &Place, arguments: &[&str]) -> String {
    let (verb, rest) = arguments.split_first().unwrap();
    let done =
        Command::new("perf").arg(verb).arg("-i").arg(place.path("perf.data")).args(rest).output().unwrap();
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Functions as `perf report` has them: samples in each, callees not counted.
fn perf_functions(place: &Place) -> BTreeMap<String, f64> {
    let arguments = [
        "report",
        "--stdio",
        "--no-children",
        "--no-inline",
        "-g",
        "none",
        "-F",
        "sample,sym",
        "--percent-limit",
        "0",
    ];
    let mut found = BTreeMap::new();
    for line in perf(place, &arguments).lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let (Some(samples), Some(_mode), Some(name)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        *found.entry(name.to_owned()).or_default() += samples.parse::<f64>().unwrap();
    }
    found
}

#[test]
fn the_same_functions_with_the_same_shares_as_perf() {
    let Some((place, recorded, _)) = record_both() else { return };
    let theirs = perf_functions(&place);
    let all: f64 = theirs.values().sum();
    assert!(all > 200.0, "{theirs:?}");
    let ours = recorded.ask("query --group-by function --limit 1000");
    let mut top: Vec<(&String, &f64)> = theirs.iter().collect();
    top.sort_by(|a, b| b.1.total_cmp(a.1));
    for (name, samples) in top.iter().take(3) {
        // perf shows no inlined function here: the whole function's own time is what uhr has below it.
        let share = *samples / all;
        let row = row(&ours, "function", name);
        let [low, high] = interval(row, "total");
        // perf's own error, of twice its binomial deviation; windows and moments of sampling differ.
        let theirs = 2.0 * (share * (1.0 - share) / all).sqrt() + 0.01;
        assert!((low - theirs..=high + theirs).contains(&share), "{name}: perf {share}, uhr [{low}, {high}]");
    }
    let first: BTreeSet<&str> = top.iter().take(3).map(|(name, _)| name.as_str()).collect();
    assert_eq!(first, BTreeSet::from(["fifth", "half", "inner"]));
    let named: Vec<&str> =
        rows(&ours).iter().take(3).filter_map(|row| row["key"]["function"].as_str()).collect();
    assert_eq!(named, ["half", "inner", "mixed_in"]);
}

#[test]
fn the_same_threads_and_mappings_as_perf_and_the_kernel() {
    let Some((place, recorded, maps)) = record_both() else { return };
    let theirs: BTreeSet<u64> = perf(&place, &["script", "-F", "tid"])
        .split_whitespace()
        .filter_map(|tid| tid.parse().ok())
        .collect();
    let answer = recorded.ask("query --group-by thread --limit 100");
    let ours: BTreeSet<u64> =
        rows(&answer).iter().filter_map(|row| row["key"]["thread"]["tid"].as_u64()).collect();
    assert_eq!(ours, theirs);

    let recording = Recording::open(&recorded.rec).unwrap();
    let mappings: Mappings = recording.table().unwrap();
    let ours: BTreeSet<(u64, u64)> =
        mappings.start.iter().copied().zip(mappings.end.iter().copied()).collect();
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let executable = maps.lines().filter(|line| line.split_whitespace().nth(1).unwrap().contains('x'));
    let kernels: BTreeSet<(u64, u64)> = executable
        .map(|line| line.split_whitespace().next().unwrap().split_once('-').unwrap())
        .map(|(start, end)| (hexadecimal(start), hexadecimal(end)))
        .collect();
    let difference: Vec<String> =
        ours.symmetric_difference(&kernels).map(|(start, end)| format!("{start:x}-{end:x}")).collect();
    assert!(difference.is_empty(), "only one of us has {difference:?}: {maps}");
}
