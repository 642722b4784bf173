//! uhr itself stopped for a while in the midst of a recording: its rings run over, what is lost is told, and what is left is
//! right.

use std::time::Duration;

use uhr_recording::Recording;

use crate::harness::{Place, Who, assert_near, has_ebpf, number, row, wait_until};

#[test]
fn what_is_lost_while_uhr_is_stopped_is_told() {
    if has_ebpf() {
        check("ebpf", "20000");
    }
}

#[test]
fn what_is_lost_while_uhr_is_stopped_is_told_by_perf_events() {
    check("perf", "2000");
}

fn check(sampler: &str, frequency: &str) {
    let place = Place::new();
    let program = place.c("many_stacks.c", &[]);
    let uhr = place.start(Who::Us, "rec", &["--sampler", sampler, "-F", frequency], &[&program, &"5"]);
    let is_begun = || uhr.rec.join("manifest.json").exists() || !uhr.complained().is_empty();
    wait_until("it records", is_begun);
    std::thread::sleep(Duration::from_millis(500));
    uhr.signal("STOP");
    std::thread::sleep(Duration::from_secs(3));
    uhr.signal("CONT");
    let Some(recorded) = uhr.end().or_skip() else { return };
    let ledger = Recording::open(&recorded.rec).unwrap().manifest.ledger;
    let cpu = ledger.cpu;
    let known = cpu.captured + cpu.lost + cpu.throttled + cpu.not_visible + cpu.too_short + cpu.drift;
    assert_eq!(known, cpu.expected, "{cpu:?}");
    // What else is missing (`drift`) are threads that a timer wakes: their turns begin behind the clock's tick.
    assert_eq!(recorded.stderr.contains("samples lost"), cpu.lost > 0, "{}", recorded.stderr);
    if sampler == "perf" {
        assert!(cpu.lost > 0, "its rings do not hold so much: {cpu:?}");
    }
    let (truth, answer) =
        (recorded.truth(), recorded.ask("query --under main --group-by function --limit 1000"));
    let [hot, cold] =
        ["hot_path", "cold_paths"].map(|name| number(row(&answer, "function", name), "total_samples"));
    let planted = number(&truth, "hot_path") / number(&truth, "cold_paths");
    assert_near("hot to cold", hot / cold, planted, 0.1);
}
