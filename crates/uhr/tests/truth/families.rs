//! Processes and threads under their names: renamed, forked, executed one after the other under one pid.

use uhr_recording::Recording;

use crate::harness::{Place, Who, assert_near, number, row, rows};

/// Of an ordinary user's processes, kernel time stands in a row of its own: some of them is missing in theirs.
fn tolerance(who: Who) -> f64 {
    if who.is_ordinary() { 0.12 } else { 0.04 }
}

fn family_is_right(who: Who, sampler: &str) {
    let place = Place::new();
    let program = place.c("family.c", &[]);
    let Some(recorded) = place.record(who, "rec", &["--sampler", sampler], &[&program]).or_skip() else {
        return;
    };
    let truth = recorded.truth();
    let by_name = recorded.ask("query --group-by thread-name --limit 100");
    for (name, burned) in [("alpha worker", 0.25e9), ("beta worker", 0.25e9), ("renamed child", 0.2e9)] {
        assert_near(name, number(row(&by_name, "thread-name", name), "self"), burned, tolerance(who));
    }
    let by_process = recorded.ask("query --group-by process --limit 100");
    let of = |pid: &str| {
        let pid = number(&truth, pid);
        let rows =
            rows(&by_process).iter().filter(move |row| row["key"]["process"]["pid"].as_f64() == Some(pid));
        rows.map(|row| (row["key"]["process"]["name"].as_str().unwrap(), number(row, "self")))
            .collect::<Vec<_>>()
    };
    assert_eq!(of("pid").len(), 1, "{by_process:#}");
    assert_eq!(of("renamed")[0].0, "renamed child");
    let chain = of("chain");
    let mut burned: Vec<f64> = chain.iter().filter(|(name, _)| *name == "family").map(|row| row.1).collect();
    burned.sort_by(f64::total_cmp);
    assert_eq!(burned.len(), 2, "one row before and one after the execs: {by_process:#}");
    assert_near("before the execs", burned[0], 0.15e9, tolerance(who));
    assert_near("after the execs", burned[1], 0.2e9, tolerance(who));
    // The shell in between is too short for a row of its own time.
    let processes = Recording::open(&recorded.rec).unwrap().processes().unwrap();
    let of_chain = processes.iter().filter(|row| f64::from(row.pid) == number(&truth, "chain"));
    assert_eq!(of_chain.map(|row| row.name.as_str()).collect::<Vec<_>>(), ["family", "sh", "family"]);
}

#[test]
fn names_forks_and_execs() {
    family_is_right(Who::Us, "auto");
}

#[test]
fn names_forks_and_execs_by_perf_events() {
    family_is_right(Who::Us, "perf");
}

#[test]
fn names_forks_and_execs_as_an_ordinary_user() {
    family_is_right(Who::Ordinary, "auto");
}
