//! Recordings that end before their program: by `--duration`, and by the death of uhr itself.

use serde_json::Value;
use uhr_recording::tables::Samples;
use uhr_recording::{Recording, State};

use crate::harness::{Place, Recorded, Running, Who, ask, number, rows, wait_until};

/// The phases that the program logged as overlapping these nanoseconds.
fn phases_in(said: &str, from_ns: u64, to_ns: u64) -> Vec<String> {
    let lines: Vec<Value> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let starts = lines.iter().filter_map(|line| Some((line["phase"].as_u64()?, line["from_ns"].as_u64()?)));
    let starts: Vec<(u64, u64)> = starts.collect();
    let ends = starts.iter().skip(1).map(|next| next.1).chain([u64::MAX]);
    let overlapping = starts.iter().zip(ends).filter(|((_, start), end)| *start < to_ns && *end > from_ns);
    overlapping.map(|((phase, _), _)| format!("phase_{phase}")).collect()
}

/// Records two seconds of the program, which runs for thirty. On a busy host uhr too waits for its turn: longer than a
/// tenth of a second may pass before its programs are attached, or gone, and the window tells of all of it.
fn two_seconds(behaviour: &str) -> Option<Recorded> {
    let place = Place::new();
    let program = place.c("phases.c", &[]);
    let recorded = place.record(Who::Us, "rec", &["--duration", "2s"], &[&program, &"30", &behaviour]);
    let recorded = recorded.or_skip()?;
    assert_last_functions(&recorded);
    let window = Recording::open(&recorded.rec).unwrap().manifest.window;
    let length_s = (window.end_ns - window.start_ns) as f64 / 1e9;
    assert!((2.0..4.0).contains(&length_s), "recorded {length_s} s instead of two");
    Some(recorded)
}

/// The functions that ran last are in the recording, and nothing that ran later.
fn assert_last_functions(recorded: &Recorded) {
    let window = Recording::open(&recorded.rec).unwrap().manifest.window;
    let answer = recorded.ask("query --group-by function --from=-100ms --limit 100");
    let expected = phases_in(&recorded.stdout, window.end_ns - 100_000_000, window.end_ns);
    let seen: Vec<&str> = rows(&answer)
        .iter()
        .filter_map(|row| row["key"]["function"].as_str())
        .filter(|name| name.starts_with("phase_"))
        .collect();
    assert!(!seen.is_empty(), "the last 100 ms are missing: {answer:#}");
    assert!(seen.iter().all(|name| expected.iter().any(|phase| phase == name)), "{seen:?}, not {expected:?}");
}

#[test]
fn a_duration_ends_the_command() {
    two_seconds("");
}

#[test]
fn a_duration_ends_a_command_that_ignores_sigterm() {
    let recorded = two_seconds("ignore-term");
    recorded.inspect(|recorded| assert!(!recorded.stdout.contains("by itself"), "it was killed"));
}

#[test]
fn a_program_that_is_shorter_than_the_duration_ends_the_recording() {
    let place = Place::new();
    let program = place.c("phases.c", &[]);
    let recorded = place.record(Who::Us, "rec", &["--duration", "40s"], &[&program, &"0.3"]);
    let Some(recorded) = recorded.or_skip() else { return };
    assert!(recorded.stdout.contains("by itself"));
}

#[test]
fn attaching_for_a_while_leaves_the_process_alone() {
    let place = Place::new();
    let program = place.c("phases.c", &[]);
    let target = Running::program(&place, "target", std::process::Command::new(&program).arg("3"));
    let recorded =
        place.record(Who::Us, "rec", &["--duration", "1s", "--pid", &target.pid().to_string()], &[]);
    let Some(recorded) = recorded.or_skip() else { return };
    assert!(number(&recorded.ask("query --group-by function")["metric"], "samples") > 50.0);
    let target = target.end();
    assert_eq!(target.code(), 0);
    assert!(target.stdout.contains("by itself"));
}

#[test]
fn a_killed_recorder_leaves_a_recording_and_an_unharmed_program() {
    let place = Place::new();
    let program = place.c("phases.c", &[]);
    let mut uhr = place.start(Who::Us, "rec", &[], &[&program, &"5"]);
    wait_until("it has run for three seconds", || {
        uhr.said().lines().count() >= 30 || !uhr.complained().is_empty()
    });
    if !uhr.complained().is_empty() {
        eprintln!("SKIPPED: {}", uhr.complained());
        return;
    }
    let last_logged = uhr.said().lines().last().unwrap().to_owned();
    uhr.kill();
    let killed_ns = serde_json::from_str::<Value>(&last_logged).unwrap()["from_ns"].as_u64().unwrap();

    let recording = Recording::open(&uhr.rec).unwrap();
    assert_eq!(recording.manifest.state, State::Recovered);
    let samples: Samples = recording.table().unwrap();
    let last = samples.time_ns.iter().max().copied().unwrap_or(0);
    // A batch a second, and what was still in the ring.
    assert!(last + 1_500_000_000 > killed_ns, "{} s were lost", (killed_ns - last) as f64 / 1e9);
    for question in ["overview", "query --group-by function", "query --metric off-cpu --group-by thread"] {
        let (code, answer) = ask(&uhr.rec, question);
        assert_eq!(
            (code, answer["recording"]["state"].as_str()),
            (0, Some("recovered")),
            "{question}: {answer}"
        );
    }
    let (_, answer) = ask(&uhr.rec, "query --group-by function --limit 100");
    let names: Vec<&str> = rows(&answer).iter().filter_map(|row| row["key"]["function"].as_str()).collect();
    assert!((0..10).all(|phase| names.contains(&&*format!("phase_{phase}"))), "{names:?}");
    wait_until("the program ended by itself", || uhr.said().contains("by itself"));
}
