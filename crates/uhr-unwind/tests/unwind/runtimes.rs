//! Code that other compilers and runtimes made: Rust, C++, Go, musl, CPython, Node.

use std::path::PathBuf;
use std::process::Command;

use uhr_model::{CodeAddress, StackEnding};
use uhr_unwind::{FramePointers, ProcessMemory, TargetMemory};

use crate::target::{Moment, Target, compile};

fn found(program: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&paths).map(|folder| folder.join(program)).find(|path| path.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: there is no {program} here");
    }
    found
}

#[test]
fn a_thread_ends_where_clone_began_it() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        #include <pthread.h>
        volatile int sink = 1;
        __attribute__((noinline)) void spin(void) { for (;;) sink += 3; }
        static void *begin(void *x) { spin(); sink++; return x; }
        int main(void) { pthread_t t; pthread_create(&t, 0, begin, 0); pthread_join(t, 0); return 0; }
    "#;
    for flags in [&["gcc", "-O2"][..], &["gcc", "-O2", "-fno-omit-frame-pointer"], &["gcc", "-O2", "-static"]]
    {
        let mut target = Target::run(&mut Command::new(compile(folder.path(), flags, "t.c", source, "t")));
        target.tid = target.other_threads(1)[0];
        let moment = target.stop_in("spin");
        assert_eq!(moment.names[..2], ["spin", "begin"]);
        assert_eq!((moment.ending, moment.names.len()), (StackEnding::Complete, 4), "{:?}", moment.names);
        // The kernel's walk sees the thread's own functions and libc's caller of the first.
        let chain: Vec<u64> = moment.frames[..3]
            .iter()
            .map(|frame| match frame {
                CodeAddress::Instruction(address) | CodeAddress::Return(address) => address.0,
            })
            .collect();
        let memory = target.memory();
        let mut out = Vec::new();
        let ending =
            target.unwinder.frame_pointer_chain(&chain, 127, Some(&memory), &mut target.cache, &mut out);
        assert_eq!((ending, out.len()), (StackEnding::Complete, 3));
    }
}

#[test]
fn optimised_rust() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        use std::hint::black_box;
        #[unsafe(no_mangle)] #[inline(never)] pub fn spin(x: u64) -> u64 { let mut y = x; loop { y = black_box(y * 3 + x); } }
        #[unsafe(no_mangle)] #[inline(never)] pub fn inner(x: u64) -> u64 { black_box(spin(x + 1)) + 1 }
        #[unsafe(no_mangle)] #[inline(never)] pub fn in_closure(v: &[u64]) -> u64 { v.iter().map(|x| inner(*x) + 1).sum() }
        fn main() { println!("{}", in_closure(black_box(&[1, 2, 3]))); }
    "#;
    let program = compile(folder.path(), &["rustc", "--edition=2024", "-O"], "r.rs", source, "r");
    let mut target = Target::run(&mut Command::new(program));
    let moment = target.stop_in("spin");
    assert_eq!(moment.names[..3], ["spin", "inner", "in_closure"]);
    assert_eq!(moment.names[moment.names.len() - 4..], ["main", "?libc.so.6", "__libc_start_main", "_start"]);
    assert_eq!(moment.ending, StackEnding::Complete);
}

#[test]
fn cxx_while_it_unwinds_an_exception() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        volatile int sink = 1;
        extern "C" __attribute__((noinline)) void spin() { while (sink) sink |= 3; }
        struct Guard { ~Guard() { spin(); sink++; } };
        extern "C" __attribute__((noinline)) void thrower(int x) { if (x) throw x; }
        extern "C" __attribute__((noinline)) void guarded(int x) { Guard g; thrower(x); sink++; }
        int main(int argc, char **) { try { guarded(argc); } catch (int x) { return x; } return 0; }
    "#;
    let program = compile(folder.path(), &["g++", "-O2"], "x.cc", source, "x");
    let mut target = Target::run(&mut Command::new(program));
    let moment = target.stop_in("spin");
    let inlined: Vec<&str> =
        moment.names.iter().map(String::as_str).filter(|name| !name.contains("Guard")).collect();
    // The landing pad of `guarded` may be a part of its own.
    assert_eq!(inlined[0], "spin");
    assert!(inlined[1].starts_with("guarded"), "{inlined:?}");
    assert_eq!(inlined[2..], ["main", "?libc.so.6", "__libc_start_main", "_start"]);
    assert_eq!(moment.ending, StackEnding::Complete);
}

#[test]
fn go_with_and_without_debug_information() {
    let Some(go) = found("go") else { return };
    let source = r#"
        package main
        import "time"
        var sink = 1
        //go:noinline
        func spin() { for { sink = sink*3 + 1 } }
        //go:noinline
        func inner(x int) int { spin(); return sink + x }
        //go:noinline
        func outer(x int) int { return inner(x+1) + x }
        func main() { if outer(sink) == 3 { time.Sleep(1) } }
    "#;
    let folder = tempfile::tempdir().unwrap();
    for flags in ["", "-s -w"] {
        std::fs::write(folder.path().join("g.go"), source).unwrap();
        let mut build = Command::new(&go);
        build.current_dir(&folder).env("GOCACHE", folder.path().join("cache")).env("GOFLAGS", "-mod=mod");
        let built = build.args(["build", "-ldflags", flags, "-o", "g", "g.go"]).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        // The runtime's own preemption signals would stop the program before we do.
        let mut program = Command::new(folder.path().join("g"));
        let mut target = Target::run(program.env("GODEBUG", "asyncpreemptoff=1").env("GOMAXPROCS", "1"));
        std::thread::sleep(std::time::Duration::from_millis(100));
        let stripped = !flags.is_empty();
        let moment = target.stop_when(64 << 10, |moment| stripped || moment.names[0] == "main.spin");
        if stripped {
            assert_eq!((moment.ending, moment.frames.len()), (StackEnding::Complete, 6), "{moment:#?}");
        } else {
            let expected =
                ["main.spin", "main.inner", "main.outer", "main.main", "runtime.main", "runtime.goexit"];
            // Lookup is one byte before the return address, which is one byte into goexit.
            assert_eq!(moment.names[..5], expected[..5]);
            assert!(moment.names[5].starts_with(expected[5]), "{:?}", moment.names);
            assert_eq!((moment.ending, moment.frames.len()), (StackEnding::Complete, 6));
        }
        let module = target.modules.iter().find(|(path, _)| path.ends_with("/g")).unwrap().1;
        assert_eq!(module.frame_pointers(), FramePointers::Everywhere);
    }
}

/// Its scheduler runs on a stack of its own, which no row leads out of; threads begin in code of C without any.
#[test]
fn go_on_the_stacks_of_its_scheduler_and_of_a_thread_that_c_began() {
    let Some(go) = found("go") else { return };
    let source = r#"
        package main
        import "C"
        func main() {
            there, back := make(chan int), make(chan int)
            go func() { for x := range there { back <- x } }()
            for { there <- 1; <-back }
        }
    "#;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("g.go"), source).unwrap();
    let mut build = Command::new(&go);
    build.current_dir(&folder).env("GOCACHE", folder.path().join("cache")).env("GOFLAGS", "-mod=mod");
    let built = build.env("CGO_ENABLED", "1").args(["build", "-o", "g", "g.go"]).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let program = || {
        let mut program = Command::new(folder.path().join("g"));
        let target = Target::run(program.env("GODEBUG", "asyncpreemptoff=1").env("GOMAXPROCS", "1"));
        std::thread::sleep(std::time::Duration::from_millis(100));
        target
    };
    let is_in = |moment: &Moment, name: &str| moment.names.iter().any(|found| found.starts_with(name));
    let moment = program().stop_when(64 << 10, |moment| is_in(moment, "runtime.park_m"));
    assert_eq!(moment.names.last().unwrap(), "runtime.mcall", "{moment:#?}");
    assert_eq!(moment.ending, StackEnding::Complete);

    let mut target = program();
    target.tid = target.other_threads(1)[0];
    let moment = target.stop_when(64 << 10, |moment| is_in(moment, "runtime.mstart"));
    // C calls it with an rbp that may be 0, the end of Go's chain.
    let last = moment.names.last().unwrap().as_str();
    assert!(["runtime.mstart.abi0", "crosscall1"].contains(&last), "{moment:#?}");
    assert_eq!(moment.ending, StackEnding::Complete);
}

#[test]
fn musl() {
    let Some(_) = found("musl-gcc") else { return };
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        #include <pthread.h>
        #include <signal.h>
        volatile int sink = 1;
        __attribute__((noinline)) void spin(void) { for (;;) sink += 3; }
        static void handler(int s) { sink += s; spin(); sink++; }
        volatile int ready;
        __attribute__((noinline)) static void *begin(void *x) { for (;;) ready++; return x; }
        int main(void) {
            pthread_t t; signal(SIGUSR1, handler); pthread_create(&t, 0, begin, 0);
            while (ready < 1000);
            pthread_kill(t, SIGUSR1);
            pthread_join(t, 0); return 0;
        }
    "#;
    let program = compile(folder.path(), &["musl-gcc", "-O2", "-static"], "m.c", source, "m");
    let mut target = Target::run(&mut Command::new(program));
    target.tid = target.other_threads(1)[0];
    let moment = target.stop_in("spin");
    assert_eq!(moment.names, ["spin", "handler", "__restore_rt", "begin", "start", "__clone"]);
    assert_eq!(moment.ending, StackEnding::Complete, "{moment:#?}");
}

/// musl is built without call frame information and without frame pointers: what its code does says how its frames are left.
#[test]
fn through_code_that_says_nothing_of_itself() {
    let Some(_) = found("musl-gcc") else { return };
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        #include <stdio.h>
        #include <stdlib.h>
        volatile int sink = 1;
        __attribute__((noinline)) void spin(void) { for (;;) sink += 3; }
        ssize_t write_it(void *cookie, const char *bytes, size_t size) { spin(); return size; }
        int compare(const void *one, const void *other) {
            FILE *file = fopencookie(0, "w", (cookie_io_functions_t){ .write = write_it });
            setvbuf(file, 0, _IONBF, 0);
            return fprintf(file, "%d %s\n", sink, "words") + sink; }
        int main(void) { int values[8] = {3, 1, 2}; qsort(values, 8, 4, compare); return sink; }
    "#;
    let flags = ["musl-gcc", "-O2", "-static", "-D_GNU_SOURCE"];
    let mut target = Target::run(&mut Command::new(compile(folder.path(), &flags, "m.c", source, "m")));
    let moment = target.stop_in("spin");
    let own: Vec<&str> = moment.names.iter().map(String::as_str).collect();
    for pair in [["spin", "write_it"], ["fprintf", "compare"]] {
        assert!(own.windows(2).any(|found| found == pair), "{pair:?}: {own:?}");
    }
    for function in ["vfprintf", "sift", "qsort_r", "main"] {
        assert!(own.contains(&function), "{function}: {own:?}");
    }
    assert_eq!(own.last(), Some(&"libc_start_main_stage2"), "{own:?}");
    assert_eq!(moment.ending, StackEnding::Complete, "{moment:#?}");
}

/// A CPython that can write perf trampolines (3.12 and newer, built without frame pointers or with).
fn python() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let versions = std::fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten();
    let installed = versions.map(|version| version.path().join("bin/python"));
    let works = |path: &PathBuf| {
        let test = Command::new(path)
            .args(["-X", "perf", "-c", "import sys; assert sys.version_info >= (3, 12)"])
            .output();
        test.is_ok_and(|done| done.status.success())
    };
    let found = installed.chain(["python3".into()]).find(works);
    if found.is_none() {
        eprintln!("SKIPPED: there is no CPython 3.12 or newer here");
    }
    found
}

#[test]
fn cpython_through_its_perf_trampolines() {
    let Some(python) = python() else { return };
    let program = "def spin():\n  while True: pass\ndef inner(): spin()\ndef outer(): inner()\nouter()\n";
    let mut target = Target::run(Command::new(python).args(["-X", "perf", "-c", program]));
    let generated = |names: &[String]| names.iter().filter(|name| *name == "[generated]").count();
    // At times a trampoline itself runs, and has called nothing yet.
    let moment = target.stop_when(64 << 10, |moment| {
        generated(&moment.names) == 4
            && moment.names[0] != "[generated]"
            && moment.names.contains(&"run_mod".to_owned())
    });
    let mut code = [0; 16];
    let at = moment.names.iter().position(|name| name == "[generated]").unwrap();
    ProcessMemory::new(target.pid()).read(moment.frames[at].lookup(), &mut code).unwrap();
    assert_eq!(moment.ending, StackEnding::Complete, "{:#?} {code:x?}", moment.names);
    assert_eq!(generated(&moment.names), 4, "spin, inner, outer, <module>: {:#?}", moment.names);
    assert!(moment.names.ends_with(&["?libc.so.6".into(), "__libc_start_main".into(), "_start".into()]));
    // Each trampoline was called by what runs a Python function, and calls the interpreter's loop.
    for (at, _) in moment.names.iter().enumerate().filter(|(_, name)| *name == "[generated]") {
        assert_eq!(moment.names[at - 1], "_PyEval_EvalFrameDefault", "{:#?}", moment.names);
    }
}

#[test]
fn node_with_frame_pointers_in_generated_code() {
    let Some(node) = found("node") else { return };
    let program = "function spin() { let x = 1; for (;;) x = (x * 3 + 1) | 0; } function outer() { spin(); return 1; } outer();";
    let mut target = Target::run(Command::new(node).args(["-e", program]));
    std::thread::sleep(std::time::Duration::from_millis(1000));
    let moment = target.stop_when(64 << 10, |moment| moment.names[0] == "[generated]");
    assert_eq!(moment.ending, StackEnding::Complete, "{moment:#?}");
    assert_eq!(moment.names.last().map(String::as_str), Some("_start"), "{:#?}", moment.names);
}
