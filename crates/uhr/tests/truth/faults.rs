//! Page faults and resident memory: a known number of pages of each kind.

use crate::harness::{Place, Recorded, Who, assert_near, number, row, rows};

/// Records the program; holds everything against its own count but how the faults are shared out.
fn record(who: Who, sampler: &str, pages: &str, steps: &str) -> Option<(Place, Recorded)> {
    let place = Place::new();
    let program = place.c("faults.c", &[]);
    let file = place.path("pages");
    let options = ["--sampler", sampler];
    let recorded = place.record(who, "rec", &options, &[&program, &file, &pages, &steps]).or_skip()?;
    let truth = recorded.truth();
    let all = recorded.ask("query --metric page-faults --group-by function");
    assert_near("all", number(&all["metric"], "total"), number(&truth, "all"), 0.02);
    let memory = recorded.ask("query --metric resident --group-by process");
    let peak = number(row(&memory, "process", "faults"), "max");
    assert_near("peak", peak, number(&truth, "peak_bytes"), 0.03);
    Some((place, recorded))
}

/// `more`: faults of the program's start in the same kind of memory, at most.
fn shares_are_right(recorded: &Recorded, tolerance: f64, more: f64) {
    let truth = recorded.truth();
    let by_function = recorded.ask("query --metric page-faults --group-by function --limit 1000");
    let by_region = recorded.ask("query --metric page-faults --group-by region");
    for kind in ["anonymous", "heap", "file"] {
        let (function, planted) = (format!("touches_{kind}"), number(&truth, kind));
        assert_near(&function, number(row(&by_function, "function", &function), "total"), planted, tolerance);
        let seen = number(row(&by_region, "region", kind), "self");
        let (least, most) = (planted * (1.0 - tolerance), (planted + more) * (1.0 + tolerance));
        assert!((least..=most).contains(&seen), "{kind}: {seen} of {planted} faults");
    }
}

/// Faults are sampled at a fixed distance: a function's count is right to within one distance at each of its ends.
#[test]
fn page_faults_by_function_and_region_and_the_peak_of_memory() {
    let recorded = record(Who::Us, "auto", "8000", "0");
    recorded.inspect(|(_place, recorded)| shares_are_right(recorded, 0.02, 150.0));
}

#[test]
fn page_faults_by_perf_events() {
    let recorded = record(Who::Us, "perf", "8000", "0");
    recorded.inspect(|(_place, recorded)| shares_are_right(recorded, 0.02, 150.0));
}

#[test]
fn an_ordinary_user_sees_page_faults_too() {
    let recorded = record(Who::Ordinary, "auto", "8000", "1000");
    recorded.inspect(|(_place, recorded)| shares_are_right(recorded, 0.02, 150.0));
}

/// What the kernel maps as a whole costs one fault for 512 pages.
#[test]
fn page_faults_by_the_size_of_the_page() {
    let place = Place::new();
    let program = place.c("huge.c", &[]);
    let recorded = place.record(Who::Us, "rec", &[], &[&program]).or_skip();
    let Some(recorded) = recorded else { return };
    let truth = recorded.truth();
    if number(&truth, "huge_bytes") == 0.0 {
        eprintln!("SKIPPED: this kernel gives no huge pages");
        return;
    }
    let answer = recorded.ask("query --metric page-faults --group-by page-size,function --limit 1000");
    let of = |size: &str, function: &str| {
        let is_it =
            |row: &&serde_json::Value| row["key"]["page-size"] == size && row["key"]["function"] == function;
        rows(&answer).iter().filter(is_it).map(|row| number(row, "total")).sum::<f64>()
    };
    if rows(&answer).iter().all(|row| row["key"]["page-size"].is_null()) {
        eprintln!("SKIPPED: this kernel does not tell of page sizes (before Linux 6.7)");
        return;
    }
    // 200 faults are three samples or so; without huge pages they would be 102,400.
    assert!((50.0..500.0).contains(&of("huge", "touches_huge")), "{answer:#}");
    assert!((of("base", "touches_small") - 8000.0).abs() < 300.0, "{answer:#}");
    assert_eq!(of("huge", "touches_small") + of("base", "touches_huge"), 0.0, "{answer:#}");
}
