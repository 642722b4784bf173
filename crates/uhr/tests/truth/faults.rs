//! Page faults and resident memory: a known number of pages of each kind.

use crate::harness::{Place, Who, assert_near, number, row};

fn faults_are_right(who: Who) {
    let place = Place::new();
    let program = place.c("faults.c", &[]);
    let file = place.path("pages");
    let Some(recorded) = place.record(who, "rec", &[], &[&program, &file]).or_skip() else { return };
    let truth = recorded.truth();
    let by_function = recorded.ask("query --metric page-faults --group-by function --limit 1000");
    assert_near("all", number(&by_function["metric"], "total"), number(&truth, "all"), 0.02);
    let by_region = recorded.ask("query --metric page-faults --group-by region");
    for kind in ["anonymous", "heap", "file"] {
        let function = format!("touches_{kind}");
        let seen = number(row(&by_function, "function", &function), "total");
        assert_near(&function, seen, number(&truth, kind), 0.02);
        // The program's start touches pages too, of its files above all.
        assert_near(kind, number(row(&by_region, "region", kind), "self"), number(&truth, kind), 0.04);
    }
    let memory = recorded.ask("query --metric resident --group-by process");
    let peak = number(row(&memory, "process", "faults"), "max");
    assert_near("peak", peak, number(&truth, "peak_bytes"), 0.03);
}

#[test]
fn page_faults_by_function_and_region_and_the_peak_of_memory() {
    faults_are_right(Who::Us);
}

#[test]
fn an_ordinary_user_sees_page_faults_too() {
    faults_are_right(Who::Ordinary);
}
