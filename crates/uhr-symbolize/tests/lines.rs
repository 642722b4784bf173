//! Lines and inline chains: equal to what binutils' addr2line says.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's own helpers may fail the test")]

mod programs;

use programs::{address_of, base_name, compile, elf, functions, image_base, look_up, oracle, run, shape};
use uhr_symbolize::{Note, Origin};

const CPP: &str = r#"
#include <vector>
struct Adder { long sum = 0; __attribute__((always_inline)) void add(long x) {
    sum += x * x;
} };
template <class T> __attribute__((noinline)) long total(const std::vector<T> &values) {
    Adder adder;
    for (auto value : values)
        adder.add(value);
    return adder.sum;
}
int main(int argc, char **) {
    std::vector<int> values(argc * 10, 3);
    return total(values) & 1;
}
"#;

#[test]
fn every_byte_of_a_cpp_program() {
    let folder = tempfile::tempdir().unwrap();
    for flags in [&["-O2", "-g"][..], &["-O2", "-g", "-gdwarf-4", "-no-pie"], &["-O2", "-g", "-gz"]] {
        let program = compile(folder.path(), "a.cpp", CPP, flags);
        let base = image_base(&program);
        let wanted = ["main", "_Z5total"];
        let listed = functions(&program);
        let ours = listed.iter().filter(|(_, _, name)| wanted.iter().any(|start| name.starts_with(start)));
        let stated: Vec<u64> = ours.flat_map(|(start, size, _)| *start..start + size).collect();
        assert!(stated.len() > 50);
        let answer = look_up(elf(&program), base, &stated);
        assert_eq!((answer.origin, answer.notes), (Origin::Dwarf, vec![]));
        let mut inlined = 0;
        for ((at, result), chain) in stated.iter().zip(answer.results).zip(oracle(&program, &stated)) {
            let found = result.unwrap();
            let expected: Vec<_> =
                chain.iter().map(|(_, file, line)| (base_name(file).to_owned(), *line)).collect();
            assert_eq!(shape(&found.locations), expected, "{at:#x} {flags:?}");
            inlined += usize::from(found.locations.len() > 1);
        }
        assert!(inlined > 5);
    }
}

#[test]
fn the_inline_chain_that_the_source_has() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "a.cpp", CPP, &["-O1", "-g"]);
    let base = image_base(&program);
    let listed = functions(&program);
    let (start, size, _) = listed.iter().find(|(_, _, name)| name.starts_with("_Z5total")).unwrap();
    let stated: Vec<u64> = (*start..start + size).collect();
    let results = look_up(elf(&program), base, &stated).results;
    let chains = results.iter().map(|result| result.as_ref().unwrap());
    let in_add = chains
        .filter(|found| found.locations[0].line == Some(4))
        .find(|found| found.locations.len() == 2)
        .expect("line 4 is inlined");
    assert_eq!(in_add.start.0, start - base);
    assert_eq!(in_add.locations[0].function.as_deref(), Some("Adder::add(long)"));
    let outer = &in_add.locations[1];
    assert_eq!(outer.line, Some(9));
    assert_eq!(
        outer.function.as_deref(),
        Some("long total<int>(std::vector<int, std::allocator<int> > const&)")
    );
}

/// GCC gives such functions no linkage name in DWARF; their symbol has everything.
#[test]
fn functions_in_anonymous_namespaces() {
    let folder = tempfile::tempdir().unwrap();
    let source = "namespace { struct S { __attribute__((noinline)) int work(int x) { return x * x; } }; }
        int main(int argc, char **) { return S().work(argc); }";
    let program = compile(folder.path(), "b.cpp", source, &["-O1", "-g"]);
    let listed = functions(&program);
    let (start, _, _) = listed.iter().find(|(_, _, name)| name.contains("4work")).unwrap();
    let found = look_up(elf(&program), image_base(&program), &[*start]).results.remove(0).unwrap();
    assert_eq!(found.locations[0].function.as_deref(), Some("(anonymous namespace)::S::work(int)"));
    assert_eq!(found.locations[0].line, Some(1));
}

#[test]
fn rust_programs_of_both_manglings() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("a.rs");
    std::fs::write(
        &source,
        "mod inner { pub struct S; impl S { #[inline(never)] pub fn work(&self, n: u64) -> u64 {
            (0..n).fold(0, |a, b| a ^ std::hint::black_box(b))
        } } }
        fn main() { std::process::exit((inner::S.work(100) & 1) as i32) }",
    )
    .unwrap();
    for (mangling, name) in [("legacy", "a::inner::S::work"), ("v0", "<a::inner::S>::work")] {
        let program = folder.path().join(mangling);
        let flag = format!("-Csymbol-mangling-version={mangling}");
        let arguments = ["-O", "-g", "-Zunstable-options", &flag, source.to_str().unwrap(), "-o"];
        let mut command = std::process::Command::new("rustc");
        // `legacy` counts as unstable by now.
        command.env("RUSTC_BOOTSTRAP", "1").args(arguments).arg(&program);
        assert!(command.status().unwrap().success());
        let base = image_base(&program);
        let listed = functions(&program);
        let (start, size, _) = listed.iter().find(|(_, _, name)| name.contains("4work")).unwrap();
        let stated: Vec<u64> = (*start..start + size).collect();
        for result in look_up(elf(&program), base, &stated).results {
            let found = result.unwrap();
            let physical = found.locations.last().unwrap().function.as_deref();
            assert_eq!(physical, Some(name), "{mangling}");
        }
    }
}

#[test]
fn assembler_with_lines_has_the_name_of_its_symbol() {
    let folder = tempfile::tempdir().unwrap();
    let source = "
        .globl main
        .type main, @function
main:
        nop
        ret
        .section .note.GNU-stack,\"\",@progbits
";
    let program = compile(folder.path(), "asm.s", source, &["-g"]);
    let base = image_base(&program);
    let at = address_of(&program, "main");
    let found = look_up(elf(&program), base, &[at + 1]).results.remove(0).unwrap();
    assert_eq!(found.locations[0].function.as_deref(), Some("main"));
    assert_eq!(found.locations[0].line, Some(6));
}

#[test]
fn damaged_debug_information_leaves_symbols() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "a.cpp", CPP, &["-O2", "-g"]);
    let base = image_base(&program);
    let at = address_of(&program, "main");
    let sections = run("readelf", &["-SW", program.to_str().unwrap()]);
    let line = sections.lines().find(|line| line.contains(".debug_abbrev")).unwrap();
    let words: Vec<&str> = line.split(']').nth(1).unwrap().split_whitespace().collect();
    let (offset, size) = (programs::hex(words[3]) as usize, programs::hex(words[4]) as usize);
    let mut bytes = std::fs::read(&program).unwrap();
    bytes[offset..offset + size].fill(0xff);
    std::fs::write(&program, bytes).unwrap();
    let answer = look_up(elf(&program), base, &[at]);
    assert_eq!(programs::name(&answer.results[0]), "main");
    assert!(matches!(answer.notes[..], [Note::DebugInfoDamaged { .. } | Note::LinesDamaged { .. }]));
}
