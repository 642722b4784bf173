//! `uhr call-paths`, flame graphs and collapsed text on planted recordings.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use serde_json::{Value, json};
use support::{Loaded, MS, Planted, valid};
use uhr_model::{Metric, StackEnding};
use uhr_query::answers::Direction;
use uhr_query::{Profile, Question, call_paths, collapsed, flame_tree};

fn paths(
    profile: &Profile,
    function: &str,
    direction: Direction,
    change: impl FnOnce(&mut Question),
) -> Value {
    let mut question = Question { limit: 100, ..Question::default() };
    change(&mut question);
    valid(&call_paths(profile, &question, function, direction).unwrap())
}

/// `depth name self/total` of each row, in milliseconds.
fn tree(answer: &Value) -> Vec<String> {
    let ms = |value: &Value| value.as_u64().unwrap() / MS;
    let row = |row: &Value| {
        let name = row["key"]["function"].as_str().unwrap();
        format!("{} {name} {}/{}", row["depth"], ms(&row["self"]), ms(&row["total"]))
    };
    answer["rows"].as_array().unwrap().iter().map(row).collect()
}

/// Two ways into `work`, which calls itself, and one way past it.
fn rec() -> Loaded {
    let mut planted = Planted::new(100);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    let mut at = 0;
    let mut times = |count: usize, stack: &[&str]| {
        for _ in 0..count {
            planted.sample(at, main, stack);
            at += 1;
        }
    };
    times(4, &["main", "a", "work", "read"]);
    times(3, &["main", "b", "work"]);
    times(2, &["main", "b", "work", "work", "read"]);
    times(1, &["main", "a", "outer+work+add"]);
    times(5, &["main", "other"]);
    planted.without_sample(50, main, 2 * MS, StackEnding::KernelNotVisible);
    planted.finish()
}

#[test]
fn callees_are_below_the_outermost_call() {
    let rec = rec();
    let answer = paths(&rec.profile, "work", Direction::Callees, |_| ());
    assert_eq!(tree(&answer), ["0 work 3/10", "1 read 4/4", "1 work 0/2", "2 read 2/2", "1 add 1/1"]);
    assert_eq!(answer["metric"]["total"], 10 * MS);
    assert_eq!(answer["function"]["total_share"], 0.58824, "10 of 17");
    assert_eq!(answer["rows"][1]["total_share"], 0.4);
    assert_eq!(
        (&answer["function"]["self"], &answer["function"]["total"]),
        (&json!(3 * MS), &json!(10 * MS))
    );
}

#[test]
fn callers_are_above_the_outermost_call() {
    let rec = rec();
    let answer = paths(&rec.profile, "work", Direction::Callers, |_| ());
    assert_eq!(
        tree(&answer),
        [
            "0 work 0/10",
            "1 b 0/5",
            "2 main 5/5",
            "1 a 0/4",
            "2 main 4/4",
            "1 outer 0/1",
            "2 a 0/1",
            "3 main 1/1"
        ]
    );
    let read = paths(&rec.profile, "read", Direction::Callers, |q| q.filters.under = vec!["b".into()]);
    assert_eq!(tree(&read), ["0 read 0/2", "1 work 0/2", "2 work 0/2", "3 b 2/2"], "nothing above b");
}

#[test]
fn a_limit_takes_the_largest_nodes_and_keeps_the_order_of_the_tree() {
    let rec = rec();
    let answer = paths(&rec.profile, "work", Direction::Callers, |q| q.limit = 4);
    assert_eq!(tree(&answer), ["0 work 0/10", "1 b 0/5", "2 main 5/5", "1 a 0/4"]);
    assert_eq!(answer["shown"]["of"], 8);
    let more = answer["shown"]["more"].as_str().unwrap();
    assert!(more.ends_with("--function work --callers --limit 4 --offset 4"), "{more}");
}

#[test]
fn whole_paths_are_the_default() {
    let rec = rec();
    let answer = paths(&rec.profile, "work", Direction::Paths, |_| ());
    let first: Vec<_> =
        answer["rows"].as_array().unwrap().iter().map(|row| (&row["path"], &row["self"])).collect();
    assert_eq!(first[0], (&json!(["main", "a", "work", "read"]), &json!(4 * MS)));
    assert_eq!(first[1], (&json!(["main", "b", "work"]), &json!(3 * MS)));
    assert_eq!(first[3], (&json!(["main", "a", "outer", "work", "add"]), &json!(MS)));
    assert_eq!(answer["shown"]["self_share"], 1.0);
    assert_eq!(answer["rows"][0].get("omitted"), None);
}

#[test]
fn a_long_path_loses_its_middle() {
    let mut planted = Planted::new(100);
    let app = planted.process("app", 100);
    let main = planted.thread(app, "app", 100);
    let names: Vec<String> = (0..40).map(|at| format!("f{at}")).collect();
    planted.sample(0, main, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let rec = planted.finish();
    let row = |name| paths(&rec.profile, name, Direction::Paths, |_| ())["rows"][0].clone();
    let middle = row("f20");
    assert_eq!(middle["path"], json!(["f0", "f18", "f19", "f20", "f21", "f22", "f37", "f38", "f39"]));
    let gaps = json!([{"after": 1, "functions": 17}, {"after": 6, "functions": 14}]);
    assert_eq!(middle["omitted"], gaps);
    assert_eq!(row("f39")["path"], json!(["f0", "f37", "f38", "f39"]));
    assert_eq!(row("f39")["omitted"], json!([{"after": 1, "functions": 36}]));
    // A gap of one is none.
    assert_eq!(row("f4")["path"], json!(["f0", "f1", "f2", "f3", "f4", "f5", "f6", "f37", "f38", "f39"]));
    let whole = paths(&rec.profile, "f39", Direction::Paths, |q| q.whole_names = true);
    assert_eq!(whole["rows"][0]["path"].as_array().unwrap().len(), 40);
}

fn text(profile: &Profile, change: impl FnOnce(&mut Question)) -> (String, Value) {
    let mut question = Question::default();
    change(&mut question);
    let stacks = collapsed(profile, &question).unwrap();
    let mut out = Vec::new();
    stacks.stacks.write(&mut out).unwrap();
    (String::from_utf8(out).unwrap(), valid(&stacks.into_answer("-")))
}

#[test]
fn collapsed_stacks_begin_with_the_program() {
    let rec = rec();
    let (all, answer) = text(&rec.profile, |_| ());
    assert_eq!(
        all,
        "\
        app;[kernel, not visible] 2000000\n\
        app;main;a;outer;work;add 1000000\n\
        app;main;a;work;read 4000000\n\
        app;main;b;work 3000000\n\
        app;main;b;work;work;read 2000000\n\
        app;main;other 5000000\n"
    );
    assert_eq!(answer["written"], json!({"path": "-", "frames": 6, "hidden": 0, "hidden_share": 0.0}));
    let (under, _) = text(&rec.profile, |q| q.filters.under = vec!["b".into()]);
    assert_eq!(under, "app;b;work 3000000\napp;b;work;work;read 2000000\n");
}

#[test]
fn flame_graphs_draw_every_nanosecond_once() {
    let rec = rec();
    for inverted in [false, true] {
        let picture = flame_tree(&rec.profile, &Question::default(), inverted).unwrap();
        assert_eq!(picture.title, "CPU time of app");
        let graph = uhr_query::flamegraph::FlameGraph {
            title: &picture.title,
            subtitle: &picture.subtitle,
            unit: picture.unit,
            tree: &picture.tree,
            notes: &picture.notes,
            icicle: None,
            min_share: 0.0,
        };
        let mut svg = Vec::new();
        let drawn = uhr_query::flamegraph::write(&graph, &mut svg).unwrap();
        assert!(String::from_utf8(svg).unwrap().contains("17.0 ms"), "the root holds all 17 ms");
        assert_eq!(drawn.hidden, 0);
        // Upright: app, [kernel], main, a, outer, work, add, work, read, b, work, work, read, other. Inverted: app, [kernel],
        // other main, add work outer a main, read work (a main, work b main), work b main.
        let frames = if inverted { 19 } else { 14 };
        assert_eq!(drawn.frames, frames, "inverted: {inverted}");
        let answer = valid(&picture.into_answer("cpu.svg", &drawn));
        assert_eq!(answer["request"]["inverted"], inverted);
    }
}

#[test]
fn programs_are_separate_in_a_picture_and_together_by_name() {
    let mut planted = Planted::new(100);
    for (name, pid) in [("cc1", 10), ("cc1", 11), ("make", 9)] {
        let process = planted.process(name, pid);
        let thread = planted.thread(process, name, pid);
        planted.sample(u64::from(pid), thread, &["main"]);
    }
    let rec = planted.finish();
    let (all, _) = text(&rec.profile, |_| ());
    assert_eq!(all, "cc1;main 2000000\nmake;main 1000000\n");
    let picture = flame_tree(&rec.profile, &Question::default(), false).unwrap();
    assert_eq!(picture.title, "CPU time of cc1 and 1 more");
    assert_eq!(picture.tree.node_count(), 5, "all; cc1 main; make main");
    let one = Question {
        filters: uhr_query::Filters { process: vec!["9".into()], ..Default::default() },
        ..Default::default()
    };
    assert_eq!(flame_tree(&rec.profile, &one, false).unwrap().tree.node_count(), 2);
    assert!(
        flame_tree(&rec.profile, &Question { metric: Metric::Resident, ..Default::default() }, false)
            .is_err()
    );
}

#[test]
fn a_title_names_the_program_that_cost_most() {
    let mut planted = Planted::new(100);
    for (name, pid, samples) in [("as", 10, 1), ("cc1", 11, 5), ("make", 9, 2)] {
        let process = planted.process(name, pid);
        let thread = planted.thread(process, name, pid);
        (0..samples).for_each(|at| planted.sample(at, thread, &["main"]));
    }
    let rec = planted.finish();
    let picture = flame_tree(&rec.profile, &Question::default(), false).unwrap();
    assert_eq!(picture.title, "CPU time of cc1 and 2 more");
}

#[test]
fn where_a_function_does_not_occur_the_next_question_is_wider() {
    let rec = rec();
    let answer = paths(&rec.profile, "work", Direction::Paths, |q| q.filters.from = Some("50ms".into()));
    let path = rec.path.display();
    let wider = [format!("uhr call-paths {path} --function work"), format!("uhr overview {path}")];
    assert_eq!(answer["next"], json!(wider));
}
