//! Threads that are blocked in a system call, read from outside without stopping them: rbp is not known.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use uhr_model::{Avma, StackEnding};
use uhr_unwind::BlockedStack;

use crate::target::{Target, compile};

/// The system call that a thread is blocked in, its stack pointer and instruction pointer.
fn blocked_in(target: &Target, wanted: u64) -> (Avma, Avma) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let path = format!("/proc/{0}/task/{0}/syscall", target.pid());
        let line = std::fs::read_to_string(path).unwrap();
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let hex = |word: &str| Avma(u64::from_str_radix(&word[2..], 16).unwrap());
        if let [number, .., sp, ip] = words[..]
            && number.parse() == Ok(wanted)
        {
            return (hex(ip), hex(sp));
        }
        assert!(Instant::now() < deadline, "not blocked: {line}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn unwind(target: &mut Target, syscall: u64) -> (Vec<String>, BlockedStack) {
    let (ip, sp) = blocked_in(target, syscall);
    target.read_maps();
    let memory = target.memory();
    let stack = target.unwinder.unwind_blocked(ip, sp, &memory, &mut target.cache);
    (target.names(&stack.frames), stack)
}

/// Functions that keep much on the stack, so that rows change within them, below one system call.
fn program(wait: &str) -> String {
    format!(
        r#"
        #include <linux/futex.h>
        #include <poll.h>
        #include <stdint.h>
        #include <sys/syscall.h>
        #include <time.h>
        #include <unistd.h>
        volatile uint64_t sink = 1;
        int word;
        __attribute__((noinline)) uint64_t waiting(uint64_t x) {{ char c[64]; c[0] = 0; {wait}; return sink + c[0] + x; }}
        __attribute__((noinline)) uint64_t inner(uint64_t x) {{ return waiting(x + sink) + 1; }}
        __attribute__((noinline)) uint64_t outer(uint64_t a, uint64_t b, uint64_t c) {{
            uint64_t r = inner(a) + b * sink; return r + inner(c) + a; }}
        int main(int argc, char **argv) {{ return (int)outer(argc, sink, sink) + argc; }}
        "#
    )
}

const WAITS: [(&str, u64, &str); 4] = [
    ("read(0, c, 1)", 0, "read"),
    ("struct timespec t = {100, 0}; nanosleep(&t, 0)", 230, "clock_nanosleep"),
    ("syscall(SYS_futex, &word, FUTEX_WAIT, 0, 0, 0, 0)", 202, "syscall"),
    ("poll(0, 0, 100000)", 7, "poll"),
];

fn build(folder: &Path, wait: &str, flags: &[&str]) -> Target {
    let command: Vec<&str> = ["gcc", "-O2"].iter().chain(flags).copied().collect();
    Target::run(&mut Command::new(compile(folder, &command, "wait.c", &program(wait), "wait")))
}

const OUTERMOST: [&str; 7] =
    ["waiting", "inner", "outer", "main", "?libc.so.6", "__libc_start_main", "_start"];

#[test]
fn without_frame_pointers_the_whole_stack_is_proven() {
    for (wait, number, name) in WAITS {
        let folder = tempfile::tempdir().unwrap();
        let mut target = build(folder.path(), wait, &[]);
        let (names, stack) = unwind(&mut target, number);
        let at = names.len().checked_sub(OUTERMOST.len()).unwrap();
        assert_eq!(names[at..], OUTERMOST, "{wait}: {names:?}");
        assert!(names[..at].contains(&name.to_owned()), "{names:?}");
        assert_eq!((stack.ending, stack.proven), (StackEnding::Complete, names.len()), "{wait}");
    }
}

#[test]
fn with_frame_pointers_callers_are_found_and_marked() {
    for (wait, number, name) in WAITS {
        let folder = tempfile::tempdir().unwrap();
        let mut target = build(folder.path(), wait, &["-fno-omit-frame-pointer"]);
        let (names, stack) = unwind(&mut target, number);
        let at = names.len().checked_sub(OUTERMOST.len()).unwrap();
        assert_eq!(names[at..], OUTERMOST, "{wait}: {names:?}");
        assert!(names[..at].contains(&name.to_owned()), "{names:?}");
        // libc leaves its frames by the stack pointer: up to the function that called it, all is proven.
        assert_eq!((stack.ending, stack.proven), (StackEnding::Heuristic, at + 1), "{wait}: {names:?}");
    }
}

#[test]
fn what_lies_in_a_buffer_is_not_taken_for_a_frame() {
    // A buffer full of what looks like frames, except that no saved frame pointer points upwards.
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        #include <stdint.h>
        #include <unistd.h>
        volatile uint64_t sink = 1;
        int main(int, char **);
        __attribute__((noinline)) uint64_t waiting(uint64_t x) {
            volatile uint64_t buffer[128];
            for (int i = 0; i < 128; i += 2) { buffer[i] = i; buffer[i + 1] = (uint64_t)main + 16; }
            char c; read(0, &c, 1); return sink + buffer[x & 127]; }
        int main(int argc, char **argv) { return (int)waiting(argc) + argc; }
    "#;
    let command = ["gcc", "-O2", "-fno-omit-frame-pointer"];
    let mut target = Target::run(&mut Command::new(compile(folder.path(), &command, "b.c", source, "b")));
    let (names, stack) = unwind(&mut target, 0);
    assert_eq!(names, ["read", "waiting", "main", "?libc.so.6", "__libc_start_main", "_start"]);
    assert_eq!((stack.ending, stack.proven), (StackEnding::Heuristic, 2));
}

#[test]
fn a_program_that_was_not_built_for_this() {
    let mut target = Target::run(&mut Command::new("cat"));
    let (names, stack) = unwind(&mut target, 0);
    assert_eq!(names[0], "read");
    assert_eq!(names[names.len() - 3..], ["?libc.so.6", "__libc_start_main", "?cat"]);
    assert_eq!((stack.ending, stack.proven), (StackEnding::Complete, names.len()));
}

#[test]
fn a_thread_that_has_gone_is_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let mut target = build(folder.path(), WAITS[0].0, &[]);
    let (ip, sp) = blocked_in(&target, 0);
    target.read_maps();
    target.feed(b"ab");
    let memory = target.memory();
    let stack = target.unwinder.unwind_blocked(ip, sp, &memory, &mut target.cache);
    assert_eq!(stack.frames.len(), stack.proven);
    assert!(matches!(stack.ending, StackEnding::MemoryUnreadable | StackEnding::Complete), "{stack:?}");
}
