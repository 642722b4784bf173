//! More waiting threads than one look takes: the next look goes on where it stopped, so that each has its turn.

use crate::harness::{Place, Who, has_ebpf, number, row, rows};

#[test]
fn each_of_a_crowd_is_looked_at_in_its_turn() {
    if !has_ebpf() {
        return;
    }
    let place = Place::new();
    let program = place.c("crowd.c", &[]);
    let recorded = place.record(Who::Us, "rec", &["--sampler", "ebpf"], &[&program]);
    let Some(recorded) = recorded.or_skip() else { return };
    let truth = recorded.truth();
    let by_name = recorded.ask("query --metric off-cpu --idle --group-by thread-name");
    for name in ["waiter", "sleeper"] {
        let (seen, away) = (number(row(&by_name, "thread-name", name), "self"), number(&truth, name));
        assert!((0.97..1.03).contains(&(seen / away)), "{name}: {seen}, and it was {away}");
    }
    // Those who wait all the time have all been looked at, though others come before them again and again.
    let code = recorded.ask("query --metric off-cpu --idle --thread waiter --group-by function --limit 100");
    let waiting = number(row(&code, "function", "waits"), "total_share");
    assert!(waiting > 0.97, "{waiting} of the waiting has a stack: {code:#}");
    // However rows are put together, what is said of them stays the same.
    let notes = |by: &str| {
        let answer = recorded.ask(&format!("query --metric off-cpu --idle --group-by {by}"));
        assert!(!rows(&answer).is_empty());
        let notes = answer["coverage"]["notes"].as_array().unwrap().clone();
        notes.into_iter().find(|note| note.as_str().unwrap().contains("had their stack taken"))
    };
    assert_eq!(notes("wait"), notes("thread,function"));
}
