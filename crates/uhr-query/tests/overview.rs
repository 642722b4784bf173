//! `uhr overview` on planted recordings.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use serde_json::{Value, json};
use support::{MS, Planted, START, valid};
use uhr_model::{Region, StackEnding, WaitKind};
use uhr_query::{Filters, Profile, overview};

fn ask(profile: &Profile) -> Value {
    valid(&overview(profile, &Filters::default(), false).unwrap())
}

#[test]
fn a_program_that_computes() {
    let mut planted = Planted::new(1000);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    (0..950)
        .for_each(|at| planted.sample(at, main, &["main", if at % 3 == 0 { "kernel!read" } else { "work" }]));
    planted.off_cpu(main, &["main", "nap"], (950, 1000), WaitKind::Sleep, false);
    planted.resident(0, app, 1 << 20);
    planted.resident(900, app, 100 << 20);
    planted.fault(5, main, &["main", "malloc"], Region::Heap, 30);
    planted.manifest.cost.cpu_ns = 5 * MS;
    let rec = planted.finish();
    let answer = ask(&rec.profile);
    assert_eq!(answer["activity"]["verdict"], "computing");
    assert_eq!(answer["activity"]["parallelism"], 0.95);
    assert_eq!(answer["activity"]["on_cpu_share"], 0.95);
    assert_eq!(answer["activity"]["off_cpu_share"], 0.05);
    assert_eq!(answer["cpu"]["functions"][0]["key"]["function"], "work");
    assert_eq!(answer["cpu"]["modes"][0]["key"], json!({"mode": "user"}));
    assert_eq!(answer["cpu"]["modes"][1]["self"], 317 * MS);
    assert_eq!(
        answer["memory"],
        json!([{
            "key": {"process": {"name": "app", "pid": 100}},
            "first": 1 << 20, "peak": 100 << 20, "last": 100 << 20, "growth": 99 << 20,
        }])
    );
    assert_eq!(answer["faults"]["total"], 30);
    assert_eq!(answer["waits"]["kinds"][0]["key"], json!({"wait": "sleep"}));
    assert_eq!(answer["machine"]["starved"], false);
    assert_eq!(answer["trust"]["uhr_cpu_share"], 0.005);
    assert_eq!(answer["next"].as_array().unwrap().len(), 3);
    assert!(answer["next"][1].as_str().unwrap().contains("call-paths"));
    assert!(answer["next"][2].as_str().unwrap().contains("page-faults"), "memory grew: {}", answer["next"]);
    assert!(answer.to_string().len() < 4_096, "{} bytes", answer.to_string().len());
}

#[test]
fn a_program_that_waits_for_a_lock_in_user_code() {
    let mut planted = Planted::new(1000);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    (0..50).for_each(|at| planted.sample(at, main, &["main", "work"]));
    planted.off_cpu(
        main,
        &["main", "lock", "kernel!futex_wait", "kernel!schedule"],
        (50, 1000),
        WaitKind::Lock,
        false,
    );
    let rec = planted.finish();
    let answer = ask(&rec.profile);
    assert_eq!(answer["activity"]["verdict"], "waiting");
    assert_eq!(
        answer["waits"]["functions"],
        json!([
            {"key": {"function": "lock", "module": "app"}, "self": 950 * MS, "self_share": 1.0}
        ])
    );
    assert!(answer["next"][0].as_str().unwrap().contains("--metric off-cpu"), "{}", answer["next"]);
    assert!(answer["next"][1].as_str().unwrap().ends_with("--function lock"), "{}", answer["next"]);
}

#[test]
fn a_program_that_cannot_get_a_cpu() {
    let mut planted = Planted::new(1000);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    (0..500).for_each(|at| planted.sample(at * 2, main, &["main"]));
    planted.off_cpu(main, &["main"], (500, 1000), WaitKind::Unknown, true);
    planted.manifest.load.pressure_ns.insert("cpu.some".into(), 800 * MS);
    let rec = planted.finish();
    let answer = ask(&rec.profile);
    assert_eq!(answer["activity"]["verdict"], "starved");
    assert_eq!(answer["machine"]["starved"], true);
    assert_eq!(answer["machine"]["pressure_share"], json!({"cpu.some": 0.8}));
    assert_eq!(answer["machine"]["reasons"].as_array().unwrap().len(), 2);
}

#[test]
fn time_without_a_sample_belongs_to_its_process_here() {
    let mut planted = Planted::new(1000);
    let (shell, app) = (planted.process("sh", 99), planted.process("app", 100));
    let main = planted.thread(app, "app", 100);
    let brief = planted.thread(shell, "sh", 99);
    planted.without_sample(1, brief, 3 * MS, StackEnding::TooShortToSample);
    planted.threads[brief as usize].end_ns = Some(START + 10 * MS);
    planted.sample(5, main, &["main"]);
    let rec = planted.finish();
    let answer = ask(&rec.profile);
    assert_eq!(answer["processes"][0]["key"]["process"]["name"], "sh");
    assert_eq!(answer["processes"][0]["on_cpu_share"], 0.3);
    assert_eq!(answer["activity"]["processes"], 2);
}

#[test]
fn nothing_is_an_answer_too() {
    let answer = ask(&Planted::new(0).finish().profile);
    assert_eq!(answer["activity"]["verdict"], "nothing");
    assert_eq!(answer["cpu"]["functions"], json!([]));
}

#[test]
fn a_short_window_has_no_verdict_of_shortage() {
    let mut planted = Planted::new(900);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    (0..100).for_each(|at| planted.sample(at, main, &["main"]));
    planted.off_cpu(main, &["main"], (100, 900), WaitKind::Unknown, true);
    planted.manifest.load.pressure_ns.insert("cpu.some".into(), 800 * MS);
    let answer = ask(&planted.finish().profile);
    assert_eq!(answer["machine"]["starved"], Value::Null);
    assert_eq!(answer["machine"]["reasons"], json!([]));
    assert_ne!(answer["activity"]["verdict"], "starved");
}

#[test]
fn what_comes_next_without_a_sample_has_an_answer() {
    let mut planted = Planted::new(1000);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    planted.without_sample(1, main, 3 * MS, StackEnding::TooShortToSample);
    planted.threads[main as usize].end_ns = Some(START + 4 * MS);
    let rec = planted.finish();
    assert_eq!(ask(&rec.profile)["next"], json!(["uhr record --help"]));
}

#[test]
fn long_names_cost_rows_and_not_the_reader() {
    let mut planted = Planted::new(1000);
    for process in 0..3 {
        let name = format!("{process}{}", "a_long_name_".repeat(8));
        let id = planted.process(&name, 100 + process);
        let thread = planted.thread(id, &name, 100 + process);
        for at in 0..100 {
            planted.sample(at, thread, &[&format!("{name}!main_{name}"), &format!("{name}!work_{name}")]);
        }
        planted.off_cpu(thread, &[&format!("{name}!wait_{name}")], (100, 1000), WaitKind::Lock, false);
    }
    let rec = planted.finish();
    let size = |whole_names| {
        let answer = valid(&overview(&rec.profile, &Filters::default(), whole_names).unwrap());
        (answer.to_string().len(), answer["cpu"]["functions"].as_array().unwrap().len())
    };
    assert!(size(false).0 < 4096 && size(false).1 >= 1, "{:?}", size(false));
    assert!(size(true).0 > 4096 && size(true).1 == 3, "{:?}", size(true));
}
