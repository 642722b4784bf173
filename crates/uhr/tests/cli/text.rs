//! Text as people see it, held against stored pages. `UHR_BLESS=1` writes them anew; read the difference then.

use crate::fixture::Fixture;

fn golden(name: &str, args: &[&str], columns: usize) {
    golden_of(&Fixture::new(), name, args, columns);
}

pub fn golden_of(fixture: &Fixture, name: &str, args: &[&str], columns: usize) {
    let output = fixture.uhr(args).env("COLUMNS", columns.to_string()).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    let found = format!("$ uhr {}\n{}", args.join(" "), String::from_utf8(output.stdout).unwrap());
    let path = format!("{}/tests/cli/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UHR_BLESS").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "{path} says otherwise (UHR_BLESS=1 writes it anew):\n{found}");
    for line in found.lines().skip(1).filter(|line| !line.contains("uhr ")) {
        assert!(line.chars().count() <= columns, "wider than {columns}: {line}");
    }
}

#[test]
fn overview() {
    golden("overview", &["overview", "rec"], 100);
}

#[test]
fn query_by_function() {
    golden("query-function", &["query", "rec"], 100);
    golden("query-function-narrow", &["query", "rec"], 60);
    golden("query-function-full", &["query", "rec", "--detail", "full"], 160);
}

#[test]
fn query_with_filters_and_more_rows() {
    golden(
        "query-filtered",
        &[
            "query",
            "rec",
            "--group-by",
            "function,line",
            "--under",
            "parse_json",
            "--from",
            "2s",
            "--limit",
            "2",
        ],
        100,
    );
}

#[test]
fn annotate() {
    golden("annotate-lines", &["annotate", "rec", "--function", "parse_json"], 100);
    golden("annotate-instructions", &["annotate", "rec", "--function", "lex", "--asm"], 100);
    golden("annotate-no-code", &["annotate", "rec", "--function", "malloc", "--asm"], 70);
    golden("query-instruction", &["query", "rec", "--group-by", "instruction"], 100);
}

#[test]
fn query_by_thread_time_and_wait() {
    golden("query-thread", &["query", "rec", "--group-by", "thread"], 100);
    golden("query-time", &["query", "rec", "--group-by", "time:2s"], 100);
    golden("query-wait", &["query", "rec", "--metric", "off-cpu", "--group-by", "wait,syscall"], 100);
}

#[test]
fn a_question_without_an_answer_says_why() {
    golden("query-behind-the-end", &["query", "rec", "--offset", "733"], 100);
    golden("query-nothing", &["query", "rec", "--function", "main"], 100);
}

#[test]
fn a_timeline_is_shown_whole_to_people() {
    let fixture = Fixture::new();
    for metric in ["cpu", "resident"] {
        let args = ["query", "rec", "--metric", metric, "--group-by", "time"];
        let text = fixture.run(&args).stdout;
        let starts: Vec<&str> =
            text.lines().filter(|line| line.ends_with(" s") || line.ends_with(" ms")).collect();
        assert_eq!(starts.len(), 59, "all 60 parts but the first, which begins at 0 ns: {text}");
        assert!(text.contains("  from\n"), "{text}");
        let json = fixture.run(&[&args[..], &["--json"]].concat()).json();
        assert_eq!(json["shown"]["rows"], 10);
    }
}

#[test]
fn memory_is_asked_by_process_where_nothing_is_said() {
    let fixture = Fixture::new();
    let answer = fixture.run(&["query", "rec", "--metric", "resident", "--json"]).json();
    assert_eq!(answer["request"]["group_by"], serde_json::json!(["process"]));
}

#[test]
fn what_an_ordinary_user_cannot_see_is_a_line() {
    let fixture = Fixture::new();
    let path = fixture.path("rec/manifest.json");
    let mut manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    manifest["settings"]["kernel_visible"] = false.into();
    std::fs::write(path, manifest.to_string()).unwrap();
    let query = fixture.run(&["query", "rec"]).stdout;
    assert!(query.contains("\nnote: kernel not visible: uhr overview says how to see it\n"), "{query}");
    assert!(!query.contains("perf_event_paranoid"), "{query}");
    assert!(fixture.run(&["overview", "rec"]).stdout.contains("perf_event_paranoid=1"));
    assert!(fixture.run(&["query", "rec", "--json"]).stdout.contains("perf_event_paranoid=1"));
}

#[test]
fn query_memory() {
    golden("query-resident", &["query", "rec", "--metric", "resident", "--group-by", "process"], 100);
    golden("query-faults", &["query", "rec", "--metric", "page-faults"], 100);
}

#[test]
fn call_paths() {
    golden("call-paths", &["call-paths", "rec", "--function", "lex"], 100);
    golden("call-paths-callers", &["call-paths", "rec", "--function", "lex", "--callers"], 100);
    golden("call-paths-callees", &["call-paths", "rec", "--function", "main", "--callees"], 100);
}

#[test]
fn what_was_written() {
    golden("flamegraph", &["flamegraph", "rec", "-o", "cpu.svg"], 100);
    golden("export", &["export", "rec", "--format", "collapsed", "-o", "stacks.txt"], 100);
}

#[test]
fn default_answers_are_short() {
    let fixture = Fixture::new();
    for args in [&["overview", "rec"][..], &["query", "rec"], &["call-paths", "rec", "--function", "lex"]] {
        let text = fixture.run(args).stdout;
        assert!(text.len() < 4096, "{args:?}: {} bytes", text.len());
    }
}
