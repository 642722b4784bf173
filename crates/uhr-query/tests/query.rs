//! `uhr query` on recordings whose truth was worked out by hand.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use serde_json::{Value, json};
use support::{Loaded, MS, Planted, START, answer, ask, valid};
use uhr_model::{Metric, StackEnding, WaitKind};
use uhr_query::{Filters, GroupBy, Profile, Question, Sort};

/// `key: self/total` of each row, in milliseconds.
fn rows(answer: &Value, dimension: &str) -> Vec<String> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Object(object) => object["name"].as_str().unwrap().to_owned(),
        other => other.to_string(),
    };
    let ms = |value: &Value| value.as_u64().unwrap() / MS;
    let row =
        |row: &Value| format!("{}: {}/{}", text(&row["key"][dimension]), ms(&row["self"]), ms(&row["total"]));
    answer["rows"].as_array().unwrap().iter().map(row).collect()
}

/// main (1 ms) calls parse (3 ms, of which lex 2 ms), and fib, which calls itself: fib (1), fib fib (2), fib fib fib (4).
fn small() -> Loaded {
    let mut planted = Planted::new(20);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    let stacks: &[&[&str]] = &[
        &["main"],
        &["main", "parse"],
        &["main", "parse", "lex"],
        &["main", "parse", "lex"],
        &["main", "fib"],
        &["main", "fib", "fib"],
        &["main", "fib", "fib"],
        &["main", "fib", "fib", "fib"],
        &["main", "fib", "fib", "fib"],
        &["main", "fib", "fib", "fib"],
        &["main", "fib", "fib", "fib"],
    ];
    for (at, stack) in stacks.iter().enumerate() {
        planted.sample(at as u64, main, stack);
    }
    planted.finish()
}

#[test]
fn self_and_total_count_recursion_once() {
    let rec = small();
    let all = answer(&rec.profile, "function", |_| ());
    assert_eq!(rows(&all, "function"), ["fib: 7/7", "lex: 2/2", "main: 1/11", "parse: 1/3"]);
    assert_eq!(all["metric"], json!({"name": "cpu", "unit": "ns", "total": 11 * MS, "samples": 11}));
    assert_eq!(all["rows"][0]["key"], json!({"function": "fib", "module": "app"}));
    assert_eq!(all["rows"][2]["total_samples"], 11);
    assert_eq!(all["rows"][2]["total_share"], 1.0);
    assert_eq!(all["rows"][0]["interval_note"], "few-samples");
    assert_eq!(all["rows"][0]["self_share_ci95"], json!([0.0, 1.0]));
    assert_eq!(all["shown"], json!({"rows": 4, "of": 4, "self_share": 1.0, "more": null}));
    assert_eq!(all["coverage"]["stacks_complete_share"], 1.0);
    assert_eq!(all["recording"]["start"], "2026-11-06T21:34:56.000Z");
}

#[test]
fn under_a_function_is_the_outermost_and_below() {
    let rec = small();
    let under = |name: &str| answer(&rec.profile, "function", |q| q.filters.under = vec![name.into()]);
    assert_eq!(rows(&under("parse"), "function"), ["parse: 1/3", "lex: 2/2"], "by total");
    assert_eq!(under("parse")["metric"]["total"], 3 * MS);
    assert_eq!(rows(&under("fib"), "function"), ["fib: 7/7"], "main is not below fib");
    let both = answer(&rec.profile, "function", |q| q.filters.under = vec!["parse".into(), "lex".into()]);
    assert_eq!(rows(&both, "function"), ["lex: 2/2"]);
    let none = answer(&rec.profile, "function", |q| q.filters.under = vec!["lex".into(), "fib".into()]);
    assert_eq!((none["rows"].as_array().unwrap().len(), &none["metric"]["total"]), (0, &json!(0)));
    assert!(none["coverage"]["notes"].to_string().contains("fits all the filters"), "{none:#}");
}

#[test]
fn a_page_says_what_is_behind_it() {
    let rec = small();
    let page = answer(&rec.profile, "function", |q| {
        (q.limit, q.offset) = (1, 1);
        q.filters.thread = vec!["100".into()];
    });
    assert_eq!(rows(&page, "function"), ["lex: 2/2"]);
    let path = rec.path.display();
    let more = format!("uhr query {path} --thread 100 --group-by function --limit 1 --offset 2");
    assert_eq!(page["shown"]["more"], more);
    assert_eq!(page["shown"]["of"], 4);
}

#[test]
fn inlined_functions_are_functions_and_pairs_come_from_one_frame() {
    let mut planted = Planted::new(20);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    planted.sample(0, main, &["main@main.c:3", "work+step+add@work.c:7"]);
    planted.sample(1, main, &["main@main.c:3", "work+step@work.c:9"]);
    planted.sample(2, main, &["main@main.c:4"]);
    let rec = planted.finish();
    let by = |group: &str| answer(&rec.profile, group, |_| ());
    assert_eq!(rows(&by("function"), "function"), ["add: 1/1", "main: 1/3", "step: 1/2", "work: 0/2"]);
    let lines = by("function,line");
    let all: Vec<String> =
        lines["rows"].as_array().unwrap().iter().map(|row| row["key"].to_string()).collect();
    assert!(all.contains(&json!({"function": "step", "module": "app", "line": 9}).to_string()), "{all:?}");
    assert!(!all.iter().any(|key| key.contains("main") && key.contains('9')), "{all:?}");
    let under = answer(&rec.profile, "function", |q| q.filters.under = vec!["step".into()]);
    assert_eq!(rows(&under, "function"), ["step: 1/2", "add: 1/1"], "work is above step in the same frame");
}

#[test]
fn the_same_name_in_two_modules_stays_apart_and_builds_are_merged() {
    let mut planted = Planted::new(20);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    planted.sample(0, main, &["main", "liba.so!init"]);
    planted.sample(1, main, &["main", "libb.so!init"]);
    planted.sample(2, main, &["main", "libb.so#2!init"]);
    let rec = planted.finish();
    let all = answer(&rec.profile, "function", |_| ());
    assert_eq!(all["rows"][0]["key"], json!({"function": "init", "module": "libb.so"}));
    assert_eq!(all["rows"][0]["self_samples"], 2);
    assert_eq!(all["rows"][1]["key"], json!({"function": "init", "module": "liba.so"}));
    assert!(all["coverage"]["notes"].to_string().contains("Several builds are counted as one: libb.so."));
    let modules = answer(&rec.profile, "module", |q| q.filters.function = vec!["init".into()]);
    assert_eq!(rows(&modules, "module"), ["libb.so: 2/2", "liba.so: 1/1", "app: 0/3"]);
    let one = answer(&rec.profile, "function", |q| q.filters.module = vec!["liba".into()]);
    assert_eq!(rows(&one, "function"), ["init: 1/1", "main: 0/1"]);
}

#[test]
fn code_without_a_name_is_grouped_by_where_it_starts() {
    let mut planted = Planted::new(20);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    for (at, frame) in
        ["lib.so!?41^30", "lib.so!?48^30", "lib.so!?99", "nowhere!?7f00", "nowhere!?8f00"].iter().enumerate()
    {
        planted.sample(at as u64, main, &["main", frame]);
    }
    let rec = planted.finish();
    let all = answer(&rec.profile, "function", |_| ());
    assert_eq!(
        rows(&all, "function"),
        ["[unknown]: 2/2", "lib.so+0x30: 2/2", "lib.so+0x99: 1/1", "main: 0/5"]
    );
    assert_eq!(all["rows"][0]["key"]["module"], "[unknown]");
    assert_eq!(all["coverage"]["symbolized_share"], 0.0);
}

#[test]
fn time_without_a_sample_stands_in_a_row_of_its_own_in_every_grouping() {
    let mut planted = Planted::new(20);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    let brief = planted.thread(app, "brief", 101);
    planted.sample(0, main, &["main"]);
    planted.without_sample(1, brief, 3 * MS, StackEnding::TooShortToSample);
    planted.without_sample(2, main, 2 * MS, StackEnding::KernelNotVisible);
    let rec = planted.finish();
    for group in ["function", "module", "mode", "line", "process", "thread", "command", "thread-name", "time"]
    {
        let all = answer(&rec.profile, group, |_| ());
        // Of a timeline they come last: they belong to no part of it.
        let at = if group == "time" { 1 } else { 0 };
        assert_eq!(
            rows(&all, group)[at..at + 2],
            ["[too short to sample]: 3/3", "[kernel, not visible]: 2/2"],
            "{group}"
        );
        assert_eq!(all["metric"]["total"], 6 * MS);
        assert_eq!(all["metric"]["samples"], 1, "only what was sampled is a sample");
    }
    let both = answer(&rec.profile, "thread,function", |_| ());
    assert_eq!(both["rows"][0]["key"]["thread"], json!({"name": "brief", "tid": 101, "pid": 100}));
    assert_eq!(both["rows"][0]["key"]["function"], "[too short to sample]");
    let kernel = answer(&rec.profile, "mode", |q| q.filters.mode = vec!["kernel".into()]);
    assert_eq!(rows(&kernel, "mode"), ["[kernel, not visible]: 2/2"]);
}

#[test]
fn windows_are_half_open_and_add_up() {
    let mut planted = Planted::new(100);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    for at in 0..100 {
        planted.sample(at, main, &["main", if at < 50 { "first" } else { "second" }]);
    }
    planted.off_cpu(main, &["main", "wait"], (10, 60), WaitKind::Sleep, false);
    let rec = planted.finish();
    let window = |from: Option<&str>, to: Option<&str>, metric| {
        ask(&rec.profile, "function", |q| {
            q.filters.from = from.map(str::to_owned);
            q.filters.to = to.map(str::to_owned);
            q.metric = metric;
        })
    };
    let total = |from, to| window(from, to, Metric::Cpu).unwrap()["metric"]["total"].as_u64().unwrap() / MS;
    assert_eq!(total(None, None), 100);
    assert_eq!(total(Some("25ms"), Some("50ms")), 25);
    assert_eq!(total(None, Some("50ms")) + total(Some("50ms"), None), 100);
    assert_eq!(total(Some("-10ms"), None), 10);
    assert_eq!(total(Some("2026-11-06T21:34:56.090Z"), Some("99h")), 10);
    let first = window(None, Some("50ms"), Metric::Cpu).unwrap();
    assert_eq!(rows(&first, "function"), ["first: 50/50", "main: 0/50"]);
    let waits = window(Some("20ms"), Some("30ms"), Metric::OffCpu).unwrap();
    assert_eq!(rows(&waits, "function"), ["wait: 10/10", "main: 0/10"], "a wait is clipped to the window");
    assert_eq!(waits["coverage"]["captured"], 1);

    let code = |from, to| window(from, to, Metric::Cpu).unwrap_err();
    assert_eq!(code(Some("1s"), None).code(), "window-outside-recording");
    assert_eq!(code(Some("100ms"), None).code(), "window-outside-recording", "the end is not part of it");
    assert_eq!(code(Some("50ms"), Some("40ms")).code(), "window-empty");
    assert_eq!(code(None, Some("2020-01-01T00:00:00Z")).code(), "window-outside-recording");
    assert!(code(Some("noon"), None).is_usage());
    assert!(code(Some("1s"), None).to_string().contains("0.1 s long"), "{}", code(Some("1s"), None));
}

#[test]
fn time_is_a_dimension() {
    let mut planted = Planted::new(100);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    (0..100).filter(|at| at % 10 < 3 || *at >= 90).for_each(|at| planted.sample(at, main, &["main"]));
    let rec = planted.finish();
    let all = answer(&rec.profile, "time:10ms", |_| ());
    assert_eq!(all["rows"][9]["key"], json!({"time": 0.09}));
    assert_eq!(all["rows"][9]["self"], 10 * MS);
    assert_eq!(
        all["rows"][0],
        json!({
            "key": {"time": 0.0}, "self": 3 * MS, "total": 3 * MS, "self_share": 0.08108, "total_share": 0.08108,
            "self_samples": 3, "total_samples": 3, "self_share_ci95": [0.0, 1.0], "total_share_ci95": [0.0, 1.0],
            "interval_note": "by-time",
        })
    );
    assert_eq!(all["shown"]["of"], 10);
    assert_eq!(
        answer(&rec.profile, "time,function", |_| ())["request"]["group_by"],
        json!(["time", "function"])
    );
    assert_eq!(ask(&rec.profile, "time:1ns", |_| ()).unwrap_err().code(), "too-many-parts");
}

#[test]
fn waits_and_run_queue_are_metrics_of_their_own() {
    let mut planted = Planted::new(1000);
    let app = planted.process("app", 100);
    let (main, idle) = (planted.thread(app, "app", 100), planted.thread(app, "idle", 101));
    (0..100).for_each(|at| planted.sample(at, main, &["main", "work"]));
    planted.off_cpu(main, &["main", "nap"], (100, 400), WaitKind::Sleep, false);
    planted.off_cpu(main, &["main", "work"], (400, 500), WaitKind::Unknown, true);
    planted.off_cpu(main, &["main", "lock"], (500, 1000), WaitKind::Lock, false);
    planted.off_cpu(idle, &[], (0, 1000), WaitKind::Poll, false);
    let rec = planted.finish();
    let by = |group: &str, metric| answer(&rec.profile, group, |q| q.metric = metric);
    assert_eq!(
        rows(&by("wait", Metric::OffCpu), "wait"),
        ["poll: 1000/1000", "lock: 500/500", "sleep: 300/300"]
    );
    assert_eq!(rows(&by("thread", Metric::OffCpu), "thread"), ["idle: 1000/1000", "app: 800/800"]);
    assert_eq!(
        rows(&by("function", Metric::OffCpu), "function"),
        ["[stack not sampled]: 1000/1000", "lock: 500/500", "nap: 300/300", "main: 0/800"]
    );
    assert_eq!(
        rows(&by("syscall", Metric::OffCpu), "syscall"),
        ["null: 1500/1500", "clock_nanosleep: 300/300"]
    );
    assert_eq!(rows(&by("function", Metric::Runqueue), "function"), ["work: 100/100", "main: 0/100"]);
    let wall = by("wait", Metric::Wall);
    assert_eq!(wall["metric"]["total"], 2000 * MS);
    assert_eq!(rows(&wall, "wait")[3..], ["[on cpu]: 100/100", "[runnable]: 100/100"]);
    assert_eq!(ask(&rec.profile, "wait", |_| ()).unwrap_err().code(), "dimension-not-of-metric");
}

#[test]
fn merged_waits_share_their_time_over_the_windows_they_lie_in() {
    let mut planted = Planted::new(100);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    let stack = planted.stack(&["main", "ping"]);
    planted.off_cpu_row(uhr_recording::tables::OffCpuRow {
        start_ns: START,
        end_ns: START + 90 * MS,
        duration_ns: 30 * MS + 1,
        weight_ns: 30 * MS + 1,
        count: 7,
        thread: main,
        stack,
        ending: 0,
        runnable: false,
        wait: WaitKind::Pipe.code(),
        syscall: None,
        waker: 0,
        waker_stack: 0,
    });
    let rec = planted.finish();
    let part = |from: u64, to: u64| {
        let answer = answer(&rec.profile, "function", |q| {
            q.metric = Metric::OffCpu;
            (q.filters.from, q.filters.to) = (Some(format!("{from}ms")), Some(format!("{to}ms")));
        });
        answer["metric"]["total"].as_u64().unwrap()
    };
    assert_eq!(part(0, 30) + part(30, 47) + part(47, 100), 30 * MS + 1, "the parts add up to the whole");
    assert_eq!(part(0, 30), 10 * MS);
    assert_eq!(part(90, 100), 0);
}

#[test]
fn waits_with_a_stack_stand_for_those_without() {
    let mut planted = Planted::new(1000);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    for at in 0..500 {
        let stack: &[&str] = match at % 10 {
            0 => &["main", "recv"],
            5 => &["main", "send"],
            _ => &[],
        };
        planted.off_cpu(main, stack, (at * 2, at * 2 + 1), WaitKind::Socket, false);
    }
    let rec = planted.finish();
    let all = answer(&rec.profile, "function", |q| q.metric = Metric::OffCpu);
    assert_eq!(rows(&all, "function")[..2], ["recv: 250/250", "send: 250/250"]);
    assert_eq!(all["metric"]["total"], 500 * MS, "the time of all waits is exact");
    let coverage = &all["coverage"];
    assert_eq!((&coverage["captured"], &coverage["stacks_complete_share"]), (&json!(500), &json!(1.0)));
    assert!(coverage["notes"].to_string().contains("Of 500 waits 100 had their stack taken"), "{coverage}");
    assert_eq!(all["rows"][0]["interval_note"], Value::Null, "a hundred stacks are ten blocks of ten");
    let short = answer(&rec.profile, "function", |q| {
        (q.metric, q.filters.to) = (Metric::OffCpu, Some("900ms".into()));
    });
    assert_eq!(short["rows"][0]["interval_note"], "few-samples");
}

#[test]
fn names_are_matched_exactly_then_in_part_then_refused_with_candidates() {
    let mut planted = Planted::new(100);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    planted.sample(0, main, &["main", "parse_json"]);
    planted.sample(1, main, &["main", "parse_json"]);
    planted.sample(2, main, &["main", "parse_xml"]);
    planted.sample(3, main, &["main", "draw(int, int)"]);
    let rec = planted.finish();
    let under = |name: &str| ask(&rec.profile, "function", |q| q.filters.under = vec![name.into()]);
    assert_eq!(rows(&under("parse_json").unwrap(), "function"), ["parse_json: 2/2"]);
    assert_eq!(rows(&under("xml").unwrap(), "function"), ["parse_xml: 1/1"]);
    assert_eq!(rows(&under("draw").unwrap(), "function"), ["draw(int, int): 1/1"]);
    let error = under("parse").unwrap_err();
    let body = valid(&uhr_query::answers::ErrorAnswer::from(&error));
    assert_eq!(body["error"]["code"], "ambiguous-function");
    assert_eq!(
        body["error"]["candidates"],
        json!([
            {"name": "parse_json", "module": "app", "total_share": 0.5},
            {"name": "parse_xml", "module": "app", "total_share": 0.25},
        ])
    );
    assert_eq!(under("nothing").unwrap_err().code(), "unknown-function");
    assert_eq!(under("Main").unwrap_err().candidates()[0].name, "main");
    assert_eq!(under("Main").unwrap_err().candidates().len(), 1);
    let process = ask(&rec.profile, "function", |q| q.filters.process = vec!["postgres".into()]).unwrap_err();
    assert_eq!((process.code(), process.is_usage()), ("unknown-process", false));
    assert_eq!(process.candidates()[0].name, "app (100)");
    valid(&uhr_query::answers::ErrorAnswer::from(&process));
    assert!(GroupBy::parse("colour").unwrap_err().is_usage());
    assert!(ask(&rec.profile, "mode", |q| q.filters.mode = vec!["turbo".into()]).unwrap_err().is_usage());
}

#[test]
fn hostile_names_neither_steer_nor_flood() {
    let long = "x".repeat(5_000);
    let mut planted = Planted::new(100);
    let app = planted.process("a\x1b[2Jb;c", 100);
    let main = planted.thread(app, "t\n", 100);
    planted.sample(0, main, &["<script>alert(1)</script>\u{202e}"]);
    planted.sample(1, main, &[&long]);
    let rec = planted.finish();
    let all = answer(&rec.profile, "command,function", |_| ());
    assert_eq!(all["rows"][0]["key"]["command"], "a[2Jb;c");
    assert_eq!(all["rows"][0]["key"]["function"], "<script>alert(1)</script>");
    let cut = all["rows"][1]["key"]["function"].as_str().unwrap().to_owned();
    assert!(cut.len() <= 256 && cut.contains('…'));
    let whole = answer(&rec.profile, "function", |q| q.whole_names = true);
    assert_eq!(whole["rows"][1]["key"]["function"], long);
    let found = answer(&rec.profile, "function", |q| q.filters.function = vec![cut]);
    assert_eq!(found["metric"]["samples"], 1, "a name can be copied out of an answer");
    let next = all["next"][0].as_str().unwrap();
    assert!(next.contains("--function '<script>alert(1)</script>'"), "{next}");
}

#[test]
fn coverage_follows_processes_threads_and_time_only() {
    let mut planted = Planted::new(100);
    let (app, other) = (planted.process("app", 100), planted.process("other", 200));
    let (one, two) = (planted.thread(app, "app", 100), planted.thread(other, "other", 200));
    (0..60).for_each(|at| planted.sample(at, one, &["main"]));
    (0..20).for_each(|at| planted.sample_ending(at, two, &["work"], StackEnding::NoUnwindInfo));
    planted.manifest.ledger.cpu = uhr_recording::SampleLedger {
        too_short: 0,
        expected: 90,
        captured: 80,
        lost: 7,
        throttled: 1,
        not_visible: 0,
        drift: 2,
    };
    let rec = planted.finish();
    let all = answer(&rec.profile, "function", |q| q.filters.function = vec!["main".into()]);
    let coverage = &all["coverage"];
    assert_eq!(
        (&coverage["expected"], &coverage["lost"], &coverage["drift"]),
        (&json!(90), &json!(7), &json!(2))
    );
    assert_eq!(coverage["stacks_complete_share"], 0.75);
    assert_eq!(coverage["truncated"], json!({"no-unwind-info": 20}));
    assert!(coverage["notes"].to_string().contains("process, thread and time filters only"));
    let one = answer(&rec.profile, "function", |q| q.filters.process = vec!["other".into()]);
    let coverage = &one["coverage"];
    assert_eq!(
        (&coverage["expected"], &coverage["captured"], &coverage["lost"]),
        (&json!(20), &json!(20), &json!(0))
    );
    assert_eq!(coverage["stacks_complete_share"], 0.0);
    assert!(coverage["notes"].to_string().contains("7 samples were lost in the whole recording"));
}

#[test]
fn an_unfinished_recording_answers_as_the_finished_one_does() {
    let plant = || {
        let mut planted = Planted::new(1000);
        let app = planted.process("app", 100);
        let main = planted.thread(app, "app", 100);
        for at in 0..900u64 {
            planted.sample(at, main, &["main", ["a", "b", "c"][(at * 7 % 3) as usize]]);
        }
        planted.off_cpu(main, &["main", "c"], (900, 1000), WaitKind::Lock, false);
        planted.threads[0].on_cpu_ns = 777 * MS + 5;
        planted
    };
    let strip = |mut answer: Value| {
        answer["recording"] = Value::Null;
        answer["shown"] = Value::Null;
        answer["next"] = Value::Null;
        answer
    };
    let captured = plant().captured();
    let (growing, finished) = (captured.profile(), plant().finish());
    for (group, metric) in
        [("function", Metric::Cpu), ("thread,function", Metric::Wall), ("time", Metric::OffCpu)]
    {
        let ask = |profile: &Profile| strip(answer(profile, group, |q| q.metric = metric));
        assert_eq!(ask(&growing), ask(&finished.profile), "{group}");
    }
    assert_eq!(answer(&growing, "function", |_| ())["metric"]["total"], 777 * MS + 5, "weights are exact");
}

#[test]
fn filters_compose() {
    let mut planted = Planted::new(100);
    let app = planted.process("app", 100);
    let (one, two) = (planted.thread(app, "one", 100), planted.thread(app, "two", 101));
    for at in 0..10 {
        planted.sample(at, one, &["main", "kernel!sys_read"]);
        planted.sample(at, two, &["main", "kernel!sys_read", "kernel!copy"]);
        planted.sample(at, two, &["main", "user"]);
    }
    let rec = planted.finish();
    let all = answer(&rec.profile, "function", |q| {
        q.filters = Filters {
            under: vec!["sys_read".into()],
            thread: vec!["two".into()],
            mode: vec!["kernel".into()],
            to: Some("5ms".into()),
            ..Filters::default()
        };
    });
    assert_eq!(
        rows(&all, "function"),
        ["sys_read: 0/5", "copy: 5/5"].map(String::from).iter().rev().cloned().collect::<Vec<_>>()
    );
    let mode = answer(&rec.profile, "mode,module", |_| ());
    assert_eq!(mode["rows"][0]["key"], json!({"mode": "kernel", "module": "[kernel]"}));
}

/// `work` runs late and long, `start` early and briefly; both are called from `main`.
fn phases() -> Loaded {
    let mut planted = Planted::new(1000);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    (0..10).for_each(|at| planted.sample(at, main, &["main@main.c:3", "start@start.c:7"]));
    (500..600).for_each(|at| planted.sample(at, main, &["main@main.c:4", "work@work.c:7"]));
    planted.without_sample(20, main, 300 * MS, StackEnding::TooShortToSample);
    planted.finish()
}

#[test]
fn time_as_the_first_dimension_is_a_timeline() {
    let rec = phases();
    let by = |group: &str, sort| answer(&rec.profile, group, |q| q.sort = sort);
    let marker = "[too short to sample]: 300/300";
    assert_eq!(rows(&by("time:500ms", None), "time"), ["0.0: 10/10", "0.5: 100/100", marker]);
    // With a function the time of the marker has a part, too.
    assert_eq!(
        rows(&by("time:500ms,function", None), "function"),
        ["[too short to sample]: 300/300", "start: 10/10", "main: 0/10", "work: 100/100", "main: 0/100"]
    );
    assert_eq!(rows(&by("time:500ms", Some(Sort::Own)), "time")[1..], ["0.5: 100/100", "0.0: 10/10"]);
    assert_eq!(rows(&by("function,time:500ms", None), "time")[1..3], ["0.5: 100/100", "0.0: 10/10"]);
}

#[test]
fn rows_can_be_sorted_by_total() {
    let rec = phases();
    let sorted = |change: &dyn Fn(&mut Question)| {
        answer(&rec.profile, "function", |q| {
            q.sort = Some(Sort::Total);
            change(q);
        })
    };
    let all = sorted(&|_| ());
    let marker = "[too short to sample]: 300/300";
    assert_eq!(rows(&all, "function"), [marker, "main: 0/110", "work: 100/100", "start: 10/10"]);
    assert_eq!(all["request"]["sort"], "total");
    let page = sorted(&|q| q.limit = 2);
    let more = page["shown"]["more"].as_str().unwrap();
    assert!(more.ends_with("--group-by function --sort total --limit 2 --offset 2"), "{more}");
}

#[test]
fn a_line_alone_has_its_file() {
    let rec = phases();
    let lines = answer(&rec.profile, "line", |q| q.filters.mode = vec!["user".into()]);
    assert_eq!(rows(&lines, "file"), ["work.c: 100/100", "start.c: 10/10", "main.c: 0/10", "main.c: 0/100"]);
    assert_eq!(lines["rows"][0]["key"], json!({"file": "work.c", "line": 7}));
}

#[test]
fn where_nothing_is_the_next_question_has_an_answer() {
    let rec = phases();
    let path = rec.path.display();
    let overview = format!("uhr overview {path}");
    let main = answer(&rec.profile, "function", |q| q.filters.function = vec!["main".into()]);
    assert_eq!(main["rows"], json!([]));
    let under = format!("uhr query {path} --under main --group-by function");
    assert_eq!(main["next"], json!([under, overview]));
    let behind = answer(&rec.profile, "function", |q| q.offset = 9);
    assert_eq!((&behind["rows"], &behind["shown"]["of"]), (&json!([]), &json!(4)));
    assert_eq!(behind["next"], json!([format!("uhr query {path} --group-by function"), overview]));
    let waits = answer(&rec.profile, "wait", |q| q.metric = Metric::OffCpu);
    assert_eq!(waits["next"], json!([overview]));
}

#[test]
fn more_samples_than_expected_were_to_be_expected() {
    let mut planted = Planted::new(20);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    planted.sample(0, main, &["main"]);
    planted.manifest.ledger.cpu.expected = 1_119;
    planted.manifest.ledger.cpu.captured = 1_123;
    let rec = planted.finish();
    let coverage = answer(&rec.profile, "function", |_| ())["coverage"].clone();
    assert_eq!((&coverage["expected"], &coverage["drift"]), (&json!(1_123), &json!(0)));
}

#[test]
fn processes_of_one_pid_are_candidates_with_their_beginnings() {
    let mut planted = Planted::new(100);
    for start_ms in [0, 43] {
        let process = planted.process("sh", 7);
        planted.process_row(process).start_ns = START + start_ms * MS;
        let thread = planted.thread(process, "sh", 7);
        planted.sample(50 + start_ms, thread, &["main"]);
        planted.without_sample(20, thread, MS, StackEnding::KernelNotVisible);
    }
    let rec = planted.finish();
    let error = ask(&rec.profile, "function", |q| q.filters.process = vec!["no".into()]).unwrap_err();
    let names: Vec<&str> = error.candidates().iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["sh (7) from 0 ns", "sh (7) from 43.0 ms"]);
}
