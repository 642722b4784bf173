//! Split DWARF and dwz: the same lines and inline chains as the same program has with all its debug information in it.

#![allow(clippy::unwrap_used, reason = "a test's own helpers may fail the test")]

mod programs;

use std::path::{Path, PathBuf};
use std::process::Command;

use programs::{base_name, compile, elf, functions, has, image_base, look_up, oracle_of, run, shape};
use proptest::prelude::*;
use uhr_symbolize::{ElfSource, ModuleSymbols, Note, Origin};

const HEADER: &str = "struct Adder { long sum = 0; __attribute__((always_inline)) void add(long x) {
    sum += x * x;
} };
long total(const int *values, int count);
";
const TOTAL: &str = r#"#include "adder.h"
__attribute__((noinline)) long total(const int *values, int count) {
    Adder adder;
    for (int at = 0; at < count; at++)
        adder.add(values[at]);
    return adder.sum;
}
"#;
const MAIN: &str = r#"#include "adder.h"
int main(int argc, char **) {
    int values[3] = {argc, 2, 3};
    Adder adder;
    adder.add(argc);
    return (total(values, 3) + adder.sum) & 1;
}
"#;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Two objects in `folder`, linked.
fn build(folder: &Path, compiler: &str, flags: &[&str]) -> PathBuf {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("adder.h"), HEADER).unwrap();
    let mut objects = Vec::new();
    for (name, source) in [("total", TOTAL), ("main", MAIN)] {
        let (file, object) = (folder.join(name).with_extension("cpp"), folder.join(name).with_extension("o"));
        std::fs::write(&file, source).unwrap();
        let mut arguments = vec!["-O2", "-c", text(&file), "-o", text(&object)];
        arguments.extend(flags);
        run(compiler, &arguments);
        objects.push(object);
    }
    let program = folder.join("program");
    let link: Vec<&str> = objects.iter().map(|path| text(path)).chain(["-o", text(&program)]).collect();
    run("g++", &link);
    program
}

/// Every address of the two functions.
fn addresses(program: &Path) -> Vec<u64> {
    let ours = |name: &str| name == "main" || name.starts_with("_Z5total");
    let ours = functions(program).into_iter().filter(|(_, _, name)| ours(name));
    ours.flat_map(|(start, size, _)| start..start + size).collect()
}

/// Holds `answer` against what a tool says of `whole`, whose code is the same. Gives the number of inlined addresses.
fn assert_as_whole(answer: &ModuleSymbols, whole: &Path, asked: &[u64], of: &str) -> usize {
    // binutils know no inlined functions in what clang writes of version 5.
    let tool = if of.starts_with("clang") { "llvm-addr2line" } else { "addr2line" };
    let mut inlined = 0;
    for ((at, result), chain) in asked.iter().zip(&answer.results).zip(oracle_of(tool, whole, asked)) {
        let found = result.as_ref().unwrap();
        let expected: Vec<_> =
            chain.iter().map(|(_, file, line)| (base_name(file).to_owned(), *line)).collect();
        assert_eq!(shape(&found.locations), expected, "{at:#x} {of}");
        let inner = found.locations[0].function.as_deref();
        if found.locations.len() > 1 {
            assert_eq!(inner, Some("Adder::add(long)"), "{at:#x} {of}");
            inlined += 1;
        }
    }
    inlined
}

fn ask(program: &Path, asked: &[u64]) -> ModuleSymbols {
    look_up(elf(program), image_base(program), asked)
}

#[test]
fn dwo_files_and_packages() {
    let folder = tempfile::tempdir().unwrap();
    for (row, (compiler, dwarf)) in
        [("g++", "-gdwarf-5"), ("g++", "-gdwarf-4"), ("clang++", "-gdwarf-5"), ("clang++", "-gdwarf-4")]
            .into_iter()
            .filter(|(compiler, _)| *compiler == "g++" || (has(compiler) && has("llvm-addr2line")))
            .enumerate()
    {
        let of = format!("{compiler} {dwarf}");
        let whole = build(&folder.path().join(format!("whole{row}")), compiler, &["-g", dwarf]);
        let split = folder.path().join(format!("split{row}"));
        let program = build(&split, compiler, &["-g", "-gsplit-dwarf", dwarf]);
        let asked = addresses(&program);
        assert_eq!(asked, addresses(&whole));
        let answer = ask(&program, &asked);
        assert_eq!((&answer.origin, &answer.notes[..]), (&Origin::Dwarf, &[][..]));
        assert!(assert_as_whole(&answer, &whole, &asked, &of) > 5, "{of}");

        // The package alone. The dwp of binutils, where there still is one, ends by a signal at version 5.
        let has_dwp = dwarf == "-gdwarf-4" && Command::new("dwp").arg("--version").output().is_ok();
        let packers = [("dwp", has_dwp), ("llvm-dwp", has("llvm-dwp"))];
        for (packer, _) in packers.into_iter().filter(|packer| packer.1) {
            let package = split.join("program.dwp");
            let parts = ["total.dwo", "main.dwo"].map(|name| split.join(name));
            let away = parts.clone().map(|part| part.with_extension("away"));
            run(packer, &["-e", text(&program), "-o", text(&package)]);
            parts.iter().zip(&away).for_each(|(part, away)| std::fs::rename(part, away).unwrap());
            let answer = ask(&program, &asked);
            assert_eq!(answer.notes, [], "{of} {packer}");
            assert!(assert_as_whole(&answer, &whole, &asked, &of) > 5, "{of} {packer}");
            std::fs::remove_file(package).unwrap();
            parts.iter().zip(&away).for_each(|(part, away)| std::fs::rename(away, part).unwrap());
        }

        // One part is gone, and the other belongs to another build: lines and names remain.
        std::fs::remove_file(split.join("main.dwo")).unwrap();
        std::fs::copy(folder.path().join("split0/program"), split.join("total.dwo")).unwrap();
        let answer = ask(&program, &asked);
        let [Note::SplitMissing { files: 2, path }] = &answer.notes[..] else { panic!("{:?}", answer.notes) };
        assert!(path.ends_with("main.dwo"), "{}", path.display());
        let with_line = answer.results.iter().flatten().filter(|found| found.locations[0].line.is_some());
        assert!(with_line.count() * 10 > asked.len() * 8, "{of}");
        for (at, result) in asked.iter().zip(&answer.results) {
            let found = result.as_ref().unwrap();
            assert_eq!(found.locations.len(), 1, "{at:#x} {of}");
            assert!(
                ["main", "total(int const*, int)"].contains(&found.locations[0].function.as_deref().unwrap())
            );
        }
    }
}

/// The folder in which the compiler worked is gone: the parts lie beside the program, or in the program's own root.
#[test]
fn moved_parts() {
    let folder = tempfile::tempdir().unwrap();
    let built = folder.path().join("built");
    let program = build(&built, "g++", &["-g", "-gsplit-dwarf"]);
    let asked = addresses(&program);
    let moved = folder.path().join("moved");
    std::fs::rename(&built, &moved).unwrap();
    let program = moved.join("program");
    assert_eq!(ask(&program, &asked).notes, []);

    let root = folder.path().join("root");
    let inside = root.join(built.strip_prefix("/").unwrap());
    std::fs::create_dir_all(&inside).unwrap();
    for name in ["total.dwo", "main.dwo"] {
        std::fs::rename(moved.join(name), inside.join(name)).unwrap();
    }
    assert!(matches!(ask(&program, &asked).notes[..], [Note::SplitMissing { .. }]));
    let source = ElfSource { root: Some(&root), ..elf(&program) };
    assert_eq!(look_up(source, image_base(&program), &asked).notes, []);
}

/// Programs whose shared debug information dwz has moved to a third file.
#[test]
fn shared_parts_of_dwz() {
    if !has("dwz") {
        return;
    }
    for dwarf in ["-gdwarf-4", "-gdwarf-5"] {
        let folder = tempfile::tempdir().unwrap();
        let whole = build(&folder.path().join("whole"), "g++", &["-g", dwarf]);
        let [first, second, shared] = ["first", "second", "shared"].map(|name| folder.path().join(name));
        std::fs::copy(&whole, &first).unwrap();
        std::fs::copy(&whole, &second).unwrap();
        let source = [HEADER, "int main() { Adder a; a.add(1); return a.sum; }"].concat();
        let other = compile(folder.path(), "o.cpp", &source, &["-g", dwarf]);
        run("dwz", &["-m", text(&shared), "-M", "shared", text(&first), text(&second), text(&other)]);
        let asked = addresses(&first);
        let answer = ask(&first, &asked);
        assert_eq!(answer.notes, []);
        assert!(assert_as_whole(&answer, &whole, &asked, "dwz") > 5);
        std::fs::remove_file(shared).unwrap();
        let answer = ask(&first, &asked);
        assert!(matches!(answer.notes[..], [Note::AlternateMissing { .. }, ..]), "{:?}", answer.notes);
        assert!(answer.results.iter().all(Result::is_ok));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn forged_parts(changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..64)) {
        thread_local! {
            static PROGRAM: (tempfile::TempDir, PathBuf, Vec<u64>, Vec<u8>) = {
                let folder = tempfile::tempdir().unwrap();
                let program = build(folder.path(), "g++", &["-g", "-gsplit-dwarf"]);
                let (asked, part) = (addresses(&program), std::fs::read(folder.path().join("total.dwo")).unwrap());
                (folder, program, asked, part)
            };
        }
        PROGRAM.with(|(folder, program, asked, part)| {
            let mut part = part.clone();
            for (at, value) in changes {
                let at = at.index(part.len());
                part[at] = value;
            }
            std::fs::write(folder.path().join("total.dwo"), &part).unwrap();
            let answer = ask(program, asked);
            assert!(answer.results.iter().all(Result::is_ok));
            run("mv", &[text(&folder.path().join("total.dwo")), text(&folder.path().join("program.dwp"))]);
            let answer = ask(program, asked);
            assert!(answer.results.iter().all(Result::is_ok));
        });
    }
}
