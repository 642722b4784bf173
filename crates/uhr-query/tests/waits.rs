//! Who ended waits, which of them were for work, and the circumstances that rows can be told apart by, on recordings
//! whose truth was worked out by hand.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use serde_json::{Value, json};
use support::{Loaded, MS, Planted, valid};
use uhr_model::{Interrupt, Metric, WaitKind};
use uhr_query::{Filters, Profile, QueryError, Question, overview, waker_chains};

/// In 1 s: `worker` waits 600 ms for `main`, 500 of them since `main` was woken by the timer and 100 since it was woken
/// by `client`, which nobody recorded; `main` waits 200 ms for the timer and 50 ms for what was not seen; `poller` waits
/// for work for 900 ms.
fn hand_offs() -> Planted {
    let mut planted = Planted::new(1000);
    planted.manifest.settings.sampler = "ebpf".into();
    let app = planted.process("app", 100);
    let (main, worker) = (planted.thread(app, "main", 100), planted.thread(app, "worker", 101));
    let poller = planted.thread(app, "poller", 102);
    let timer = planted.interrupt(Interrupt::Timer);
    let client = planted.strange_waker(None, "client", 7000);
    let main_by_timer = planted.waker(Some(timer), Some(main));
    let main_by_client = planted.waker(Some(client), Some(main));
    let worker_by_main = planted.waker(Some(main_by_timer), Some(worker));
    let lock = ["start", "take", "libc.so.6!futex_wait"];
    let unlock = ["main", "give", "libc.so.6!write"];
    planted.woken(worker, &lock, (0, 500), main_by_timer, &unlock);
    planted.woken(worker, &lock, (600, 700), main_by_client, &["main", "libc.so.6!exit"]);
    planted.woken(main, &["main", "rest"], (0, 200), timer, &["kernel!hrtimer_wakeup"]);
    planted.woken(main, &["main", "rest"], (300, 350), 0, &[]);
    planted.woken(poller, &["loop"], (0, 10), worker_by_main, &["start"]);
    planted.off_cpu(poller, &["loop", "epoll"], (10, 910), WaitKind::Idle, false);
    planted
}

fn ask(
    profile: &Profile,
    group: &str,
    metric: Metric,
    change: impl FnOnce(&mut Question),
) -> Result<Value, QueryError> {
    support::ask(profile, group, |question| {
        question.metric = metric;
        change(question);
    })
}

/// The value of a dimension and the milliseconds of each row.
fn rows(answer: &Value, dimension: &str) -> Vec<(Value, u64)> {
    let row = |row: &Value| (row["key"][dimension].clone(), row["self"].as_u64().unwrap() / MS);
    answer["rows"].as_array().unwrap().iter().map(row).collect()
}

fn both(check: impl Fn(&Profile)) {
    let captured = hand_offs().captured();
    check(&captured.profile());
    check(&captured.finish().profile);
}

#[test]
fn waits_are_told_apart_by_what_ended_them() {
    both(|profile| {
        let answer = ask(profile, "waker", Metric::OffCpu, |_| ()).unwrap();
        let thread = |name: &str, tid: u32| json!({"name": name, "tid": tid, "pid": 100});
        assert_eq!(
            rows(&answer, "waker"),
            [
                (thread("main", 100), 600),
                (json!({"interrupt": "timer"}), 200),
                (Value::Null, 50),
                (thread("worker", 101), 10),
            ]
        );
        let notes = answer["coverage"]["notes"].to_string();
        assert!(notes.contains("Of 5.8 % of this time it is not known"), "{notes}");
        assert_eq!(answer["next"][0], format!("uhr call-paths {} --wakers", answer_path(&answer)));
    });
}

fn answer_path(answer: &Value) -> &str {
    answer["recording"]["path"].as_str().unwrap()
}

#[test]
fn a_recording_without_wakers_says_who_records_them() {
    let mut planted = Planted::new(100);
    let app = planted.process("app", 1);
    let main = planted.thread(app, "app", 1);
    planted.off_cpu(main, &["main"], (0, 100), WaitKind::Lock, false);
    let rec = planted.finish();
    let answer = ask(&rec.profile, "waker", Metric::OffCpu, |_| ()).unwrap();
    assert_eq!(rows(&answer, "waker"), [(Value::Null, 100)]);
    assert!(answer["coverage"]["notes"].to_string().contains("by the sampler ebpf only"));
}

fn chains(profile: &Profile, change: impl FnOnce(&mut Question)) -> Value {
    let mut question = Question::default();
    change(&mut question);
    valid(&waker_chains(profile, &question).unwrap())
}

#[test]
fn chains_go_back_from_waker_to_waker() {
    both(|profile| {
        let answer = chains(profile, |_| ());
        let row = |at: usize| {
            let row = &answer["rows"][at];
            let names: Vec<&Value> = row["woken_by"]
                .as_array()
                .unwrap()
                .iter()
                .map(|waker| waker.get("name").or(waker.get("interrupt")).unwrap())
                .collect();
            (row["waiter"]["name"].clone(), json!(names), row["self"].as_u64().unwrap() / MS)
        };
        assert_eq!(row(0), (json!("worker"), json!(["main", "timer"]), 500));
        assert_eq!(row(1), (json!("main"), json!(["timer"]), 200));
        assert_eq!(row(2), (json!("worker"), json!(["main", "client"]), 100));
        assert_eq!(row(3), (json!("main"), json!([]), 50));
        assert_eq!(row(4), (json!("poller"), json!(["worker", "main", "timer"]), 10));
        assert_eq!(answer["rows"][2]["woken_by"][1], json!({"name": "client", "tid": 7000, "pid": 7000}));
        assert_eq!(answer["metric"]["total"], 860 * MS);
        assert_eq!(answer["metric"]["idle_hidden"], 900 * MS);
        assert_eq!(answer["rows"][0]["waker_function"], "give", "what called the C library");
        assert_eq!(answer["rows"][2]["waker_function"], "main", "and who called exit");
        assert_eq!(answer["rows"][1].get("waker_function"), None, "an interrupt has no function of its own");
        assert_eq!(answer["rows"][0]["wait"], "lock");
    });
}

#[test]
fn threads_that_wake_each_other_are_one_row() {
    let mut planted = Planted::new(1000);
    planted.manifest.settings.sampler = "ebpf".into();
    let app = planted.process("app", 1);
    let (ping, pong) = (planted.thread(app, "ping", 1), planted.thread(app, "pong", 2));
    let mut waker = None;
    for at in 0..20 {
        let (waits, wakes) = if at % 2 == 0 { (ping, pong) } else { (pong, ping) };
        let next = planted.waker(waker, Some(wakes));
        planted.woken(waits, &["f"], (at * 10, at * 10 + 10), next, &["f"]);
        waker = Some(next);
    }
    let rec = planted.finish();
    let answer = chains(&rec.profile, |_| ());
    // The first few chains are shorter; all others are four hops of the same.
    let longest = &answer["rows"][0];
    assert_eq!(longest["woken_by"].as_array().unwrap().len(), 4);
    assert_eq!(longest["is_cut"], true);
    assert_eq!(longest["self"], 90 * MS);
    let whole = chains(&rec.profile, |q| q.whole_names = true);
    assert_eq!(whole["shown"]["of"], 20);
}

#[test]
fn filters_of_circumstances() {
    let rec = hand_offs().finish();
    let total = |change: &dyn Fn(&mut Filters)| {
        let answer = ask(&rec.profile, "thread", Metric::OffCpu, |q| change(&mut q.filters)).unwrap();
        answer["metric"]["total"].as_u64().unwrap() / MS
    };
    let word = |text: &str| vec![text.to_owned()];
    assert_eq!(total(&|f| f.waker = word("main")), 600);
    assert_eq!(total(&|f| f.waker = word("100")), 600, "by tid");
    assert_eq!(total(&|f| f.waker = word("timer")), 200);
    assert_eq!(total(&|f| f.wait = word("idle")), 900, "asked for, it is shown");
    assert_eq!(total(&|f| f.syscall = word("futex")), 860);
    assert_eq!(total(&|f| f.syscall = word("202")), 860);
    assert_eq!(total(&|f| f.syscall = word("read")), 0);
    let code = |metric, change: &dyn Fn(&mut Filters)| {
        let error = ask(&rec.profile, "thread", metric, |q| change(&mut q.filters)).unwrap_err();
        (error.code(), error.is_usage(), error.candidates().len())
    };
    assert_eq!(code(Metric::OffCpu, &|f| f.waker = word("nobody")), ("unknown-waker", false, 3));
    assert_eq!(code(Metric::OffCpu, &|f| f.wait = word("rain")), ("unknown-wait", true, 0));
    assert_eq!(code(Metric::OffCpu, &|f| f.syscall = word("fly")), ("unknown-syscall", true, 0));
    assert_eq!(code(Metric::Cpu, &|f| f.wait = word("lock")), ("filter-not-of-metric", true, 0));
    assert_eq!(code(Metric::PageFaults, &|f| f.syscall = word("read")), ("filter-not-of-metric", true, 0));
}

#[test]
fn waiting_for_work_is_hidden_and_that_is_said() {
    let rec = hand_offs().finish();
    let hidden = ask(&rec.profile, "thread", Metric::OffCpu, |_| ()).unwrap();
    assert_eq!(hidden["metric"]["total"], 860 * MS);
    assert_eq!(hidden["metric"]["idle_hidden"], 900 * MS);
    let share: f64 =
        hidden["rows"].as_array().unwrap().iter().map(|row| row["self_share"].as_f64().unwrap()).sum();
    assert!((share - 1.0).abs() < 1e-4, "shares are of what is shown");
    assert!(hidden["coverage"]["notes"].to_string().contains("0.9 s in 1 wait for work"), "{hidden}");
    let shown = ask(&rec.profile, "thread", Metric::OffCpu, |q| q.idle = true).unwrap();
    assert_eq!(shown["metric"]["total"], 1760 * MS);
    assert_eq!(shown["metric"].get("idle_hidden"), None);
    assert_eq!(shown["request"]["idle"], true);
    assert!(shown["next"][0].as_str().unwrap().contains(" --idle "), "{}", shown["next"]);
    let kinds = ask(&rec.profile, "wait", Metric::OffCpu, |_| ()).unwrap();
    assert_eq!(rows(&kinds, "wait"), [(json!("idle"), 900), (json!("lock"), 860)]);
    let wall = ask(&rec.profile, "thread", Metric::Wall, |_| ()).unwrap();
    assert_eq!(wall["metric"]["idle_hidden"], 900 * MS);
    let elsewhere = ask(&rec.profile, "thread", Metric::OffCpu, |q| {
        q.filters.thread = vec!["worker".to_owned()];
    });
    assert_eq!(elsewhere.unwrap()["metric"].get("idle_hidden"), None, "this thread has none");
}

fn placed() -> Loaded {
    let mut planted = Planted::new(100);
    let (web, db) = (planted.process("web", 10), planted.process("db", 20));
    let (w, d) = (planted.thread(web, "web", 10), planted.thread(db, "db", 20));
    let row = planted.process_row(web);
    row.cgroup = Some("/kubepods/pod1/abc".into());
    row.container = Some("abc".into());
    row.pod = Some("pod1".into());
    planted.process_row(db).cgroup = Some("/system.slice/db.service".into());
    for at in 0..30 {
        planted.sample_on(at, w, &["main"], 0, None);
        planted.sample_on(at, d, &["main", "kernel!copy"], 1, Some(if at < 10 { 0 } else { 1 }));
    }
    for at in 30..40 {
        planted.sample_on(at, w, &["main"], 1, None);
    }
    planted.off_cpu(d, &["main"], (40, 90), WaitKind::Sleep, false);
    planted.finish()
}

#[test]
fn places_cpus_and_system_calls_are_dimensions() {
    let rec = placed();
    let by = |group: &str, metric| rows(&ask(&rec.profile, group, metric, |_| ()).unwrap(), group);
    assert_eq!(by("cpu", Metric::Cpu), [(json!(1), 40), (json!(0), 30)]);
    assert_eq!(
        by("syscall", Metric::Cpu),
        [(json!("[not in a system call]"), 40), (json!("write"), 20), (json!("read"), 10)]
    );
    assert_eq!(by("container", Metric::Cpu), [(json!("abc"), 40), (Value::Null, 30)]);
    assert_eq!(by("pod", Metric::Cpu), [(json!("pod1"), 40), (Value::Null, 30)]);
    assert_eq!(
        by("cgroup", Metric::Cpu),
        [(json!("/kubepods/pod1/abc"), 40), (json!("/system.slice/db.service"), 30)]
    );
    assert_eq!(by("cgroup", Metric::OffCpu), [(json!("/system.slice/db.service"), 50)]);
    let code = |group: &str, metric| ask(&rec.profile, group, metric, |_| ()).unwrap_err().code();
    assert_eq!(code("cpu", Metric::OffCpu), "dimension-not-of-metric");
    assert_eq!(code("waker", Metric::Cpu), "dimension-not-of-metric");
    assert_eq!(code("syscall", Metric::PageFaults), "dimension-not-of-metric");
}

#[test]
fn the_overview_says_who_wakes_and_how_much_is_idle() {
    let rec = hand_offs().finish();
    let answer = valid(&overview(&rec.profile, &Filters::default(), false).unwrap());
    let waits = &answer["waits"];
    assert_eq!((&waits["total_ns"], &waits["idle_ns"]), (&json!(1760 * MS), &json!(900 * MS)));
    assert_eq!(waits["kinds"][0]["key"], json!({"wait": "idle"}));
    assert_eq!(waits["wakers"][0]["key"], json!({"waker": {"name": "main", "tid": 100, "pid": 100}}));
    assert_eq!(waits["wakers"][0]["self_share"], 0.69767, "of what is not idle");
    assert!(answer["activity"]["sentence"].as_str().unwrap().contains("(51 % of that idle)"));
    assert!(answer["next"].to_string().contains("--metric off-cpu --group-by waker"), "{}", answer["next"]);

    let answer = valid(&overview(&placed().profile, &Filters::default(), false).unwrap());
    assert_eq!(answer["cpu"]["containers"][0]["key"], json!({"container": "abc"}));
    assert_eq!(answer["cpu"]["syscalls"][0]["key"], json!({"syscall": "write"}));
    assert_eq!(answer["cpu"]["syscalls"].as_array().unwrap().len(), 2);
}
