//! Every answer fits its published schema, and what it names next runs.

use serde_json::Value;

use crate::fixture::Fixture;

/// Every question, with filters and without.
const QUESTIONS: &[(&str, &[&str])] = &[
    ("uhr.overview/1", &["overview", "rec"]),
    ("uhr.query/1", &["query", "rec"]),
    (
        "uhr.query/1",
        &["query", "rec", "--group-by", "function,line", "--under", "parse_json", "--limit", "1"],
    ),
    ("uhr.query/1", &["query", "rec", "--group-by", "module", "--detail", "full"]),
    ("uhr.query/1", &["query", "rec", "--group-by", "process,thread"]),
    (
        "uhr.query/1",
        &["query", "rec", "--group-by", "time:1s", "--thread", "worker", "--from", "1s", "--to", "-2s"],
    ),
    ("uhr.query/1", &["query", "rec", "--metric", "off-cpu", "--group-by", "wait,syscall"]),
    ("uhr.query/1", &["query", "rec", "--metric", "wall", "--group-by", "thread-name"]),
    ("uhr.query/1", &["query", "rec", "--metric", "off-cpu", "--group-by", "waker", "--idle"]),
    ("uhr.query/1", &["query", "rec", "--group-by", "cgroup,container,pod,syscall,cpu"]),
    ("uhr.query/1", &["query", "rec", "--metric", "page-faults", "--group-by", "region"]),
    ("uhr.query/1", &["query", "rec", "--metric", "resident", "--group-by", "process"]),
    ("uhr.query/1", &["query", "rec", "--function", "lex", "--mode", "user", "--module", "app"]),
    ("uhr.call-paths/1", &["call-paths", "rec", "--function", "lex"]),
    ("uhr.call-paths/1", &["call-paths", "rec", "--function", "lex", "--callers"]),
    ("uhr.call-paths/1", &["call-paths", "rec", "--function", "parse_json", "--callees"]),
    ("uhr.annotate/1", &["annotate", "rec", "--function", "lex"]),
    ("uhr.annotate/1", &["annotate", "rec", "--function", "lex", "--asm"]),
    ("uhr.annotate/1", &["annotate", "rec", "--function", "malloc", "--asm", "--metric", "page-faults"]),
    ("uhr.annotate/1", &["annotate", "rec", "--function", "main", "--limit", "1", "--under", "parse_json"]),
    ("uhr.query/1", &["query", "rec", "--group-by", "instruction,file"]),
    ("uhr.query/1", &["query", "rec", "--group-by", "address,line"]),
    ("uhr.waker-chains/1", &["call-paths", "rec", "--wakers", "--limit", "1"]),
    ("uhr.flamegraph/1", &["flamegraph", "rec", "-o", "cpu.svg"]),
    ("uhr.export/1", &["export", "rec", "--format", "collapsed", "-o", "stacks.txt"]),
    ("uhr.doctor/1", &["doctor"]),
    ("uhr.doctor/1", &["doctor", "--pid", "1"]),
    ("uhr.schema-list/1", &["schema"]),
    ("uhr.error/1", &["call-paths", "rec", "--function", "a"]),
    ("uhr.error/1", &["query", "rec", "--group-by", "colour"]),
];

fn schema(fixture: &Fixture, name: &str) -> jsonschema::Validator {
    let ran = fixture.run(&["schema", name]);
    assert_eq!(ran.status, 0, "{name}: {}", ran.stderr);
    jsonschema::validator_for(&ran.json()).unwrap()
}

#[test]
fn every_answer_fits_its_schema() {
    let fixture = Fixture::new();
    for (name, args) in QUESTIONS {
        let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        let ran = fixture.run(&args);
        assert_eq!(ran.stdout.lines().count(), 1, "{args:?}: {}", ran.stderr);
        let answer = ran.json();
        assert_eq!(answer["schema"], *name, "{args:?}: {answer}");
        let errors: Vec<String> =
            schema(&fixture, name).iter_errors(&answer).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{args:?}: {errors:?}");
    }
}

#[test]
fn schemas_are_listed_and_have_short_names() {
    let fixture = Fixture::empty();
    let list = fixture.run(&["schema"]).stdout;
    for name in list.lines() {
        let short = name.strip_prefix("uhr.").and_then(|name| name.strip_suffix("/1")).unwrap();
        assert_eq!(fixture.run(&["schema", short]).json()["title"], name);
    }
    for (name, _) in QUESTIONS {
        assert!(list.lines().any(|line| line == *name), "{name}");
    }
}

/// Words of a shell command as uhr writes them: plain or in single quotes.
fn words(fixture: &Fixture, command: &str) -> Vec<String> {
    let script = format!("for word in {command}; do printf '%s\\n' \"$word\"; done");
    let output =
        std::process::Command::new("sh").args(["-c", &script]).current_dir(fixture.path("")).output();
    String::from_utf8(output.unwrap().stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn what_comes_next_runs() {
    let asked = || QUESTIONS.iter().filter(|(name, _)| *name != "uhr.doctor/1");
    let mut tried = 0;
    for (fixture, args) in [Fixture::new(), Fixture::of_waits()]
        .iter()
        .flat_map(|fixture| asked().map(move |(_, args)| (fixture, args)))
    {
        let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        let answer = fixture.run(&args).json();
        let next =
            answer.get("next").unwrap_or(&answer["error"]["next"]).as_array().cloned().unwrap_or_default();
        let more = answer["shown"]["more"].as_str().map(Value::from);
        for command in next.into_iter().chain(more) {
            let words = words(fixture, command.as_str().unwrap());
            assert_eq!(words[0], "uhr", "{command}");
            let args: Vec<&str> = words[1..].iter().map(String::as_str).collect();
            let ran = fixture.run(&args);
            assert_eq!(ran.status, 0, "{command}: {}", ran.stderr);
            tried += 1;
        }
    }
    assert!(tried > 5);
}

#[test]
fn known_shares_come_out() {
    let fixture = Fixture::new();
    let answer = fixture.run(&["query", "rec", "--json"]).json();
    assert_eq!(answer["metric"]["total"], 10_000_000_000_u64);
    let row = |name: &str| {
        let rows = answer["rows"].as_array().unwrap();
        rows.iter().find(|row| row["key"]["function"] == name).cloned().unwrap()
    };
    assert_eq!(row("lex")["self_share"], 0.4);
    assert_eq!(row("malloc")["self_share"], 0.3);
    assert_eq!(row("parse_json")["total_share"], 0.8);
    assert_eq!(row("parse_json")["self_share"], 0.1);
}

#[test]
fn pictures_and_stacks_go_to_the_standard_output_without_a_file() {
    let fixture = Fixture::new();
    let svg = fixture.run(&["flamegraph", "rec"]);
    assert_eq!(svg.status, 0, "{}", svg.stderr);
    assert!(svg.stdout.contains("<svg") && svg.stdout.contains("parse_json"));
    let stacks = fixture.run(&["export", "rec", "--format", "collapsed"]);
    assert_eq!(stacks.status, 0, "{}", stacks.stderr);
    assert!(stacks.stdout.lines().any(|line| line.contains("main;parse_json;lex ")), "{}", stacks.stdout);
    // One object on the standard output or the picture, not both.
    assert_eq!(fixture.run(&["flamegraph", "rec", "--json"]).status, 2);
}

#[test]
fn a_picture_can_be_written_and_says_so() {
    let fixture = Fixture::new();
    let ran = fixture.run(&["flamegraph", "rec", "-o", "cpu.svg"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(std::fs::read_to_string(fixture.path("cpu.svg")).unwrap().contains("</svg>"));
    assert!(ran.stdout.contains("cpu.svg"), "{}", ran.stdout);
}

#[test]
fn a_recording_without_names_answers_and_says_what_it_is() {
    let fixture = Fixture::unfinished();
    let answer = fixture.run(&["query", "rec", "--group-by", "thread", "--json"]).json();
    assert_eq!(answer["recording"]["state"], "captured");
    assert_eq!(answer["metric"]["total"], 10_000_000_000_u64);
    let text = fixture.run(&["query", "rec"]);
    assert_eq!(text.status, 0, "{}", text.stderr);
    // The program is not on this machine: its code stays as module and offset.
    assert!(text.stdout.contains(" · captured") && text.stdout.contains("app+0x"), "{}", text.stdout);
}

#[test]
fn a_recording_of_an_uhr_that_kept_no_code_still_answers() {
    let fixture = Fixture::new();
    let path = fixture.path("rec/manifest.json");
    let mut manifest: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for table in ["code", "code_lines"] {
        std::fs::remove_file(fixture.path(&format!("rec/{table}.parquet"))).unwrap();
        manifest["table_bytes"].as_object_mut().unwrap().remove(table).unwrap();
    }
    std::fs::write(path, manifest.to_string()).unwrap();
    let answer = fixture.run(&["annotate", "rec", "--function", "lex", "--asm", "--json"]).json();
    assert_eq!(answer["rows"][0]["address"], "0x1200", "{answer}");
    assert_eq!(answer["rows"][0]["text"], Value::Null, "{answer}");
    assert!(answer["coverage"]["notes"].to_string().contains("holds no code"), "{answer}");
    let lines = fixture.run(&["annotate", "rec", "--function", "lex", "--json"]).json();
    assert_eq!(lines["rows"][0]["line"], 90, "{lines}");
    assert_eq!(fixture.run(&["query", "rec", "--group-by", "instruction"]).status, 0);
}
