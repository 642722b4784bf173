//! Page faults and resident memory, in recordings whose truth was worked out by hand.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use serde_json::{Value, json};
use support::{MS, Planted, START, answer, ask};
use uhr_model::{Metric, Region};

#[test]
fn page_faults_by_region() {
    let mut planted = Planted::new(100);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    planted.fault(1, main, &["main", "malloc"], Region::Heap, 5);
    planted.fault(2, main, &["main", "malloc"], Region::Heap, 7);
    planted.fault(3, main, &["main"], Region::Stack, 1);
    let rec = planted.finish();
    let all = answer(&rec.profile, "region,function", |q| q.metric = Metric::PageFaults);
    assert_eq!(all["rows"][0]["key"], json!({"region": "heap", "function": "malloc", "module": "app"}));
    assert_eq!((&all["rows"][0]["self"], &all["rows"][0]["self_samples"]), (&json!(12), &json!(2)));
    assert_eq!(all["metric"], json!({"name": "page-faults", "unit": "count", "total": 13, "samples": 3}));
}

#[test]
fn page_faults_by_the_names_of_mappings() {
    let mut planted = Planted::new(100);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    let library = planted.mapping_name("/usr/lib/libc.so.6");
    let arena = planted.mapping_name("[anon:arena]");
    planted.fault_in(1, main, &["main"], (Region::File, Some(library)), 5);
    planted.fault_in(2, main, &["main"], (Region::Anonymous, Some(arena)), 4);
    planted.fault_in(3, main, &["main"], (Region::Anonymous, Some(arena)), 4);
    planted.fault(4, main, &["main"], Region::Anonymous, 6);
    planted.fault(5, main, &["main"], Region::Heap, 1);
    let rec = planted.finish();
    let keys = |by: &str| -> Vec<(Value, Value)> {
        let answer = answer(&rec.profile, by, |q| q.metric = Metric::PageFaults);
        let rows = answer["rows"].as_array().unwrap();
        rows.iter().map(|row| (row["key"].clone(), row["self"].clone())).collect()
    };
    let named = [
        (json!({"region": "anonymous", "mapping": "[anon:arena]"}), json!(8)),
        (json!({"region": "anonymous"}), json!(6)),
        (json!({"region": "file", "mapping": "/usr/lib/libc.so.6"}), json!(5)),
        (json!({"region": "heap"}), json!(1)),
    ];
    assert_eq!(keys("region"), named);
    assert_eq!(keys("region,mapping"), named);
    let kinds =
        [("anonymous", 14), ("file", 5), ("heap", 1)].map(|(kind, n)| (json!({"region": kind}), json!(n)));
    assert_eq!(keys("region:kind"), kinds);
    assert_eq!(keys("mapping")[1], (json!({"mapping": "[no name]"}), json!(7)));
    // Cells that tell names apart serve a question that does not.
    assert_eq!(keys("region:kind"), kinds);
}

#[test]
fn many_names_of_mappings_are_one_row_of_each_kind() {
    let mut planted = Planted::new(100);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    for number in 0..1000 {
        let name = planted.mapping_name(&format!("/memfd:{number}"));
        let region = if number % 2 == 0 { Region::Shared } else { Region::File };
        planted.fault_in(number % 90, main, &["main"], (region, Some(name)), 1 + number / 900);
    }
    let rec = planted.finish();
    let all = answer(&rec.profile, "region", |q| (q.metric, q.limit) = (Metric::PageFaults, 200));
    let rows = all["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 102);
    let others: Vec<_> = rows.iter().filter(|row| row["self"] == 450).map(|row| &row["key"]).collect();
    let other = |region: &str| json!({"region": region, "mapping": "[450 other names]"});
    assert_eq!(others, [&other("file"), &other("shared-memory")]);
    let sum: u64 = rows.iter().map(|row| row["self"].as_u64().unwrap()).sum();
    assert_eq!((sum, &all["metric"]["total"]), (1100, &json!(1100)));
}

/// The busiest names are those of what is asked about.
#[test]
fn names_of_mappings_are_counted_within_the_selection() {
    let mut planted = Planted::new(100);
    let (busy, calm) = (planted.process("busy", 100), planted.process("calm", 200));
    let (many, few) = (planted.thread(busy, "busy", 100), planted.thread(calm, "calm", 200));
    for number in 0..300 {
        let name = planted.mapping_name(&format!("/memfd:{number}"));
        planted.fault_in(number % 90, many, &["main"], (Region::Shared, Some(name)), 10);
    }
    for name in ["/memfd:one", "/memfd:two"] {
        let name = planted.mapping_name(name);
        planted.fault_in(95, few, &["main"], (Region::Shared, Some(name)), 1);
    }
    let rec = planted.finish();
    let of = |process: &str| -> Vec<Value> {
        let answer = answer(&rec.profile, "mapping", |q| {
            (q.metric, q.limit) = (Metric::PageFaults, 200);
            q.filters.process = vec![process.into()];
        });
        answer["rows"].as_array().unwrap().iter().map(|row| row["key"]["mapping"].clone()).collect()
    };
    assert_eq!(of("calm"), ["/memfd:one", "/memfd:two"]);
    let names = of("busy");
    assert_eq!((names.len(), &names[0]), (101, &json!("[200 other names]")));
}

#[test]
fn resident_memory_has_levels() {
    let mut planted = Planted::new(100);
    let (app, other) = (planted.process("app", 100), planted.process("app", 200));
    planted.thread(app, "app", 100);
    planted.thread(other, "app", 200);
    planted.process_row(other).end_ns = Some(START + 75 * MS);
    planted.resident(0, app, 100);
    planted.resident(50, app, 300);
    planted.resident(25, other, 1000);
    planted.resident(80, other, 77); // a poll that raced with the end
    let rec = planted.finish();
    let by = |group: &str| answer(&rec.profile, group, |q| q.metric = Metric::Resident);
    let all = by("process");
    assert_eq!(
        all["rows"],
        json!([
            {"key": {"process": {"name": "app", "pid": 200}}, "min": 1000, "mean": 1000, "max": 1000, "last": 1000},
            {"key": {"process": {"name": "app", "pid": 100}}, "min": 100, "mean": 200, "max": 300, "last": 300},
        ])
    );
    assert_eq!(all["metric"], json!({"name": "resident", "unit": "bytes", "total": null, "samples": 3}));
    // 100 for 25 ms, 1100 for 25 ms, 1300 for 25 ms, 300 for 25 ms.
    assert_eq!(
        by("command")["rows"],
        json!([
            {"key": {"command": "app"}, "min": 100, "mean": 700, "max": 1300, "last": 300},
        ])
    );
    let time = by("time:50ms");
    assert_eq!(
        time["rows"],
        json!([
            {"key": {"time": 0.0}, "min": 100, "mean": 600, "max": 1100, "last": 1100},
            {"key": {"time": 0.05}, "min": 300, "mean": 800, "max": 1300, "last": 300},
        ])
    );
    let one = answer(&rec.profile, "process", |q| {
        q.metric = Metric::Resident;
        q.filters.process = vec!["200".into()];
    });
    assert_eq!(one["rows"].as_array().unwrap().len(), 1);
    let stack = ask(&rec.profile, "process", |q| {
        q.metric = Metric::Resident;
        q.filters.under = vec!["main".into()];
    });
    assert_eq!(stack.unwrap_err().code(), "filter-not-of-metric");
}
