//! A storm of page faults, and faults that had to read from a disk.

use uhr_recording::Recording;
use uhr_recording::tables::Faults;

use crate::harness::{Place, Who, assert_near, has_ebpf, number, row};

#[test]
fn minor_and_major_faults() {
    if !has_ebpf() {
        return;
    }
    let place = Place::new();
    let program = place.c("storm.c", &[]);
    let file = place.path("pages");
    let recorded = place.record(Who::Us, "rec", &["--sampler", "ebpf"], &[&program, &file]);
    let Some(recorded) = recorded.or_skip() else { return };
    let truth = recorded.truth();
    let by_function = recorded.ask("query --metric page-faults --group-by function --limit 1000");
    assert_near("all", number(&by_function["metric"], "total"), number(&truth, "all"), 0.02);
    let storm = number(row(&by_function, "function", "storms"), "total");
    assert_near("storm", storm, number(&truth, "storm"), 0.02);
    let by_region = recorded.ask("query --metric page-faults --group-by region");
    let anonymous = number(row(&by_region, "region", "anonymous"), "self");
    assert!(anonymous >= number(&truth, "storm") * 0.99, "{by_region:#}");
    let planted = number(&truth, "major");
    if planted < 100.0 {
        eprintln!("SKIPPED: this file system has no major page faults");
        return;
    }
    let faults = Recording::open(&recorded.rec).unwrap().table::<Faults>().unwrap();
    let major =
        (0..faults.major.len()).filter(|&at| faults.major[at]).map(|at| faults.weight[at]).sum::<u64>();
    assert_near("major", major as f64, planted, 0.02);
    let by_fault = recorded.ask("query --metric page-faults --group-by fault,region");
    let from_disk = number(row(&by_fault, "fault", "major"), "self");
    assert_near("fault major", from_disk, planted, 0.03);
    assert_eq!(row(&by_fault, "fault", "major")["key"]["region"], "file");
    let read_back = number(row(&by_function, "function", "reads_back"), "total");
    assert_near("reads_back", read_back, planted, 0.03);
}
