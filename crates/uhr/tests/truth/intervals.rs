//! How often the printed intervals hold the truth: twenty functions in one recording.

use crate::harness::{Place, Who, number, row};
use crate::shares::interval;

#[test]
fn printed_intervals_hold_the_truth() {
    let place = Place::new();
    let program = place.c("many.c", &[]);
    let Some(recorded) = place.record(Who::Us, "rec", &[], &[&program]).or_skip() else { return };
    let truth = recorded.truth();
    let answer = recorded.ask("query --group-by function --limit 1000");
    let (mut missed, mut refused) = (Vec::new(), 0);
    for part in 1..=20 {
        let name = format!("part_{part:02}");
        let share = number(&truth, &name) / number(&truth, "cpu_ns");
        let printed = row(&answer, "function", &name);
        if printed["interval_note"] == "long-phases" {
            refused += 1;
            continue;
        }
        let [low, high] = interval(printed, "total");
        assert!(high - low < 0.1, "{name}: [{low}, {high}] says nothing");
        if !(low..=high).contains(&share) {
            missed.push((name, low, share, high));
        }
    }
    // One of twenty is expected (10 of 196 in ten runs); the shares add up to one, so misses come together, and more of
    // them on a loaded machine: five were seen once.
    assert!(missed.len() < 7, "{missed:?}");
    assert!(refused < 5, "{refused} of twenty rows are said to come in long phases, and none does");
    assert!(answer["rows"].as_array().unwrap().is_sorted_by(|a, b| a["self"].as_u64() >= b["self"].as_u64()));
}
