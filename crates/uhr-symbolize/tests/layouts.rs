//! Programs as linkers of every kind lay them out: names equal those of nm.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's own helpers may fail the test")]

mod programs;

use std::collections::BTreeMap;
use std::path::Path;

use programs::{address_of, compile, elf, functions, image_base, look_up, name, run};
use uhr_model::{RelativeAddress, Unsymbolized};

const PROGRAM: &str = r#"
#include <stdio.h>
volatile long sink;
__attribute__((noinline)) static void first(long n) { for (long i = 0; i < n; i++) sink += i; }
__attribute__((noinline)) void second(long n) { for (long i = 0; i < n; i++) sink ^= i; }
__attribute__((noinline, section(".far"))) void far_away(long n) { for (long i = 0; i < n; i++) sink -= i; }
int main(int argc, char **argv) { first(argc); second(argc); far_away(argc); return puts("") < 0; }
"#;

/// Every function that nm lists is named at its first and its last byte, and starts where nm says.
fn agrees_with_nm(program: &Path, at_least: usize) {
    let base = image_base(program);
    let listed = functions(program);
    let mut names: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for (start, _, name) in &listed {
        names.entry(*start).or_default().push(name);
    }
    assert!(listed.len() >= at_least, "{}: nm lists {}", program.display(), listed.len());
    let (mut wrong, mut asked) = (Vec::new(), 0);
    for last in [false, true] {
        let stated: Vec<u64> =
            listed.iter().map(|(start, size, _)| if last { start + size - 1 } else { *start }).collect();
        for ((start, _, listed_name), result) in
            listed.iter().zip(look_up(elf(program), base, &stated).results)
        {
            asked += 1;
            // A function inside or over another one: nm's list decides only where there is one answer.
            let nested = listed.iter().any(|(other, size, _)| other < start && start < &(other + size));
            let found = result.as_ref().map(|found| found.start.0 + base).unwrap_or(0);
            if nested || (names[start].contains(&name(&result)) && found == *start) {
                continue;
            }
            wrong.push(format!("{listed_name} at {start:#x} (last byte: {last}): {result:?}"));
        }
    }
    // The last byte of a function that another one begins inside of has two answers.
    assert!(wrong.len() * 500 <= asked, "{}: {wrong:#?}", program.display());
}

#[test]
fn gnu_ld() {
    let folder = tempfile::tempdir().unwrap();
    let variants: [&[&str]; 8] = [
        &["-O1"],
        &["-O1", "-no-pie"],
        &["-O1", "-no-pie", "-Wl,-Ttext-segment=0x10000000"],
        &["-O1", "-Wl,-z,noseparate-code"],
        &["-O1", "-no-pie", "-Wl,-z,noseparate-code"],
        &["-O1", "-Wl,-z,max-page-size=0x200000"],
        &["-O1", "-Wl,--section-start=.far=0x20000000"],
        &["-O1", "-no-pie", "-Wl,-Ttext=0x7654000"],
    ];
    for flags in variants {
        let program = compile(folder.path(), "a.c", PROGRAM, flags);
        agrees_with_nm(&program, 5);
        let base = image_base(&program);
        for function in ["first", "second", "far_away", "main"] {
            let at = address_of(&program, function);
            let answer = look_up(elf(&program), base, &[at + 3]).results.remove(0).unwrap();
            assert_eq!(answer.start, RelativeAddress(at - base), "{flags:?}");
            assert_eq!(answer.locations[0].function.as_deref(), Some(function), "{flags:?}");
        }
    }
}

#[test]
fn static_programs() {
    let folder = tempfile::tempdir().unwrap();
    for flags in [&["-O1", "-static"][..], &["-O1", "-static-pie"]] {
        agrees_with_nm(&compile(folder.path(), "a.c", PROGRAM, flags), 500);
    }
}

#[test]
fn addresses_that_differ_from_file_offsets() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script.ld");
    std::fs::write(
        &script,
        "SECTIONS { . = 0x402000; .text : AT(0x1000) { *(.text*) } . = 0x900123; .far : { *(.far) }
         . = ALIGN(0x1000) + 0x10; .data : { *(.data*) *(.bss*) } /DISCARD/ : { *(.eh_frame) *(.note*) } }",
    )
    .unwrap();
    let source = PROGRAM.replace("#include <stdio.h>", "").replace("puts(\"\") < 0", "0");
    let script = script.to_str().unwrap();
    let flags = ["-O1", "-nostdlib", "-static", "-no-pie", "-Wl,-e,main", "-T", script];
    agrees_with_nm(&compile(folder.path(), "a.c", &source, &flags), 4);
}

/// The flag that lets gcc find the lld of Rust's toolchain.
fn lld_folder() -> String {
    let sysroot = run("rustc", &["--print", "sysroot"]);
    format!("-B{}/lib/rustlib/x86_64-unknown-linux-gnu/bin/gcc-ld", sysroot.trim())
}

#[test]
fn lld() {
    let lld = lld_folder();
    let folder = tempfile::tempdir().unwrap();
    for pie in ["-pie", "-no-pie"] {
        let program = compile(folder.path(), "a.c", PROGRAM, &["-O1", pie, "-fuse-ld=lld", &lld]);
        // lld's signature: the code's address is not its offset.
        let headers = run("readelf", &["-lW", program.to_str().unwrap()]);
        let code = headers.lines().find(|line| line.contains("R E")).unwrap();
        let words: Vec<&str> = code.split_whitespace().collect();
        assert_ne!(words[1], words[2]);
        agrees_with_nm(&program, 5);
    }
}

#[test]
fn gaps_have_no_name_but_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let source = (1..=6).map(|n| format!("int f{n}(int x) {{ return x * x + {n}; }}\n")).collect::<String>();
    let program =
        compile(folder.path(), "gaps.c", &format!("{source}int main() {{ return f1(2); }}"), &["-O1"]);
    let base = image_base(&program);
    let at: Vec<u64> = (1..=6).map(|n| address_of(&program, &format!("f{n}"))).collect();
    run("strip", &["-N", "f2", "-N", "f4", "-N", "f5", program.to_str().unwrap()]);
    let stated: Vec<u64> = at.iter().map(|at| at + 2).collect();
    let results = look_up(elf(&program), base, &stated).results;
    let names: Vec<&str> = results.iter().map(name).collect();
    assert_eq!(names, ["f1", "no-symbol", "f3", "no-symbol", "no-symbol", "f6"]);
    for gap in [1, 3, 4] {
        assert_eq!(results[gap].as_ref().unwrap_err().start, Some(RelativeAddress(at[gap] - base)));
    }

    run("strip", &[program.to_str().unwrap()]);
    for (result, at) in look_up(elf(&program), base, &stated).results.iter().zip(&at) {
        let unnamed = result.as_ref().unwrap_err();
        assert_eq!(
            (unnamed.reason, unnamed.start),
            (Unsymbolized::NoSymbol, Some(RelativeAddress(at - base)))
        );
    }
}

/// Every stub that objdump names, of each form that linkers write.
#[test]
fn linkage_stubs() {
    let folder = tempfile::tempdir().unwrap();
    let source = "#include <stdlib.h>\n#include <string.h>\n#include <stdio.h>
        int (*volatile print)(const char *) = puts;
        int main(int argc, char **argv) { print(argv[0]); free(malloc(argc)); return abs(atoi(getenv(argv[0]))); }";
    let lld = lld_folder();
    let variants: [&[&str]; 4] = [
        &["-O0", "-Wl,-z,lazy"],
        &["-O0", "-no-pie", "-Wl,-z,now"],
        &["-O0", "-fcf-protection", "-Wl,-z,ibtplt,-z,lazy"],
        &["-O0", "-fuse-ld=lld", &lld],
    ];
    for flags in variants {
        let program = compile(folder.path(), "plt.c", source, flags);
        run("strip", &[program.to_str().unwrap()]);
        let text = run(
            "objdump",
            &["-d", "-j", ".plt", "-j", ".plt.sec", "-j", ".plt.got", program.to_str().unwrap()],
        );
        let listed: Vec<(u64, &str)> = text
            .lines()
            .filter_map(|line| line.strip_suffix(">:")?.split_once(" <"))
            .filter(|(_, name)| name.ends_with("@plt"))
            .map(|(at, name)| (programs::hex(at), name))
            .collect();
        assert!(listed.len() >= 4, "{flags:?}: {text}");
        let base = image_base(&program);
        for within in [0, 5] {
            let stated: Vec<u64> = listed.iter().map(|stub| stub.0 + within).collect();
            for (result, (start, stub)) in look_up(elf(&program), base, &stated).results.iter().zip(&listed) {
                assert_eq!(name(result), *stub, "{flags:?}");
                assert_eq!(result.as_ref().unwrap().start, RelativeAddress(start - base));
            }
        }
    }
}

#[test]
fn assembler_without_sizes_and_types() {
    let folder = tempfile::tempdir().unwrap();
    let source = "
        .text
        .globl main, typed, plain, versioned
        .type typed, @function
        typed: nop; nop
        $x: nop
        $d.12: nop; ret
        plain: nop; nop; ret
        main: xor %eax, %eax; call typed; ret
        .type sized, @function
        sized: nop; nop; nop
        inside: nop; nop; ret
        .size sized, . - sized
        .section .data
        in_data: .long 1, 2, 3
        .section .note.GNU-stack,\"\",@progbits
    ";
    let program = compile(folder.path(), "asm.s", source, &["-no-pie"]);
    let base = image_base(&program);
    let at = |name| address_of(&program, name);
    let stated = [
        at("typed"),
        at("$x"),
        at("plain") - 1,
        at("plain") + 2,
        at("main"),
        at("inside") + 1,
        at("in_data"),
    ];
    let results = look_up(elf(&program), base, &stated).results;
    let names: Vec<&str> = results.iter().map(name).collect();
    assert_eq!(names, ["typed", "typed", "typed", "plain", "main", "sized", "no-symbol"]);
}

/// Data whose symbols lie over code, as hand-written tables do, and versions of one function.
#[test]
fn data_never_names_code_and_versions_are_no_part_of_names() {
    let folder = tempfile::tempdir().unwrap();
    let source = "
        .globl main, old_work, new_work, table, float
        .type main, @function
        .type old_work, @function
        .type table, @object
        .type float, @object
        .text
table:
float:
main:   nop
        ret
        .size main, . - main
        .size table, . - table
        .size float, 64
        .skip 8, 0x90
old_work:
        ret
        .size old_work, . - old_work
        .symver old_work, work@OLD_1.0
        .symver old_work, work@@NEW_2.0
        .section .note.GNU-stack,\"\",@progbits
";
    let versions = folder.path().join("versions");
    std::fs::write(&versions, "OLD_1.0 { work; }; NEW_2.0 { global: work; local: *; };").unwrap();
    let script = format!("-Wl,--version-script={}", versions.to_str().unwrap());
    let library = compile(folder.path(), "data.s", source, &["-shared", "-nostdlib", &script]);
    let (base, main) = (image_base(&library), address_of(&library, "main"));
    let work = main + 10;
    let names = |program: &Path| -> Vec<String> {
        let answer = look_up(elf(program), base, &[main, main + 1, main + 5, work]);
        answer.results.iter().map(|result| name(result).to_owned()).collect()
    };
    assert_eq!(names(&library)[..3], ["main", "main", "no-symbol"]);
    run("strip", &["--strip-all", library.to_str().unwrap()]);
    assert_eq!(names(&library)[3], "work");
}

#[test]
fn asked_in_any_order_and_twice() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "a.c", PROGRAM, &["-O1"]);
    let base = image_base(&program);
    let (first, second) = (address_of(&program, "first"), address_of(&program, "second"));
    let results = look_up(elf(&program), base, &[second, first, second, base, u64::MAX]).results;
    let names: Vec<&str> = results.iter().map(name).collect();
    assert_eq!(names, ["second", "first", "second", "no-symbol", "no-symbol"]);
}

#[test]
fn modules_in_parallel() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "a.c", PROGRAM, &["-O1", "-g"]);
    let (base, at) = (image_base(&program), address_of(&program, "first"));
    let answers: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| look_up(elf(&program), base, &[at]))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|answer| name(&answer.results[0]) == "first" && answer == &answers[0]));
}
