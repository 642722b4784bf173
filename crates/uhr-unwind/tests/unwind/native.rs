//! Compiled code: with and without frame pointers, libraries, signals, the vDSO, stubs, assembler.

use std::path::{Path, PathBuf};
use std::process::Command;

use uhr_model::{Avma, CodeAddress, StackEnding};
use uhr_unwind::{FramePointers, MAX_FRAMES, Registers, StackCopy, TargetMemory};

use crate::target::{Moment, Target, compile};

/// Where glibc's start-up code ends every stack of a main thread. `__libc_start_call_main` is local to libc.
const LIBC_START: [&str; 3] = ["?libc.so.6", "__libc_start_main", "_start"];

fn assert_whole(moment: &Moment, functions: &[&str], outermost: &[&str]) {
    let expected: Vec<&str> = functions.iter().chain(outermost).copied().collect();
    assert_eq!(moment.names, expected);
    assert_eq!(moment.ending, StackEnding::Complete);
    assert!(matches!(moment.frames[0], CodeAddress::Instruction(_)));
}

const CHAIN: &str = r#"
#include <stdint.h>
volatile uint64_t sink = 1;
__attribute__((noinline,noclone)) uint64_t spin(uint64_t x) { for (;;) { sink = sink * 3 + x; } return x; }
__attribute__((noinline,noclone)) uint64_t inner(uint64_t x) { return spin(x + sink) + 1; }
__attribute__((noinline,noclone)) uint64_t middle(uint64_t a, uint64_t b, uint64_t c) {
    uint64_t r = inner(a) + b * sink; return r + inner(c) + a; }
int main(int argc, char **argv) { return (int)middle(argc, sink, sink) + argc; }
"#;

fn chain(flags: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let command: Vec<&str> = ["gcc"].iter().chain(flags).copied().collect();
    let program = compile(folder.path(), &command, "chain.c", CHAIN, "chain");
    let mut target = Target::run(&mut Command::new(program));
    let moment = target.stop_in("spin");
    let outermost: &[&str] = if flags.iter().any(|flag| flag.starts_with("-static")) {
        &["__libc_start_call_main", "__libc_start_main", "_start"]
    } else {
        &LIBC_START
    };
    let names: Vec<&str> = moment.names.iter().map(|name| name.trim_end_matches("_impl")).collect();
    let moment = Moment { names: names.iter().map(|name| (*name).to_owned()).collect(), ..moment };
    assert_whole(&moment, &["spin", "inner", "middle", "main"], outermost);
}

#[test]
fn optimised_c_without_frame_pointers() {
    chain(&["-O2", "-fomit-frame-pointer"]);
}

#[test]
fn optimised_c_with_frame_pointers() {
    chain(&["-O2", "-fno-omit-frame-pointer"]);
}

#[test]
fn unoptimised_c() {
    chain(&["-O0"]);
}

#[test]
fn a_program_at_a_fixed_address() {
    chain(&["-O2", "-no-pie"]);
}

#[test]
fn a_static_position_independent_program() {
    chain(&["-O2", "-static-pie"]);
}

#[test]
fn call_frame_information_only_in_debug_frame_also_compressed() {
    for compressed in ["-gz=none", "-gz=zlib"] {
        chain(&["-O2", "-g", compressed, "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]);
    }
}

/// A program with frame pointers calls a library that uses rbp as a general register, which calls back.
fn mixed(folder: &Path) -> PathBuf {
    let library = r#"
        #include <stdint.h>
        typedef uint64_t (*callback)(uint64_t);
        uint64_t library_outer(callback f, uint64_t *v) {
            uint64_t a=v[0],b=v[1],c=v[2],d=v[3],e=v[4],g=v[5];
            uint64_t r = f(a);
            return r*a+b*c+d*e+g+f(b)+f(c)+f(d)+f(e)+f(g)+a+b*3+c*5+d*7+e*9; }
    "#;
    compile(
        folder,
        &["gcc", "-O2", "-shared", "-fPIC", "-fomit-frame-pointer"],
        "lib.c",
        library,
        "libmixed.so",
    );
    let program = r#"
        #include <stdint.h>
        typedef uint64_t (*callback)(uint64_t);
        uint64_t library_outer(callback f, uint64_t *v);
        volatile uint64_t sink = 1; uint64_t values[6] = {0xdead,2,3,4,5,6};
        __attribute__((noinline)) uint64_t spin(uint64_t x) { for (;;) sink += x; }
        uint64_t second(uint64_t x) { return spin(x) + 1; }
        uint64_t first(uint64_t x) { return library_outer(second, values) + x; }
        int main(void) { return (int)library_outer(first, values) + 1; }
    "#;
    let flags = [
        "gcc",
        "-O2",
        "-fno-omit-frame-pointer",
        "-L.",
        "-Wl,--no-as-needed",
        "-lmixed",
        "-Wl,-rpath,$ORIGIN",
    ];
    compile(folder, &flags, "mixed.c", program, "mixed")
}

#[test]
fn through_a_library_that_uses_rbp_for_something_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut target = Target::run(&mut Command::new(mixed(folder.path())));
    let moment = target.stop_in("spin");
    assert_whole(
        &moment,
        &["spin", "second", "library_outer", "first", "library_outer", "main"],
        &LIBC_START,
    );
    let of = |name: &str| {
        let path = target.modules.keys().find(|path| path.ends_with(name)).unwrap();
        target.modules[path].frame_pointers()
    };
    assert_eq!(of("/mixed"), FramePointers::Everywhere);
    let FramePointers::Missing { share } = of("/libmixed.so") else { panic!("{:?}", of("/libmixed.so")) };
    assert!(share < 0.3, "{share}");
    assert!(matches!(of("/libc.so.6"), FramePointers::Missing { .. }));
}

#[test]
fn through_a_function_that_its_library_names_as_its_entry() {
    let folder = tempfile::tempdir().unwrap();
    let library = "void called(void (*back)(void)) { back(); } void other(void (*back)(void)) { called(back); back(); }";
    let flags = ["gcc", "-O1", "-shared", "-fPIC", "-Wl,-e,other", "-Wl,--no-as-needed"];
    compile(folder.path(), &flags, "lib.c", library, "libentry.so");
    let program = r#"
        void other(void (*back)(void)); volatile int sink = 1;
        __attribute__((noinline)) void spin(void) { for (;;) sink += 3; }
        int main(void) { other(spin); return sink; }
    "#;
    let flags = ["gcc", "-O1", "-L.", "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed", "-lentry"];
    let program = compile(folder.path(), &flags, "entry.c", program, "entry");
    let mut target = Target::run(&mut Command::new(program));
    assert_whole(&target.stop_in("spin"), &["spin", "called", "other", "main"], &LIBC_START);
}

/// A handler runs on `stack`; the interrupted function traps at its first instruction.
fn signal_program(alternate: bool) -> String {
    format!(
        r#"
        #include <signal.h>
        #include <stdint.h>
        volatile uint64_t sink = 1;
        __attribute__((noinline)) void spin(void) {{ for (;;) sink += 3; }}
        static void handler(int s) {{ sink += s; spin(); sink++; }}
        void trap(void); __asm__(".text\n.type trap,@function\ntrap: .cfi_startproc\n ud2\n ret\n .cfi_endproc\n.size trap,.-trap\n");
        __attribute__((noinline)) void work(void) {{ sink += 5; trap(); sink++; }}
        char other[16384];
        int main(void) {{
            char *below = __builtin_alloca(16384); stack_t st = {{ .ss_sp = {stack}, .ss_size = 16384 }};
            struct sigaction sa = {{ .sa_handler = handler, .sa_flags = SA_ONSTACK }};
            if ({alternate}) sigaltstack(&st, 0);
            sigaction(SIGILL, &sa, 0); work(); sink++; return below[3]; }}
        "#,
        stack = if alternate { "other" } else { "below" },
        alternate = u8::from(alternate),
    )
}

#[test]
fn through_a_signal_handler_to_the_first_instruction_of_a_function() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), &["gcc", "-O2"], "signal.c", &signal_program(false), "signal");
    let mut target = Target::run(&mut Command::new(program));
    let moment = target.stop_in("spin");
    assert_whole(&moment, &["spin", "handler", "?libc.so.6", "trap", "work", "main"], &LIBC_START);
    assert!(matches!(moment.frames[3], CodeAddress::Instruction(_)), "nothing was called there");
    assert!(matches!(moment.frames[4], CodeAddress::Return(_)));
}

#[test]
fn a_handler_on_a_stack_that_was_copied_without_the_interrupted_one() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), &["gcc", "-O2"], "signal.c", &signal_program(true), "signal");
    let mut target = Target::run(&mut Command::new(program));
    let moment = target.stop_in("spin");
    assert_eq!(moment.names, ["spin", "handler", "?libc.so.6", "trap"]);
    assert_eq!(moment.ending, StackEnding::CopyTooShort);
}

/// Single steps through calls, stubs, prologues and epilogues, with every register that a callee must keep in use.
fn every_instruction(flags: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        #include <stdlib.h>
        volatile int sink = 1;
        __attribute__((noinline)) int leaf(int x) { return x * 3 + sink; }
        __attribute__((noinline)) int work(int x) {
            int a = leaf(x), b = abs(a), c = leaf(b), d = leaf(c), e = leaf(d), f = leaf(e);
            return a + b * c + d * e + f + atoi("17"); }
        __attribute__((noinline)) int caller(int x) { char b[x & 15]; b[0] = 1; return work(x) + b[0]; }
        int main(void) { for (;;) sink += caller(sink | 1); }
    "#;
    let command: Vec<&str> =
        ["gcc", "-O2", "-fno-builtin", "-Wl,-z,lazy"].iter().chain(flags).copied().collect();
    let mut target =
        Target::run(&mut Command::new(compile(folder.path(), &command, "steps.c", source, "steps")));
    target.stop_in("work");
    for step in 0..800 {
        let regs = target.step();
        let moment = target.unwind(regs, 16 << 10);
        assert_eq!(moment.ending, StackEnding::Complete, "step {step}: {moment:#?}");
        let main = moment.names.iter().position(|name| name == "main").unwrap();
        assert_eq!(moment.names[main + 1..], LIBC_START, "step {step}");
        let inner = &moment.names[..main];
        let whole = match inner {
            [] => true,
            [.., caller] if inner.len() == 1 => caller == "caller",
            [.., work, caller] => work == "work" && caller == "caller",
            _ => false,
        };
        assert!(whole, "step {step}: {inner:?}");
    }
}

#[test]
fn every_instruction_of_calls_through_stubs() {
    every_instruction(&["-fomit-frame-pointer"]);
}

#[test]
fn every_instruction_with_frame_pointers() {
    every_instruction(&["-fno-omit-frame-pointer"]);
}

#[test]
fn in_the_vdso() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        #include <time.h>
        __attribute__((noinline)) void ask(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); }
        int main(void) { for (;;) { ask(); __asm__ volatile("":::"memory"); } }
    "#;
    let program = compile(folder.path(), &["gcc", "-O2"], "clock.c", source, "clock");
    let mut target = Target::run(&mut Command::new(program));
    // Both the vDSO's function and libc's, which calls it, have that name.
    let moment = target.stop_when(16 << 10, |moment| {
        moment.names.starts_with(&["clock_gettime".into(), "clock_gettime".into()])
    });
    let ask = moment.names.iter().position(|name| name == "ask").unwrap();
    let outermost: Vec<&str> = ["ask", "main"].into_iter().chain(LIBC_START).collect();
    assert_eq!(moment.names[ask..], outermost);
    assert_eq!(moment.names[ask - 1], "clock_gettime");
    assert_eq!(moment.ending, StackEnding::Complete);
}

#[test]
fn assembler_without_call_frame_information() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        .text
        .globl leafloop, framed, main
        .type leafloop,@function
        leafloop: jmp leafloop
        .size leafloop,.-leafloop
        .type framed,@function
        framed: push %rbp; mov %rsp,%rbp; sub $48,%rsp; movq $7,(%rsp); call leafloop; nop; nop; leave; ret
        .size framed,.-framed
        .type main,@function
        main: .cfi_startproc
        sub $24,%rsp
        .cfi_def_cfa_offset 32
        call framed; add $24,%rsp; ret
        .cfi_endproc
        .size main,.-main
        .section .note.GNU-stack,"",@progbits
    "#;
    let program = compile(folder.path(), &["gcc"], "bare.s", source, "bare");
    let mut target = Target::run(&mut Command::new(program));
    let moment = target.stop_in("leafloop");
    assert_whole(&moment, &["leafloop", "framed", "main"], &LIBC_START);
}

#[test]
fn assembler_whose_frame_cannot_be_known_ends_the_stack_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        .text
        .globl main
        .type main,@function
        main: sub $24,%rsp
        mov $99,%ebp
        movq $5,(%rsp)
        1: jmp 1b
        .size main,.-main
        .section .note.GNU-stack,"",@progbits
    "#;
    let program = compile(folder.path(), &["gcc"], "bare.s", source, "bare");
    let mut target = Target::run(&mut Command::new(program));
    let moment = target.stop_in("main");
    assert_eq!(moment.names, ["main"]);
    assert_eq!(moment.ending, StackEnding::NoUnwindInfo);
}

#[test]
fn a_program_without_libc_whose_entry_has_no_information() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        __attribute__((noinline)) void spin(void) { for (;;) __asm__ volatile(""); }
        __attribute__((noinline)) void begin(void) { spin(); __asm__ volatile(""); }
        __asm__(".text\n.globl _start\n.type _start,@function\n_start: xor %ebp,%ebp\n and $-16,%rsp\n call begin\n hlt\n.size _start,.-_start\n");
    "#;
    let program = compile(folder.path(), &["gcc", "-O2", "-nostdlib", "-static"], "bare.c", source, "bare");
    let mut target = Target::run(&mut Command::new(program));
    let moment = target.stop_in("spin");
    assert_whole(&moment, &["spin", "begin"], &["_start"]);
}

#[test]
fn a_program_all_in_assembler_without_call_frame_information() {
    let folder = tempfile::tempdir().unwrap();
    let function = |name: &str, code: &str| {
        format!(".globl {name}\n.type {name},@function\n{name}: {code}\n.size {name},.-{name}\n")
    };
    let source = [
        ".text\n".to_owned(),
        function("_start", "xor %ebp,%ebp\n call outer\n mov $60,%eax\n xor %edi,%edi\n syscall"),
        function("outer", "call inner\n ret"),
        function("inner", "1: jmp 2f\n 2: dec %rbx\n jnz 1b\n ret"),
    ];
    let program =
        compile(folder.path(), &["gcc", "-nostdlib", "-static"], "small.s", &source.concat(), "small");
    let mut target = Target::run(&mut Command::new(program));
    let moment = target.stop_in("inner");
    assert_whole(&moment, &["inner", "outer"], &["_start"]);
}

#[test]
fn a_stack_that_is_longer_than_the_copy_and_one_with_too_many_frames() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        volatile int sink = 1;
        __attribute__((noinline)) void spin(void) { for (;;) sink += 3; }
        __attribute__((noinline)) int deep(int n) { if (n == 0) spin(); else sink += deep(n - 1); return sink + n; }
        int main(void) { return deep(12000); }
    "#;
    let program = compile(
        folder.path(),
        &["gcc", "-O2", "-fno-optimize-sibling-calls", "-fno-inline"],
        "deep.c",
        source,
        "deep",
    );
    let mut target = Target::run(&mut Command::new(program));
    let moment = target.stop_in("spin");
    let long = target.unwind(moment.regs, 1 << 20);
    assert_eq!((long.ending, long.frames.len()), (StackEnding::TooDeep, MAX_FRAMES));
    let short = target.unwind(moment.regs, 4096);
    assert_eq!(short.ending, StackEnding::CopyTooShort);
    assert!(short.names[1..].iter().all(|name| name == "deep") && short.names.len() > 50);
}

#[test]
fn an_address_outside_every_known_mapping() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), &["gcc", "-O2"], "chain.c", CHAIN, "chain");
    let mut target = Target::run(&mut Command::new(program));
    let moment = target.stop_in("spin");
    let start = moment.frames[0].lookup().0 & !0xfff;
    target.unwinder.unmap(Avma(start)..Avma(start + 0x1000));
    let again = target.unwind(moment.regs, 16 << 10);
    assert_eq!((again.ending, again.frames.len()), (StackEnding::UnknownMapping, 1));
    assert!(!target.unwinder.knows(again.frames[0].lookup()));
}

#[test]
fn a_chain_lacks_the_caller_of_a_function_without_a_frame_and_a_short_copy_has_it() {
    let folder = tempfile::tempdir().unwrap();
    for flags in ["-fomit-frame-pointer", "-fno-omit-frame-pointer"] {
        let program = compile(folder.path(), &["gcc", "-O2", flags], "chain.c", CHAIN, "chain");
        let mut target = Target::run(&mut Command::new(program));
        let moment = target.stop_in("spin");
        let memory = target.memory();
        let mut bytes = [0; 128];
        memory.read(Avma(moment.regs.rsp), &mut bytes).unwrap();
        let registers = Registers::new(moment.regs.rip, moment.regs.rsp).with_bp(moment.regs.rbp);
        let stack = StackCopy { start: Avma(moment.regs.rsp), bytes: &bytes };
        let mut lacking = |registers| {
            let caller =
                target.unwinder.caller_without_frame(registers, stack, Some(&memory), &mut target.cache);
            caller.map(CodeAddress::Return)
        };
        assert_eq!(lacking(registers), Some(moment.frames[1]), "{flags}: {:?}", moment.names);
        // A frame whose return address lies where this one's does is in the chain.
        let CodeAddress::Return(Avma(caller)) = moment.frames[1] else { panic!("{:?}", moment.frames) };
        let place = bytes.chunks(8).position(|word| word == caller.to_ne_bytes()).unwrap() as u64 * 8;
        let framed = registers.with_bp(moment.regs.rsp + place - 8);
        assert_eq!(lacking(framed), None, "{flags}");
    }
}

#[test]
fn kernel_chains_are_whole_if_they_reach_the_caller_of_main() {
    let folder = tempfile::tempdir().unwrap();
    let program =
        compile(folder.path(), &["gcc", "-O2", "-fno-omit-frame-pointer"], "chain.c", CHAIN, "chain");
    let mut target = Target::run(&mut Command::new(program));
    let moment = target.stop_in("spin");
    let memory = target.memory();
    let mut ending = |chain: &[u64]| {
        let mut out = Vec::new();
        let ending =
            target.unwinder.frame_pointer_chain(chain, 127, Some(&memory), &mut target.cache, &mut out);
        (ending, out.len())
    };
    let address = |frame: &CodeAddress<Avma>| match frame {
        CodeAddress::Instruction(address) | CodeAddress::Return(address) => address.0,
    };
    let chain: Vec<u64> = moment.frames.iter().map(address).collect();
    assert_eq!(ending(&chain), (StackEnding::Complete, 7));
    assert_eq!(ending(&chain[..5]), (StackEnding::Complete, 5));
    assert_eq!(ending(&[&chain[..5], &[0x1234]].concat()), (StackEnding::Complete, 5));
    assert_eq!(ending(&chain[..4]), (StackEnding::BrokenFramePointers, 4));
    assert_eq!(ending(&[chain[0]; 127]), (StackEnding::TooDeep, 127));
    assert_eq!(ending(&[]), (StackEnding::NoUserStack, 0));
}
