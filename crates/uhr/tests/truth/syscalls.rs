//! Which system calls the time goes to, on a CPU and off.

use crate::harness::{Place, Recorded, Who, find, has_ebpf, number, row, rows, taken_ns};

/// The planted program, recorded, with the time that was taken from all CPUs meanwhile.
fn recorded(place: &Place) -> Option<(Recorded, f64)> {
    if !has_ebpf() {
        return None;
    }
    let program = place.c("syscalls.c", &[]);
    let before_ns = taken_ns();
    let recorded = place.record(Who::Us, "rec", &["--sampler", "ebpf"], &[&program]).or_skip()?;
    Some((recorded, taken_ns() - before_ns))
}

#[test]
fn time_by_system_call() {
    let place = Place::new();
    let Some((recorded, taken_ns)) = recorded(&place) else { return };
    let truth = recorded.truth();
    let on_cpu = |thread: &str, syscall: &str| {
        let answer = recorded.ask(&format!("query --group-by syscall --thread {thread} --limit 100"));
        find(&answer, "syscall", syscall).map_or(0.0, |row| number(row, "self_share"))
    };
    // Copying zeros is nearly all that one thread does, and the whole of another's time has no call in it.
    let reading = on_cpu("reads", "read");
    assert!(reading > 0.85, "{reading} of the time of reads is in read");
    let computing = on_cpu("computes", "[not in a system call]");
    assert!(computing > 0.97, "{computing} of the time of computes is in no system call");
    // Of a call that does next to nothing, the way in and out of the kernel is most.
    let (asking, outside) = (on_cpu("asks", "getppid"), on_cpu("asks", "[not in a system call]"));
    assert!(asking > 0.3 && asking + outside > 0.95, "{asking} in getppid, {outside} in none");
    let all = recorded.ask("query --group-by syscall --limit 100");
    let sum: f64 = rows(&all).iter().map(|row| number(row, "self")).sum();
    let (least, most) = (number(&truth, "cpu_ns") * 0.98, number(&truth, "cpu_ns") * 1.02 + taken_ns);
    assert!((least..=most).contains(&sum), "{sum}, and it was {least} to {most}");
    let read = number(row(&all, "syscall", "read"), "self");
    let (least, most) = (number(&truth, "reads") * 0.85, number(&truth, "reads") * 1.02 + taken_ns);
    assert!((least..=most).contains(&read), "read: {read}, and it was {least} to {most}");
}

#[test]
fn waits_by_system_call() {
    let place = Place::new();
    let Some((recorded, taken_ns)) = recorded(&place) else { return };
    let truth = recorded.truth();
    // How long the thread then waited for a CPU, the program counts and the wait does not.
    let runqueue = recorded.ask("query --metric runqueue --group-by thread-name --limit 100");
    for (thread, syscall) in [("naps", "clock_nanosleep"), ("listens", "read")] {
        let answer =
            recorded.ask(&format!("query --metric off-cpu --group-by thread-name,syscall --thread {thread}"));
        let seen = number(row(&answer, "syscall", syscall), "self");
        let queued = find(&runqueue, "thread-name", thread).map_or(0.0, |row| number(row, "self"));
        let most = number(&truth, thread);
        let least = most - queued - taken_ns;
        let is_so = least * 0.98 <= seen && seen <= most * 1.01;
        assert!(is_so, "{thread} in {syscall}: {seen}, and it was {least} to {most}");
    }
}
