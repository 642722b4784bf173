//! A thread's time on a CPU, waiting for one and waiting for other things add up to its life, by the scheduler's count.

use uhr_recording::Recording;
use uhr_recording::tables::ThreadRow;

use crate::harness::{Place, Recorded, Who, find, has_ebpf, number, taken_ns};

const THREADS: &[&str] = &["burner-1", "burner-2", "burner-3", "dozer", "server", "answerer"];
/// A thread's end comes after its own reading of the scheduler's count: it may have to wait for a CPU once more.
const END_NS: f64 = 25e6;
/// The scheduler counts a switch itself to one of the two threads, the tracepoint lies in the midst of it; and a thread
/// that is being woken waits for a CPU a little longer than it stands in the queue.
const SWITCH_NS: f64 = 4000.0;

fn of(recorded: &Recorded, metric: &str, thread: &str) -> f64 {
    let answer = recorded.ask(&format!("query --metric {metric} --group-by thread --limit 100 --idle"));
    find(&answer, "thread", thread).map_or(0.0, |row| number(row, "self"))
}

fn assert_within(what: &str, seen: f64, truth: f64, slack: f64) {
    let off = (seen - truth).abs();
    assert!(off <= truth * 0.02 + slack, "{what}: {seen}, and the truth is {truth}");
}

#[test]
fn a_threads_parts_of_time_add_up_to_its_life() {
    if !has_ebpf() {
        return;
    }
    let place = Place::new();
    let program = place.c("thread_time.c", &[]);
    let before_ns = taken_ns();
    let Some(recorded) = place.record(Who::Us, "rec", &["--sampler", "ebpf"], &[&program]).or_skip() else {
        return;
    };
    let taken_ns = taken_ns() - before_ns;
    let (truth, threads) = (recorded.truth(), Recording::open(&recorded.rec).unwrap().threads().unwrap());
    for name in THREADS {
        let (truth, times) = (&truth[name], number(&truth[name], "times"));
        let row: &ThreadRow = threads.iter().find(|row| row.name == *name).unwrap();
        let [on_cpu, runqueue, waits] =
            ["cpu", "runqueue", "off-cpu"].map(|metric| of(&recorded, metric, name));
        let what = |part| format!("{name} {part}");
        assert_within(
            &what("on a CPU"),
            row.on_cpu_ns as f64,
            number(truth, "on_ns"),
            1e6 + taken_ns + times * SWITCH_NS / 4.0,
        );
        assert_within(
            &what("on the run queue"),
            runqueue,
            number(truth, "delay_ns"),
            END_NS + times * SWITCH_NS,
        );
        assert_within(&what("in all"), on_cpu + runqueue + waits, number(truth, "life_ns"), END_NS);
        assert_within(&what("switches"), row.switches as f64, times, 30.0);
    }
}
