//! What an ordinary user gets at the host's own `perf_event_paranoid`, and what he is told he does not.

use crate::harness::{Place, Who, child_of, number, row};
use crate::shares::{assert_share, assert_whole};

/// The host's setting, and whether it keeps the kernel from ordinary users.
fn kernel_is_hidden() -> bool {
    let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    text.trim().parse::<i32>().is_ok_and(|level| level >= 2)
}

#[test]
fn an_ordinary_user_sees_user_code_and_is_told_about_the_kernel() {
    let place = Place::new();
    let program = place.c("shares.c", &[]);
    let Some(recorded) = place.record(Who::Ordinary, "rec", &[], &[&program, &"1.5"]).or_skip() else {
        return;
    };
    let truth = recorded.truth();
    let answer = recorded.ask("query --group-by function --limit 1000");
    for name in ["half", "outer", "fifth"] {
        let share = number(&truth, name) / number(&truth, "cpu_ns");
        assert_share(name, row(&answer, "function", name), "total", share);
    }
    assert_whole(&recorded, "main");
    if !kernel_is_hidden() {
        eprintln!("SKIPPED: this host shows the kernel to everybody");
        return;
    }
    let overview = recorded.ask("overview");
    assert_eq!(overview["trust"]["kernel_visible"], false);
    let notes = overview["trust"]["coverage"]["notes"].to_string();
    assert!(notes.contains("kernel"), "{notes}");
    assert!(
        notes.contains("sysctl") && notes.contains("perf_event_paranoid"),
        "the command that helps: {notes}"
    );
}

/// Kernel time that cannot be looked into is counted: in a row of its own, not in anybody else's.
#[test]
fn kernel_time_of_an_ordinary_user_is_a_row_of_its_own() {
    if !kernel_is_hidden() {
        eprintln!("SKIPPED: this host shows the kernel to everybody");
        return;
    }
    let place = Place::new();
    let recorded = place.record(
        Who::Ordinary,
        "rec",
        &[],
        &[&"dd", &"if=/dev/zero", &"of=/dev/null", &"bs=1M", &"count=20000"],
    );
    let Some(recorded) = recorded.or_skip() else { return };
    let answer = recorded.ask("query --group-by function --limit 100");
    let hidden = row(&answer, "function", "[kernel, not visible]");
    assert!(number(hidden, "self_share") > 0.8, "dd is in the kernel nearly all the time: {answer:#}");
}

#[test]
fn an_ordinary_user_attaches_to_his_own_process() {
    let place = Place::new();
    let program = place.c("phases.c", &[]);
    // The process that is attached to is one that another uhr started for the same user.
    let first = place.start(Who::Ordinary, "first", &["--duration", "3s"], &[&program, &"30"]);
    let mut pid = None;
    crate::harness::wait_until("the command runs", || {
        pid = child_of(first.pid());
        pid.is_some() && !first.said().is_empty()
    });
    let recorded =
        place.record(Who::Ordinary, "rec", &["--duration", "1s", "--pid", &pid.unwrap().to_string()], &[]);
    let Some(recorded) = recorded.or_skip() else { return };
    let answer = recorded.ask("query --group-by function --limit 100");
    assert!(number(&answer["metric"], "samples") > 50.0, "{answer:#}");
    assert_whole(&recorded, "main");
    assert_eq!(first.end().code(), 0);
}
