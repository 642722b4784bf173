//! Questions about waits: who ended them, which were for work, and where.

use serde_json::json;

use crate::fixture::Fixture;
use crate::text::golden_of;

#[test]
fn waits_as_people_see_them() {
    let fixture = Fixture::of_waits();
    golden_of(&fixture, "waits-overview", &["overview", "rec"], 100);
    golden_of(&fixture, "waits-waker", &["query", "rec", "-m", "off-cpu", "-g", "waker"], 100);
    golden_of(&fixture, "waits-kind", &["query", "rec", "-m", "off-cpu", "-g", "wait,syscall"], 100);
    golden_of(&fixture, "waits-chains", &["call-paths", "rec", "--wakers"], 100);
    golden_of(&fixture, "waits-chains-narrow", &["call-paths", "rec", "--wakers", "--thread", "taker"], 60);
    golden_of(&fixture, "waits-places", &["query", "rec", "-g", "container,syscall,cpu"], 100);
}

#[test]
fn waiting_for_work_is_shown_on_request() {
    let fixture = Fixture::of_waits();
    let ask = |more: &[&str]| {
        let args = [&["query", "rec", "-m", "off-cpu", "-g", "thread", "--json"], more].concat();
        fixture.run(&args).json()
    };
    assert_eq!(ask(&[])["metric"]["total"], 17_000_000_000_u64);
    assert_eq!(ask(&[])["metric"]["idle_hidden"], 10_000_000_000_u64);
    assert_eq!(ask(&["--idle"])["metric"]["total"], 27_000_000_000_u64);
    assert_eq!(ask(&["--wait", "idle"])["metric"]["total"], 10_000_000_000_u64);
    assert_eq!(ask(&["--waker", "giver"])["metric"]["total"], 9_000_000_000_u64);
    assert_eq!(ask(&["--waker", "timer", "--syscall", "230"])["metric"]["total"], 8_000_000_000_u64);
}

#[test]
fn a_chain_is_a_list_of_threads_and_interrupts() {
    let fixture = Fixture::of_waits();
    let answer = fixture.run(&["call-paths", "rec", "--wakers", "--thread", "taker", "--json"]).json();
    let giver = json!({"name": "giver", "tid": 101, "pid": 100});
    assert_eq!(answer["rows"][0]["waiter"], json!({"name": "taker", "tid": 102, "pid": 100}));
    assert_eq!(answer["rows"][0]["woken_by"], json!([giver, {"interrupt": "timer"}]));
    assert_eq!(answer["rows"][0]["waker_function"], "give_lock");
    assert_eq!(answer["rows"][0]["self"], 7_000_000_000_u64);
    assert_eq!(answer["rows"][1]["woken_by"], json!([giver, {"name": "client", "tid": 700, "pid": 700}]));
}

#[test]
fn what_makes_no_sense_is_wrong_usage() {
    let fixture = Fixture::of_waits();
    let status = |args: &[&str]| fixture.run(args).status;
    assert_eq!(status(&["call-paths", "rec"]), 2, "neither a function nor wakers");
    assert_eq!(status(&["call-paths", "rec", "--wakers", "--function", "serve"]), 2);
    assert_eq!(status(&["call-paths", "rec", "--wakers", "--metric", "cpu"]), 2);
    assert_eq!(status(&["query", "rec", "--metric", "off-cpu", "--wait", "rain"]), 2);
    assert_eq!(status(&["query", "rec", "--syscall", "fly"]), 2);
    assert_eq!(status(&["query", "rec", "--wait", "lock"]), 2, "time on a CPU is no wait");
    assert_eq!(status(&["query", "rec", "--metric", "off-cpu", "--group-by", "cpu"]), 2);
    assert_eq!(status(&["query", "rec", "--metric", "off-cpu", "--waker", "nobody"]), 1);
}

#[test]
fn answers_about_waits_are_short() {
    let fixture = Fixture::of_waits();
    for args in [&["overview", "rec"][..], &["call-paths", "rec", "--wakers"]] {
        for json in [&[][..], &["--json"]] {
            let answer = fixture.run(&[args, json].concat()).stdout;
            assert!(answer.len() < 4096, "{args:?} {json:?}: {} bytes", answer.len());
        }
    }
}
