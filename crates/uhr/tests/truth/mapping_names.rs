//! Page faults by the names of mappings.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::harness::{Place, Recorded, Who, assert_near, number, rows};

/// Pages of each mapping: many samples, of which each stands for as many faults as this, or fewer.
const PAGES: &str = "8000";
const PERIOD: f64 = 64.0;
/// Memory without a name has its kind alone.
const NO_NAME: &str = "";

/// Faults by kind of memory and name.
fn by_name(answer: &Value) -> BTreeMap<(String, String), f64> {
    let word = |row: &Value, part: &str| row["key"][part].as_str().unwrap_or("").to_owned();
    rows(answer)
        .iter()
        .map(|row| ((word(row, "region"), word(row, "mapping")), number(row, "self")))
        .collect()
}

fn record(place: &Place, who: Who, sampler: &str, arguments: &[&str]) -> Option<Recorded> {
    let program = place.c("mapping_names.c", &[]);
    let file = place.path("pages");
    let mut command: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&program, &file];
    command.extend(arguments.iter().map(|one| one as &dyn AsRef<std::ffi::OsStr>));
    place.record(who, "rec", &["--sampler", sampler], &command).or_skip()
}

/// Each name has the faults that the program counted, and is in the kind of memory that it belongs to.
fn names_are_right(who: Who, sampler: &str) {
    let place = Place::new();
    let Some(recorded) = record(&place, who, sampler, &[PAGES]) else { return };
    let seen = by_name(&recorded.ask("query --metric page-faults --group-by region --limit 1000"));
    let truth = recorded.truth();
    let truth = truth.as_object().unwrap();
    for (name, planted) in truth {
        let region = match name.as_str() {
            "anonymous" | "late" => continue,
            "shared" => "shared-memory",
            name if name.starts_with("[anon:") => "anonymous",
            name if name.ends_with("/pages") => "file",
            _ => "shared-memory",
        };
        let key = if name == "shared" { NO_NAME } else { name };
        let found = seen.get(&(region.to_owned(), key.to_owned())).copied().unwrap_or(0.0);
        // The sample at either end may be a neighbour's.
        let planted = planted.as_f64().unwrap();
        assert_near(name, found, planted, 0.03 + 2.0 * PERIOD / planted);
    }
    // The rest of anonymous memory has no name, among it what was named too late.
    let nameless = |name: &str| truth.get(name).map_or(0.0, |planted| planted.as_f64().unwrap());
    let found = seen.get(&("anonymous".to_owned(), NO_NAME.to_owned())).copied().unwrap_or(0.0);
    let least = nameless("anonymous") + nameless("late");
    assert!((least * 0.97..least * 1.03 + 200.0).contains(&found), "{found} of {least}");
    if !truth.contains_key("late") {
        eprintln!("SKIPPED: this kernel keeps no names of anonymous memory (CONFIG_ANON_VMA_NAME)");
    }
}

#[test]
fn page_faults_by_the_names_of_mappings() {
    names_are_right(Who::Us, "auto");
}

#[test]
fn page_faults_by_the_names_of_mappings_by_perf_events() {
    names_are_right(Who::Us, "perf");
}

#[test]
fn an_ordinary_user_sees_names_of_mappings_too() {
    names_are_right(Who::Ordinary, "auto");
}

/// Thousands of names: the largest have rows of their own, the others are one row that says how many they are, and nothing
/// is lost.
#[test]
fn thousands_of_names_of_mappings() {
    let place = Place::new();
    let Some(recorded) = record(&place, Who::Us, "auto", &["128", "3000"]) else { return };
    let truth = recorded.truth();
    let planted: f64 = truth.as_object().unwrap().values().map(|faults| faults.as_f64().unwrap()).sum();
    let answer = recorded.ask("query --metric page-faults --group-by region --limit 1000");
    let seen = by_name(&answer);
    let of_shared = |begin: &'static str| -> Vec<f64> {
        // Libraries are others too, of another kind.
        let is_one = |region: &str, name: &str| region == "shared-memory" && name.starts_with(begin);
        seen.iter().filter(|((region, name), _)| is_one(region, name)).map(|(_, faults)| *faults).collect()
    };
    let (blocks, others) = (of_shared("/memfd:block-"), of_shared("[2"));
    assert!(blocks.len() <= 100 && others.len() == 1, "{answer:#}");
    assert_near("all", blocks.iter().chain(&others).sum(), planted, 0.02);
    assert!(others[0] > planted * 0.9, "{answer:#}");
    // By kind they are one row.
    let by_kind = recorded.ask("query --metric page-faults --group-by region:kind");
    let shared: Vec<f64> = rows(&by_kind)
        .iter()
        .filter(|row| row["key"]["region"] == "shared-memory")
        .map(|row| number(row, "self"))
        .collect();
    assert_eq!(shared.len(), 1);
    assert_near("shared memory", shared[0], planted, 0.02);
    assert!(rows(&by_kind).iter().all(|row| row["key"].get("mapping").is_none()), "{by_kind:#}");
}
