//! Questions on random recordings against sums worked out one sample at a time; and forged recordings, which are
//! refused or answered, never a panic.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};
use serde_json::Value;
use support::{MS, Planted, START, answer, valid};
use uhr_model::{Metric, StackEnding, WaitKind};
use uhr_query::answers::Direction;
use uhr_query::{Filters, GroupBy, Profile, Question, call_paths, collapsed, flame_tree, overview, query};
use uhr_recording::tables::{
    FaultRow, FrameRow, LocationRow, MappingNameRow, ModuleRow, OffCpuRow, ProcessRow, ResidentRow,
    SampleRow, StackRow, ThreadRow,
};
use uhr_recording::{Finalized, Recording, RecordingWriter};

/// A sample: when, of which of three threads, and its stack, in which a function may be inlined into the one before.
type Sampled = (u64, u32, Vec<&'static str>);

const FRAMES: &[&str] = &["a", "b", "c", "a+b", "b+c+a", "d", "kernel!k"];

fn samples() -> impl Strategy<Value = Vec<Sampled>> {
    let stack = prop::collection::vec(prop::sample::select(FRAMES), 0..7);
    prop::collection::vec((0..100u64, 0..3u32, stack), 0..60)
}

fn plant(samples: &[Sampled]) -> Planted {
    let mut planted = Planted::new(100);
    let processes = [planted.process("one", 10), planted.process("two", 20)];
    let threads: Vec<u32> =
        (0..3).map(|at| planted.thread(processes[at as usize / 2], &format!("t{at}"), 100 + at)).collect();
    let mut sorted = samples.to_vec();
    sorted.sort_by_key(|sample| sample.0);
    for (at, thread, stack) in sorted {
        planted.sample(at, threads[thread as usize], &stack);
    }
    planted
}

/// The functions of a stack, outermost first.
fn functions(stack: &[&'static str]) -> Vec<&'static str> {
    stack.iter().flat_map(|frame| frame.rsplit('!').next().unwrap().split('+')).collect()
}

fn ask(profile: &Profile, group: &str, filters: Filters) -> Value {
    answer(profile, group, |question| (question.filters, question.limit) = (filters, 1000))
}

/// Self and total in samples by function.
fn found(answer: &Value) -> BTreeMap<String, (u64, u64)> {
    let row = |row: &Value| {
        let name = row["key"]["function"].as_str().unwrap().to_owned();
        (name, (row["self"].as_u64().unwrap() / MS, row["total"].as_u64().unwrap() / MS))
    };
    answer["rows"].as_array().unwrap().iter().map(row).collect()
}

fn truth<'a>(samples: impl Iterator<Item = &'a [&'static str]>) -> BTreeMap<String, (u64, u64)> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for path in samples {
        let leaf = path.last().copied().unwrap_or("[no stack]");
        sums.entry(leaf.to_owned()).or_default().0 += 1;
        let names: BTreeSet<&str> = path.iter().copied().chain([leaf]).collect();
        names.into_iter().for_each(|name| sums.entry(name.to_owned()).or_default().1 += 1);
    }
    sums
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_sample_counts_once(samples in samples(), cut in 1..99u64, thread in 0..3u32) {
        let rec = plant(&samples).finish();
        let paths: Vec<Vec<&str>> = samples.iter().map(|(_, _, stack)| functions(stack)).collect();

        let all = ask(&rec.profile, "function", Filters::default());
        prop_assert_eq!(found(&all), truth(paths.iter().map(Vec::as_slice)));
        let total = |answer: &Value| answer["metric"]["total"].as_u64().unwrap() / MS;
        prop_assert_eq!(total(&all), samples.len() as u64);

        // Windows that split the recording split its sums.
        let window = |from: Option<u64>, to: Option<u64>| Filters {
            from: from.map(|at| format!("{at}ms")),
            to: to.map(|at| format!("{at}ms")),
            ..Filters::default()
        };
        let (before, after) = (window(None, Some(cut)), window(Some(cut), None));
        let (before, after) = (ask(&rec.profile, "function", before), ask(&rec.profile, "function", after));
        prop_assert_eq!(total(&before) + total(&after), total(&all));
        let early = samples.iter().zip(&paths).filter(|(sample, _)| sample.0 < cut);
        prop_assert_eq!(found(&before), truth(early.map(|(_, path)| path.as_slice())));

        // One thread, by the sparse way (two dimensions) and by a filter.
        let of_thread = truth(samples.iter().zip(&paths).filter(|(one, _)| one.1 == thread).map(|(_, path)| path.as_slice()));
        let filter = Filters { thread: vec![(100 + thread).to_string()], ..Filters::default() };
        prop_assert_eq!(&found(&ask(&rec.profile, "function", filter)), &of_thread);
        let mut both = ask(&rec.profile, "thread,function", Filters::default());
        both["rows"].as_array_mut().unwrap().retain(|row| row["key"]["thread"]["tid"] == 100 + thread);
        prop_assert_eq!(&found(&both), &of_thread);

        // Below a function: the path from its outermost call on.
        if paths.iter().flatten().any(|name| *name == "b") {
            let below = paths.iter().filter_map(|path| path.iter().position(|name| *name == "b").map(|at| &path[at..]));
            let under = Filters { under: vec!["b".into()], ..Filters::default() };
            prop_assert_eq!(found(&ask(&rec.profile, "function", under)), truth(below));
        }
    }

    #[test]
    fn trees_hold_what_rows_hold(samples in samples()) {
        let rec = plant(&samples).finish();
        let paths: Vec<Vec<&str>> = samples.iter().map(|(_, _, stack)| functions(stack)).collect();
        let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
        for (sample, path) in samples.iter().zip(&paths) {
            let command = if sample.1 < 2 { "one" } else { "two" };
            let names = if path.is_empty() { vec!["[no stack]"] } else { path.clone() };
            *stacks.entry(format!("{command};{}", names.join(";"))).or_default() += MS;
        }
        let mut out = Vec::new();
        collapsed(&rec.profile, &Question::default()).unwrap().stacks.write(&mut out).unwrap();
        let lines: BTreeMap<String, u64> = String::from_utf8(out).unwrap().lines().map(|line| {
            let (stack, weight) = line.rsplit_once(' ').unwrap();
            (stack.to_owned(), weight.parse().unwrap())
        }).collect();
        prop_assert_eq!(lines, stacks);

        if paths.iter().flatten().any(|name| *name == "b") {
            let through = paths.iter().filter(|path| path.contains(&"b")).count() as u64 * MS;
            for direction in [Direction::Paths, Direction::Callers, Direction::Callees] {
                let question = Question { limit: 1000, ..Question::default() };
                let answer = valid(&call_paths(&rec.profile, &question, "b", direction).unwrap());
                prop_assert_eq!(answer["metric"]["total"].as_u64(), Some(through));
                let own: u64 = answer["rows"].as_array().unwrap().iter().map(|row| row["self"].as_u64().unwrap()).sum();
                prop_assert_eq!(own, through, "{:?}: what ends in the nodes adds up", direction);
            }
        }
    }

    #[test]
    fn waits_share_their_time_exactly(waits in prop::collection::vec((0..99u64, 1..60u64, any::<bool>()), 1..20), cut in 1..99u64) {
        let mut planted = Planted::new(100);
        let app = planted.process("app", 1);
        let main = planted.thread(app, "app", 1);
        let mut truth = [0u64; 2];
        for &(from, length, runnable) in &waits {
            let to = (from + length).min(100);
            planted.off_cpu(main, &["w"], (from, to), WaitKind::Lock, runnable);
            truth[usize::from(runnable)] += (to - from) * MS;
        }
        let rec = planted.finish();
        let total = |metric, filters| {
            let question = Question { metric, filters, ..Question::default() };
            query(&rec.profile, &question, &GroupBy::parse("time:7ms").unwrap()).unwrap().metric.total.unwrap()
        };
        prop_assert_eq!(total(Metric::OffCpu, Filters::default()), truth[0]);
        prop_assert_eq!(total(Metric::Runqueue, Filters::default()), truth[1]);
        let before = Filters { to: Some(format!("{cut}ms")), ..Filters::default() };
        let after = Filters { from: Some(format!("{cut}ms")), ..Filters::default() };
        prop_assert_eq!(total(Metric::Wall, before) + total(Metric::Wall, after), truth[0] + truth[1]);
    }
}

/// A number that is mostly small, sometimes anything.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![60 => 0..4u32, 1 => any::<u32>()]
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![60 => START..START + 100 * MS, 1 => any::<u64>(), 1 => Just(0)]
}

/// Rows of all kinds made of such numbers.
type Forged = Vec<(u8, [u32; 4], [u64; 3], u8)>;

fn forged() -> impl Strategy<Value = Forged> {
    let numbers = [number(), number(), number(), number()];
    let codes = prop_oneof![60 => 0..4u8, 1 => any::<u8>()];
    prop::collection::vec((0..9u8, numbers, [time(), time(), time()], codes), 0..40)
}

/// The rows, behind four sound ones of each kind that they can refer to.
fn write_forged(writer: &mut RecordingWriter, rows: &Forged) -> Vec<LocationRow> {
    let sound =
        (0..5u8).flat_map(|kind| (0..4u32).map(move |at| (kind, [0, at, 0, 0], [START, START, MS], 0)));
    let mut locations = Vec::new();
    writer.push_stack(StackRow { id: 0, parent: None, frame: None });
    let mut next = [0u32; 5];
    let mut id = |kind: usize| {
        next[kind] += 1;
        next[kind] - 1
    };
    let mut stacks = 0;
    for (kind, [a, b, c, d], [x, y, z], code) in sound.chain(rows.iter().copied()) {
        match kind {
            0 => writer.push_process(ProcessRow {
                id: id(0),
                pid: a,
                inner_pid: None,
                parent: Some(b),
                name: "p\x07".into(),
                executable: None,
                start_ns: x,
                end_ns: (c > 0).then_some(y),
                cgroup: None,
                container: None,
                pod: None,
            }),
            1 => writer.push_thread(ThreadRow {
                id: id(1),
                process: a,
                tid: b,
                name: String::new(),
                start_ns: x,
                end_ns: (c > 0).then_some(y),
                on_cpu_ns: z,
                samples: u64::from(d),
                pool: id(1),
                switches: 0,
                run_delay_ns: None,
            }),
            2 => writer.push_module(ModuleRow {
                id: id(2),
                kind: code,
                path: "/".into(),
                build_id: None,
                process: Some(a),
                symbols: None,
            }),
            3 => {
                let module = (b != 3).then_some(b);
                writer.push_frame(FrameRow { id: id(3), mode: code, module, address: x, is_return: true });
            }
            4 => {
                stacks += 1;
                writer.push_stack(StackRow { id: stacks, parent: Some(a), frame: Some(b) });
            }
            5 => writer.push_sample(SampleRow {
                time_ns: x,
                thread: a,
                cpu: 0,
                stack: b,
                weight_ns: y,
                ending: code,
                syscall: None,
            }),
            6 => writer.push_off_cpu(OffCpuRow {
                start_ns: x.min(y),
                end_ns: x.max(y),
                duration_ns: z % (x.abs_diff(y) + u64::from(x.abs_diff(y) < u64::MAX)).max(1),
                weight_ns: z,
                count: c,
                thread: a,
                stack: b,
                ending: code,
                runnable: d == 0,
                wait: code,
                syscall: Some(d),
                waker: 0,
                waker_stack: 0,
            }),
            7 => writer.push_fault(FaultRow {
                time_ns: x,
                thread: a,
                stack: b,
                ending: code,
                address: y,
                region: code,
                mapping: None,
                weight: z,
                major: false,
                page: 1,
            }),
            _ => {
                writer.push_resident(ResidentRow {
                    time_ns: x,
                    process: a,
                    anonymous_bytes: y,
                    file_bytes: z,
                    shared_bytes: 1,
                });
                locations.push(LocationRow {
                    frame: a,
                    depth: b,
                    function: (c > 0).then(|| format!("f{c}")),
                    file: None,
                    line: Some(d),
                    function_start: Some(x),
                    mode: Some(code),
                    reason: None,
                });
            }
        }
    }
    locations
}

/// Every kind of question; an error is an answer here.
fn ask_everything(profile: &Profile) {
    let window = Filters { from: Some("10ms".into()), ..Filters::default() };
    for metric in Metric::ALL {
        for filters in [Filters::default(), window.clone()] {
            let question = Question { metric: *metric, filters, ..Question::default() };
            for group in [
                "function,line",
                "thread,mode",
                "process",
                "time:13ms",
                "wait,syscall",
                "region",
                "command,time",
            ] {
                if let Ok(answer) = query(profile, &question, &GroupBy::parse(group).unwrap()) {
                    valid(&answer);
                }
            }
            for direction in [Direction::Paths, Direction::Callers, Direction::Callees] {
                let _ = call_paths(profile, &question, "f1", direction);
            }
            let _ = flame_tree(profile, &question, true);
            let _ = collapsed(profile, &question);
        }
    }
    if let Ok(answer) = overview(profile, &Filters::default(), false) {
        valid(&answer);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn forged_recordings_are_refused_or_answered(rows in forged(), expected in any::<u64>(), end in time()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rec");
        let mut manifest = Planted::new(100).manifest;
        manifest.window.end_ns = end;
        manifest.ledger.cpu.expected = expected;
        manifest.ledger.records_lost = expected;
        let mut writer = RecordingWriter::create(&path, &manifest).unwrap();
        let locations = write_forged(&mut writer, &rows);
        writer.finish(&manifest).unwrap();
        let names = Finalized { locations, ..Finalized::default() };
        if let Ok(profile) = Profile::load(&Recording::open(&path).unwrap(), Some(names)) {
            ask_everything(&profile);
        }
    }
}

#[test]
fn damage_is_named() {
    let load = |change: &dyn Fn(&mut RecordingWriter)| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rec");
        let manifest = Planted::new(100).manifest;
        let mut writer = RecordingWriter::create(&path, &manifest).unwrap();
        writer.push_stack(StackRow { id: 0, parent: None, frame: None });
        change(&mut writer);
        writer.finish(&manifest).unwrap();
        let profile = Profile::load(&Recording::open(&path).unwrap(), None)?;
        query(&profile, &Question::default(), &GroupBy::parse("function").unwrap()).map(|_| ())
    };
    let sample = |thread, stack| SampleRow {
        time_ns: START,
        thread,
        cpu: 0,
        stack,
        weight_ns: 1,
        ending: StackEnding::Complete.code(),
        syscall: None,
    };
    let code = |result: Result<(), uhr_query::QueryError>| result.unwrap_err().code();
    assert!(load(&|_| ()).is_ok());
    assert_eq!(code(load(&|writer| writer.push_sample(sample(7, 0)))), "damaged-recording");
    assert_eq!(code(load(&|writer| writer.push_sample(sample(0, 9)))), "damaged-recording");
    let cycle =
        |writer: &mut RecordingWriter| writer.push_stack(StackRow { id: 1, parent: Some(1), frame: Some(0) });
    assert_eq!(code(load(&cycle)), "damaged-recording");
    let name = |writer: &mut RecordingWriter| {
        writer.push_mapping_name(MappingNameRow { id: 3, name: "[anon:a]".to_owned() });
    };
    assert_eq!(code(load(&name)), "damaged-recording");
}

#[test]
fn a_deep_stack_is_walked_without_a_deep_call() {
    let mut planted = Planted::new(100);
    let app = planted.process("app", 1);
    let main = planted.thread(app, "app", 1);
    let deep: Vec<&str> = (0..200_000).map(|at| if at % 2 == 0 { "even" } else { "odd" }).collect();
    planted.sample(0, main, &deep);
    let rec = planted.finish();
    ask_everything(&rec.profile);
    let all = ask(&rec.profile, "function", Filters::default());
    assert_eq!(found(&all), BTreeMap::from([("even".into(), (0, 1)), ("odd".into(), (1, 1))]));
    let callers = call_paths(&rec.profile, &Question::default(), "odd", Direction::Callers).unwrap();
    assert!(callers.shown.of > 0);
}
