//! What recording may cost: rates are lowered, and what is told stays right.

use uhr_recording::Recording;

use crate::harness::{Place, Who, has_ebpf, number, taken_ns};
use crate::shares::assert_totals;

#[test]
fn rates_are_lowered_to_keep_to_a_limit_and_shares_stay_right() {
    if !has_ebpf() {
        return;
    }
    let place = Place::new();
    let program = place.c("long.c", &[]);
    let before_ns = taken_ns();
    // Less than any recording costs.
    let limit = ["--sampler", "ebpf", "--max-overhead", "0.01%"];
    let recorded = place.record(Who::Us, "rec", &limit, &[&program]);
    let Some(recorded) = recorded.or_skip() else { return };
    let taken_ns = taken_ns() - before_ns;
    let answer = recorded.ask("query --group-by process");
    let (total, cpu_ns) = (number(&answer["metric"], "total"), number(&recorded.truth(), "cpu_ns"));
    assert!((cpu_ns * 0.98..=cpu_ns * 1.02 + taken_ns).contains(&total), "{total}, and it was {cpu_ns}");
    let coverage = &answer["coverage"];
    let (expected, throttled) = (number(coverage, "expected"), number(coverage, "throttled"));
    assert!(throttled > expected / 2.0, "most is left out, and counted: {coverage:#}");
    assert!(number(coverage, "captured") > 50.0, "but not all: {coverage:#}");
    let notes = coverage["notes"].as_array().unwrap();
    let told = notes.iter().any(|note| note.as_str().unwrap().contains("to keep to 0.01 % of the CPUs"));
    assert!(told, "{notes:?}");
    assert_totals(&recorded, &[("most", "most"), ("some", "some")]);
}

/// What comes near the host's limit the kernel would hold back.
#[test]
fn a_rate_above_the_limit_of_the_host_is_lowered_and_it_is_said() {
    let limit = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").unwrap();
    let limit: u32 = limit.trim().parse().unwrap();
    let asked = limit.to_string();
    for sampler in ["perf", "ebpf"] {
        if sampler == "ebpf" && !has_ebpf() {
            return;
        }
        let place = Place::new();
        let recorded = place.record(Who::Us, "rec", &["--sampler", sampler, "-F", &asked], &[&"true"]);
        let Some(recorded) = recorded.or_skip() else { return };
        let manifest = Recording::open(&recorded.rec).unwrap().manifest;
        assert_eq!(manifest.settings.frequency_hz, limit / 2, "{sampler}");
        assert_eq!(manifest.settings.frequency_asked_hz, limit);
        let said = manifest.notes.join("\n");
        assert!(said.contains("sudo sysctl kernel.perf_event_max_sample_rate="), "{sampler}: {said}");
    }
}
