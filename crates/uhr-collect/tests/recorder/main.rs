//! A real program, recorded from its first instruction: what the recording says is what the program did.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test may panic, and says what it skips")]

mod cgroups;
mod execs;
mod harness;

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use harness::{as_ordinary_user, attach, build, record, show};
use uhr_collect::Target;
use uhr_model::{Region, StackEnding};
use uhr_recording::tables::{Faults, Mappings, OffCpu, Processes, Resident, Samples, Threads};
use uhr_recording::{Scale, State};

/// A program of three threads: one busy, one that sleeps all the time, one that naps; and a busy child that it starts
/// after half a second.
const RUNNING: &str = r#"
#include <pthread.h>
#include <unistd.h>
#include <stdlib.h>
#include <signal.h>
volatile int x;
void *busy(void *p) { for (;;) x++; return p; }
void *asleep(void *p) { for (;;) pause(); return p; }
void *naps(void *p) { for (;;) usleep(1000); return p; }
int main(void) {
    pthread_t t; alarm(20);
    pthread_create(&t, 0, busy, 0); pthread_create(&t, 0, asleep, 0); pthread_create(&t, 0, naps, 0);
    sleep(1);
    if (!fork()) { alarm(10); busy(0); }
    for (;;) pause();
}
"#;

#[test]
fn a_running_process_with_all_its_threads_and_its_later_child() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), "running", RUNNING);
    let mut child = std::process::Command::new(&program).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let until = Instant::now() + Duration::from_millis(1500);
    let recorded = attach(folder.path(), Target::Processes(vec![child.id()]), &mut || Instant::now() < until);
    let rest = std::process::Command::new("pkill").args(["-P", &child.id().to_string()]).status();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(rest.unwrap().success(), "the forked child runs");
    let Some((captured, recording)) = recorded else { return };
    eprintln!("{:?} {:?}", captured.manifest.ledger, captured.manifest.notes);
    let window = captured.manifest.duration_ns() as f64;
    let (threads, processes) = (recording.threads().unwrap(), recording.processes().unwrap());
    assert_eq!(
        processes.iter().map(|process| process.name.as_str()).collect::<Vec<_>>(),
        ["running", "running"]
    );
    assert_eq!(threads.len(), 5);
    let waits: OffCpu = recording.table().unwrap();
    for thread in &threads {
        let off: u64 = (0..waits.thread.len())
            .filter(|&row| waits.thread[row] == thread.id)
            .map(|row| waits.duration_ns[row])
            .sum();
        let lived = (thread.end_ns.unwrap_or(captured.manifest.window.end_ns) - thread.start_ns) as f64;
        let accounted = (thread.on_cpu_ns + off) as f64;
        eprintln!("{} {:?}: on {} off {off} of {lived}", thread.tid, thread.name, thread.on_cpu_ns);
        assert!((accounted - lived).abs() < 0.01 * lived, "on and off CPU are its life in the window");
    }
    // One of the five did nothing but sleep, and has no switch of its own.
    assert!(threads.iter().any(|thread| thread.on_cpu_ns == 0));
    let asleep = waits.duration_ns.iter().filter(|&&ns| ns as f64 > 0.99 * window).count();
    assert!(asleep >= 1, "it is off CPU for all of the window");
    let with_stack = (0..waits.thread.len()).filter(|&row| waits.duration_ns[row] as f64 > 0.9 * window);
    assert!(with_stack.into_iter().all(|row| waits.stack[row] != 0), "and its stack was read from outside");
}

#[test]
fn the_whole_machine() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("SKIPPED: the whole machine takes root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), "alone", PROGRAM);
    // It begins when the recording runs, and the recording ends when it has.
    let mut child = None;
    let recorded = attach(folder.path(), Target::Machine, &mut || {
        let child = child.get_or_insert_with(|| std::process::Command::new(&program).spawn().unwrap());
        child.try_wait().unwrap().is_none()
    });
    if let Some(mut child) = child {
        child.wait().unwrap();
    }
    let Some((captured, recording)) = recorded else { return };
    eprintln!("{:?} {:?}", captured.manifest.ledger, captured.manifest.notes);
    let processes = recording.processes().unwrap();
    let planted: Vec<u32> =
        processes.iter().filter(|process| process.name == "alone").map(|process| process.id).collect();
    let threads = recording.threads().unwrap();
    let on_cpu: u64 = threads
        .iter()
        .filter(|thread| planted.contains(&thread.process))
        .map(|thread| thread.on_cpu_ns)
        .sum();
    assert!((0.88e9..1.1e9).contains(&(on_cpu as f64)), "0.6 + 0.3 s and some page faults: {on_cpu}");
    // Threads that ended are still sampled and switched out after their EXIT record: they do not live on.
    let named: u64 = threads.iter().map(|thread| thread.on_cpu_ns).sum();
    let most = captured.manifest.duration_ns() * u64::from(captured.manifest.host.cpus);
    assert!(named <= most, "{named} ns on CPU of {most} that there were");
}

const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
static void burn(double s) {
    struct timespec t; double end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); end = t.tv_sec + t.tv_nsec / 1e9 + s;
    do { for (volatile int i = 0; i < 20000; i++); clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); }
    while (t.tv_sec + t.tv_nsec / 1e9 < end);
}
void deep(int n) { if (n) { deep(n - 1); __asm__ volatile(""); } else burn(0.6); }
void naps(void) { for (int i = 0; i < 4; i++) { struct timespec t = {0, 150000000}; nanosleep(&t, 0); } }
void touch(void) {
    size_t n = 64 << 20; char *p = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(p, n, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < n; i += 4096) p[i] = 1;
    usleep(200000);
}
void *worker(void *x) { burn(0.3); return x; }
int main(void) {
    pthread_t t; pthread_create(&t, 0, worker, 0);
    deep(20); naps(); touch(); pthread_join(t, 0);
    if (!fork()) { execl("/bin/true", "true", (char *)0); _exit(1); }
    int status; wait(&status);
    return 0;
}
"#;

#[test]
fn an_ordinary_user_sees_waits_with_their_stacks() {
    as_ordinary_user("an_ordinary_user_sees_waits_with_their_stacks", || {
        let folder = tempfile::tempdir().unwrap();
        let program = build(folder.path(), "planted", PROGRAM);
        let Some((captured, recording)) = record(folder.path(), &program) else { return };
        let settings = &captured.manifest.settings;
        eprintln!("{:?} {:?}", captured.manifest.notes, captured.manifest.ledger);
        let faults: Faults = recording.table().unwrap();
        eprintln!(
            "F {:?} {:?}",
            faults.weight,
            faults.time_ns.windows(2).map(|w| (w[1] - w[0]) / 1000).collect::<Vec<_>>()
        );
        let waits: OffCpu = recording.table().unwrap();
        let long: Vec<usize> = (0..waits.thread.len())
            .filter(|&row| waits.thread[row] == 0 && waits.duration_ns[row] > 100_000_000)
            .collect();
        for &row in &long {
            eprintln!(
                "{:?} {}",
                StackEnding::from_code(waits.ending[row]),
                show(&recording, waits.stack[row])
            );
        }
        let slept: u64 = long.iter().map(|&row| waits.duration_ns[row]).sum();
        assert!((0.8e9..0.83e9).contains(&(slept as f64)), "{slept}");
        assert!(long.iter().all(|&row| waits.stack[row] != 0), "each long wait has its stack");
        assert!(long.iter().all(|&row| waits.syscall[row] == Some(230)), "clock_nanosleep");
        if !settings.kernel_visible {
            assert_eq!(settings.wait_stacks, "outside");
            let samples: Samples = recording.table().unwrap();
            let hidden = StackEnding::KernelNotVisible.code();
            assert!(samples.ending.contains(&hidden), "the page faults' time is counted without a stack");
        }
    });
}

#[test]
fn the_recording_says_what_the_program_did() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), "planted", PROGRAM);
    let Some((captured, recording)) = record(folder.path(), &program) else { return };
    assert_eq!(captured.manifest.state, State::Captured);
    let ledger = &captured.manifest.ledger;
    eprintln!("{ledger:#?}\n{:?}\n{:?}", captured.manifest.notes, captured.manifest.cost);

    let processes: Vec<_> = recording.processes().unwrap();
    let names: Vec<&str> = processes.iter().map(|process| process.name.as_str()).collect();
    assert_eq!(names, ["planted", "planted", "true"], "the program, its fork, and what that executed");
    assert_eq!(processes[1].parent, Some(0));
    assert_eq!(processes[2].parent, Some(1));

    let threads = recording.threads().unwrap();
    assert_eq!(threads.len(), 4);
    let main_ns = threads[0].on_cpu_ns as f64;
    assert!((0.6e9..0.75e9).contains(&main_ns), "main burned 0.6 s and some page faults: {main_ns}");
    let worker_ns = threads[1].on_cpu_ns as f64;
    assert!((0.295e9..0.31e9).contains(&worker_ns), "the worker burned 0.3 s: {worker_ns}");

    let samples: Samples = recording.table().unwrap();
    let of_worker = samples.thread.iter().filter(|thread| **thread == 1).count() as f64;
    // Where the host takes a CPU away, its clock misses ticks; it never ticks too often.
    assert!((200.0..=325.0).contains(&of_worker), "0.3 s at 999 Hz: {of_worker}");
    assert_eq!(ledger.records_lost, 0);
    for row in (0..samples.ending.len()).filter(|&row| samples.ending[row] != 0) {
        eprintln!(
            "{:?} {}",
            StackEnding::from_code(samples.ending[row]),
            show(&recording, samples.stack[row])
        );
    }
    let with = |of: StackEnding| samples.ending.iter().filter(|ending| **ending == of.code()).count() as f64;
    // When the kernel takes the 64 MB apart the program has no stack any more.
    let gone = with(StackEnding::NoUserStack);
    let all = samples.ending.len() as f64;
    assert!(gone < 0.03 * all && with(StackEnding::Complete) >= 0.99 * (all - gone), "{:?}", ledger.stacks);

    let waits: OffCpu = recording.table().unwrap();
    let slept: u64 = (0..waits.thread.len())
        .filter(|&row| waits.thread[row] == 0 && !waits.runnable[row] && waits.duration_ns[row] > 100_000_000)
        .map(|row| waits.duration_ns[row])
        .sum();
    assert!((0.8e9..0.83e9).contains(&(slept as f64)), "four naps of 150 ms and one of 200: {slept}");
    let with_stack = (0..waits.thread.len())
        .filter(|&row| waits.duration_ns[row] > 100_000_000 && waits.stack[row] != 0)
        .count();
    assert_eq!(with_stack, 5, "each long wait has its stack");

    let mut faults: Faults = recording.table().unwrap();
    eprintln!("{:?}", faults.weight);
    let sampled = faults.weight.iter().sum();
    Scale::new(sampled, ledger.faults.expected).scale(&mut faults.weight);
    let anonymous: u64 = (0..faults.weight.len())
        .filter(|&row| faults.region[row] == Region::Anonymous.code())
        .map(|row| faults.weight[row])
        .sum();
    assert!((15_000..19_000).contains(&anonymous), "16,384 pages were touched: {anonymous}");

    let resident: Resident = recording.table().unwrap();
    let peak = resident.anonymous_bytes.iter().max().unwrap() >> 20;
    assert!((64..80).contains(&peak), "64 MB were touched: {peak}");

    let modules = recording.modules().unwrap();
    let own = modules.iter().find(|module| module.path.ends_with("/planted")).unwrap();
    assert!(own.build_id.is_some());
    assert!(captured.held.contains_key(&uhr_model::ModuleId(own.id)));
    assert!(recording.table::<Mappings>().unwrap().start.len() > 4);
    let _: (Processes, Threads) = (recording.table().unwrap(), recording.table().unwrap());
}
