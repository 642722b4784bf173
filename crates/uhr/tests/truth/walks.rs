//! Stacks that the kernel walks by rows of call frame information: exact for frames that are left in unusual ways, and the
//! same as those that user space finds in copies, for programs that nobody wrote for this.

use uhr_recording::Recording;

use crate::harness::{Place, Recorded, Who, has, has_ebpf, number};
use crate::shares::{assert_path, main_path};

/// Fails unless most stacks were walked in the kernel, and all of those as user space does.
fn assert_walked(recorded: &Recorded) {
    assert_agrees(recorded);
    let ledger = Recording::open(&recorded.rec).unwrap().manifest.ledger;
    let sum = |of: &std::collections::BTreeMap<String, u64>| of.values().sum::<u64>() as f64;
    let (walked, copied) = (sum(&ledger.walked), sum(&ledger.copied));
    assert!(walked > 0.6 * (walked + copied), "{:?} {:?}", ledger.walked, ledger.copied);
}

/// Fails unless the kernel's walks are those of user space.
fn assert_agrees(recorded: &Recorded) {
    let manifest = Recording::open(&recorded.rec).unwrap().manifest;
    let note = manifest.notes.iter().find(|note| note.starts_with("of walks of the kernel"));
    let note = note.unwrap_or_else(|| panic!("{:?}", manifest.notes));
    assert!(note.ends_with(" 0 differed"), "{:#?}", manifest.notes);
}

fn record(place: &Place, name: &str, command: &[&dyn AsRef<std::ffi::OsStr>]) -> Option<Recorded> {
    place.record(Who::Us, name, &["--sampler", "ebpf", "--check-walks"], command).or_skip()
}

fn odd_frames(flags: &[&str]) {
    if !has_ebpf() {
        return;
    }
    let place = Place::new();
    let program = place.c("odd_frames.c", flags);
    let Some(recorded) = record(&place, "rec", &[&program]) else { return };
    assert_walked(&recorded);
    assert_path(&recorded, "in_aligned", &["main", "aligned", "in_aligned"]);
    assert_path(&recorded, "in_last", &["start_thread", "thread", "last", "in_last"]);
    let names = |function: &str, wanted: &[&str]| {
        let (path, _) = main_path(&recorded, function);
        let mut rest = path.iter();
        assert!(wanted.iter().all(|name| rest.any(|seen| seen == name)), "{path:?}");
    };
    names("in_clock", &["main", "in_clock", "__vdso_clock_gettime"]);
    names("in_handler", &["main", "interrupted", "on_signal", "in_handler"]);
    names("in_callback", &["main", "sorted", "compare", "in_callback"]);
    let (deep, _) = main_path(&recorded, "in_deep");
    assert_eq!(deep.iter().filter(|name| *name == "deep").count(), 701, "main called deep(700)");
    let answer = recorded.ask("query --group-by function --limit 1");
    assert!(number(&answer["coverage"], "stacks_complete_share") >= 0.995, "{:#}", answer["coverage"]);
}

#[test]
fn frames_that_are_left_in_unusual_ways() {
    odd_frames(&["-fomit-frame-pointer"]);
}

#[test]
fn the_same_with_frame_pointers_and_without_names() {
    odd_frames(&["-fno-omit-frame-pointer", "-static-pie"]);
}

/// Of programs of several libraries, C and C++, without frame pointers.
#[test]
fn programs_as_they_come() {
    if !has_ebpf() {
        return;
    }
    let place = Place::new();
    let work = "import json, re, zlib\n\
                d = [{'a': i, 'b': [1, 2, 3], 'c': str(i)} for i in range(20000)]\n\
                for _ in range(30): s = json.dumps(d); json.loads(s); zlib.compress(s.encode()); re.findall(r'(\\d+)', s)\n";
    let script = place.path("work.py");
    std::fs::write(&script, work).unwrap();
    let source = place.path("templates.cpp");
    std::fs::write(
        &source,
        "#include <regex>\n#include <map>\nstd::regex r(\"a*b\"); std::map<int, std::regex> m;\n",
    )
    .unwrap();
    let python: [&dyn AsRef<std::ffi::OsStr>; 2] = [&"python3", &script];
    let compiler: [&dyn AsRef<std::ffi::OsStr>; 6] = [&"g++", &"-O2", &"-c", &source, &"-o", &"/dev/null"];
    for (name, command) in [("python", &python[..]), ("compiler", &compiler[..])] {
        if has(&command[0].as_ref().to_string_lossy()) {
            let Some(recorded) = record(&place, name, command) else { return };
            assert_walked(&recorded);
        }
    }
}

/// Code that a program makes keeps frame pointers or not: what the kernel follows has to be what user space finds.
#[test]
fn programs_with_generated_code() {
    if !has_ebpf() || !has("node") {
        return;
    }
    let place = Place::new();
    let work = "const fib = n => n < 2 ? n : fib(n - 1) + fib(n - 2); const words = {};\n\
                for (let i = 0; i < 60; i++) {\n\
                fib(24); for (let j = 0; j < 60000; j++) words[j % 5000] = (words[j % 5000] || 0) + String(j).length;\n\
                JSON.parse(JSON.stringify(words)); [...Array(5000).keys()].sort((a, b) => b - a); }\n";
    let script = place.path("work.js");
    std::fs::write(&script, work).unwrap();
    let Some(recorded) = record(&place, "node", &[&"node", &script]) else { return };
    assert_agrees(&recorded);
}

/// Deeper than can be kept: both ends are, and what is missing between them is shown and counted.
#[test]
fn very_deep_recursion_keeps_both_ends() {
    if !has_ebpf() {
        return;
    }
    let place = Place::new();
    let program = place.c("recursion.c", &["-fomit-frame-pointer"]);
    // The second is so deep that its root is not looked for.
    for (depth, has_root) in [("5000", true), ("50000", false)] {
        let name = format!("rec-{depth}");
        // So long that the way down and the first moments, whose copies are not so deep, are little on a busy machine, too.
        let Some(recorded) = record(&place, &name, &[&program, &depth, &"1.5"]) else { return };
        let (path, share) = main_path(&recorded, "at_the_bottom");
        assert!(share > 0.9, "{share} of the time is on {path:?}");
        let at = path.iter().position(|name| name == "[frames left out]").unwrap();
        let (root, leaf) = (&path[..at], &path[at + 1..]);
        assert_eq!([root.len(), leaf.len()], [512, 512]);
        let down = |part: &[String]| part.iter().filter(|name| *name == "down").count();
        assert_eq!((down(leaf), leaf[511].as_str()), (511, "at_the_bottom"));
        assert_eq!(root.contains(&"main".to_owned()), has_root, "{root:?}");
        assert!(down(root) > 505, "{root:?}");
        let answer = recorded.ask("query --group-by function --limit 1");
        let coverage = &answer["coverage"];
        let cut = number(&coverage["truncated"], "too-deep") / number(coverage, "captured");
        assert!(cut > 0.9, "{coverage:#}");
        assert_agrees(&recorded);
    }
}
