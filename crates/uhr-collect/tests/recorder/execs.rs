//! Programs that execute others: what ran before the exec and what ran after are told apart.

use uhr_collect::Target;
use uhr_recording::tables::Samples;

use crate::harness::{attach, build, record};

/// Its second thread executes it again, under another name; then it burns 0.4 s and sleeps 0.3.
const BY_A_THREAD: &str = r#"
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static char **self;
static void *again(void *x) { char *v[] = {"again", "burn", 0}; execv(self[0], v); return x; }
int main(int c, char **v) {
    struct timespec t; pthread_t p; self = v;
    if (c == 1) { pthread_create(&p, 0, again, 0); pthread_join(p, 0); return 1; }
    do { for (volatile int i = 0; i < 20000; i++); clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); }
    while (t.tv_sec + t.tv_nsec / 1e9 < 0.4);
    usleep(300000);
    return 0;
}
"#;

#[test]
fn a_thread_that_is_not_the_first_executes_a_program() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), "byathread", BY_A_THREAD);
    let Some((captured, recording)) = record(folder.path(), &program) else { return };
    eprintln!("{:?}", captured.manifest.ledger);
    let processes = recording.processes().unwrap();
    assert_eq!(processes.len(), 2, "one pid, two programs: {processes:?}");
    let threads = recording.threads().unwrap();
    let after: Vec<_> = threads.iter().filter(|thread| thread.process == 1).collect();
    assert_eq!(after.len(), 1, "{threads:?}");
    assert!((0.39e9..0.48e9).contains(&(after[0].on_cpu_ns as f64)), "it burned 0.4 s: {:?}", after[0]);
    let samples: Samples = recording.table().unwrap();
    let seen = samples.thread.iter().filter(|thread| **thread == after[0].id).count();
    assert!((380..460).contains(&seen), "none of its samples is dropped: {seen}");
}

#[test]
fn a_pid_twice_and_a_tid_are_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let source = "#include <pthread.h>\n#include <unistd.h>\nvolatile int x;\n\
                  static void *busy(void *p) { for (;;) x++; return p; }\n\
                  int main(void) { pthread_t t; alarm(20); pthread_create(&t, 0, busy, 0); busy(0); }\n";
    let program = build(folder.path(), "twice", source);
    let mut child = std::process::Command::new(&program).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    let pid = child.id();
    let tid = uhr_collect::procfs::threads(pid).into_iter().find(|tid| *tid != pid).unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_millis(500);
    let recorded = attach(folder.path(), Target::Processes(vec![pid, tid, pid]), &mut || {
        std::time::Instant::now() < until
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let Some((captured, recording)) = recorded else { return };
    assert_eq!(captured.manifest.ledger.threads_inexact, 0);
    assert_eq!(recording.processes().unwrap().len(), 1);
    let threads = recording.threads().unwrap();
    assert_eq!(threads.len(), 2);
    let (samples, on_cpu): (u64, u64) =
        threads.iter().fold((0, 0), |sum, thread| (sum.0 + thread.samples, sum.1 + thread.on_cpu_ns));
    assert!(samples as f64 <= on_cpu as f64 / 1e6 * 1.1, "each sample once: {samples} of {on_cpu} ns");
}
