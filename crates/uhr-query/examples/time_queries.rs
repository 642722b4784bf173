//! Times questions of a recording: the first one, cold, and the next ones of the same window. One JSON object a line:
//! time passed, and CPU time of all threads (in steps of 10 ms), which a busy machine does not stretch.
//!
//! ```text
//! cargo run --release -p uhr-query --example time_queries -- FOLDER
//! ```
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a tool of the benchmark, not of users")]

use std::path::Path;
use std::time::Instant;

use uhr_model::Metric;
use uhr_query::answers::Direction;
use uhr_query::{Filters, GroupBy, Profile, Question, call_paths, flame_tree, overview, query};
use uhr_recording::Recording;

fn main() {
    let folder = std::env::args().nth(1).unwrap();
    let begin = Instant::now();
    let recording = Recording::open(Path::new(&folder)).unwrap();
    let profile = Profile::load(&recording, None).unwrap();
    report("load", begin.elapsed(), cpu_ms());
    let cpu = Question::default();
    let grouped = |question: &Question, group: &str| {
        query(&profile, question, &GroupBy::parse(group).unwrap()).unwrap()
    };
    let first = timed("query --group-by function, first", || grouped(&cpu, "function"));
    report("load and first answer", begin.elapsed(), cpu_ms());
    timed("query --group-by function, again", || grouped(&cpu, "function"));
    timed("query --group-by module", || grouped(&cpu, "module"));
    timed("query --group-by process", || grouped(&cpu, "process"));
    timed("query --group-by thread,function", || grouped(&cpu, "thread,function"));
    timed("query --group-by function,file,line", || grouped(&cpu, "function,file,line"));
    let name = match &first.rows {
        uhr_query::answers::Rows::Counted(rows) => rows[0].key.0[0].1.to_string(),
        uhr_query::answers::Rows::Resident(_) => String::new(),
    };
    let under =
        Question { filters: Filters { under: vec![name.clone()], ..Filters::default() }, ..cpu.clone() };
    timed("query --under", || grouped(&under, "function"));
    let window = Filters { from: Some("10s".into()), to: Some("20s".into()), ..Filters::default() };
    timed("query --from --to, first", || grouped(&Question { filters: window, ..cpu.clone() }, "function"));
    timed("query --group-by time, first", || grouped(&cpu, "time"));
    timed("query --metric off-cpu, first", || {
        grouped(&Question { metric: Metric::OffCpu, ..cpu.clone() }, "wait")
    });
    timed("call-paths", || call_paths(&profile, &cpu, &name, Direction::Paths).unwrap());
    timed("call-paths --callers", || call_paths(&profile, &cpu, &name, Direction::Callers).unwrap());
    timed("flamegraph tree", || flame_tree(&profile, &cpu, false).unwrap());
    timed("overview", || overview(&profile, &Filters::default(), false).unwrap());
}

fn timed<T>(what: &str, ask: impl FnOnce() -> T) -> T {
    let (begin, cpu) = (Instant::now(), cpu_ms());
    let answer = ask();
    report(what, begin.elapsed(), cpu_ms() - cpu);
    answer
}

fn report(what: &str, took: std::time::Duration, cpu_ms: u64) {
    println!("{{\"question\": \"{what}\", \"ms\": {:.1}, \"cpu_ms\": {cpu_ms}}}", took.as_secs_f64() * 1e3);
}

/// CPU time of this process: fields 14 and 15 of its `stat`, in hundredths of a second.
fn cpu_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let behind_name = stat.rsplit_once(')').unwrap().1;
    behind_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap() * 10).sum()
}
