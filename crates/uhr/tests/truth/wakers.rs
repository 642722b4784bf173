//! Who ended a wait, and who had woken that one.

use serde_json::Value;

use crate::harness::{Place, Recorded, Who, has_ebpf, number, rows};

/// The share of a thread's waits that this ended, of those that it was seen of who did. Some hosts do not tell what happens while
/// certain threads run (those of a machine's supervisor): of some thirty waits that had their stack taken, one or two.
fn share_by(recorded: &Recorded, thread: &str, is_it: impl Fn(&Value) -> bool) -> f64 {
    let answer = recorded.ask(&format!("query --metric off-cpu --group-by waker --thread {thread}"));
    let share = |is_it: &dyn Fn(&Value) -> bool| -> f64 {
        rows(&answer)
            .iter()
            .filter(|row| is_it(&row["key"]["waker"]))
            .map(|row| number(row, "self_share"))
            .sum()
    };
    let seen = 1.0 - share(&Value::is_null);
    assert!(seen > 0.85, "of {thread} only {seen} of the waits have a waker: {answer:#}");
    share(&is_it) / seen
}

/// The share of a thread's waits at whose end these threads had woken each other, the last first, and the timer the
/// first of them.
fn share_of_chain(recorded: &Recorded, thread: &str, chain: &[&str]) -> f64 {
    let answer = recorded.ask(&format!("call-paths --wakers --limit 1000 --thread {thread}"));
    let is_it = |row: &&Value| {
        let woken_by = row["woken_by"].as_array().unwrap();
        let is_chain = chain
            .iter()
            .enumerate()
            .all(|(hop, name)| woken_by.get(hop).is_some_and(|by| by["name"] == *name));
        is_chain && woken_by.get(chain.len()).is_some_and(|by| by["interrupt"] == "timer")
    };
    rows(&answer).iter().filter(is_it).map(|row| number(row, "self_share")).sum()
}

fn assert_nearly_all(what: &str, share: f64) {
    assert!(share > 0.98, "{what}: only {share} of the waits");
}

fn record(place: &Place) -> Option<Recorded> {
    let program = place.c("relay.c", &[]);
    let recorded = place.record(Who::Us, "rec", &["--sampler", "ebpf"], &[&program, &"300"]).or_skip()?;
    let (truth, waits) =
        (recorded.truth(), recorded.ask("query --metric off-cpu --group-by thread --limit 100"));
    for (thread, truth) in truth.as_object().unwrap().iter().filter(|(_, truth)| truth.is_object()) {
        let seen = number(crate::harness::row(&waits, "thread", thread), "self");
        let (least, most) = (number(truth, "least_ns"), number(truth, "most_ns"));
        // It was created later than it began to count, and may wait once more at its end.
        let is_so = least * 0.97 <= seen && seen <= most * 1.03;
        assert!(is_so, "{thread}: {seen}, and it was {least} to {most}");
    }
    Some(recorded)
}

#[test]
fn a_relays_wakers_are_named_and_chained() {
    if !has_ebpf() {
        return;
    }
    let place = Place::new();
    let Some(recorded) = record(&place) else { return };
    for means in ["futex", "pipe"] {
        let [first, second, third] = [1, 2, 3].map(|place| format!("{means}-{place}"));
        assert_nearly_all(&second, share_by(&recorded, &second, |waker| waker["name"] == first));
        assert_nearly_all(&third, share_by(&recorded, &third, |waker| waker["name"] == second));
        assert_nearly_all("all hops", share_of_chain(&recorded, &third, &[&second, &first]));
    }
}

#[test]
fn sleeps_are_ended_by_the_timer_and_packets_by_the_network_or_their_sender() {
    if !has_ebpf() {
        return;
    }
    let place = Place::new();
    let Some(recorded) = record(&place) else { return };
    for sleeper in ["futex-1", "pipe-1", "loopback-1"] {
        assert_nearly_all(sleeper, share_by(&recorded, sleeper, |waker| waker["interrupt"] == "timer"));
    }
    for (receiver, sender) in [("loopback-2", "loopback-1"), ("loopback-3", "loopback-2")] {
        let is_it = |waker: &Value| waker["interrupt"] == "network" || waker["name"] == sender;
        assert_nearly_all(receiver, share_by(&recorded, receiver, is_it));
    }
}
