//! The kernel, the vDSO, and real runtimes that write perf maps.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's own helpers may fail the test")]

mod programs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use uhr_model::{FrameMode, RelativeAddress, Unsymbolized};
use uhr_symbolize::{KernelSymbols, Location, ModuleSource, PerfMap, symbolize};

/// This process's own vDSO, and the clock functions in it.
#[test]
fn vdso() {
    use std::os::unix::fs::FileExt;

    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let Some(line) = maps.lines().find(|line| line.ends_with("[vdso]")) else {
        eprintln!("SKIPPED vdso: this process has none");
        return;
    };
    let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
    let (start, end) = (programs::hex(start), programs::hex(end));
    let mut image = vec![0; (end - start) as usize];
    fs::File::open("/proc/self/mem").unwrap().read_exact_at(&mut image, start).unwrap();

    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("vdso.so");
    fs::write(&copy, &image).unwrap();
    let listed = programs::run("nm", &["-D", "--defined-only", copy.to_str().unwrap()]);
    let at = |name: &str| {
        let line = listed.lines().find(|line| line.split(['@', ' ']).any(|word| word == name)).unwrap();
        RelativeAddress(programs::hex(line.split(' ').next().unwrap()))
    };
    for name in ["__vdso_clock_gettime", "__vdso_gettimeofday", "__vdso_getcpu"] {
        let inside = RelativeAddress(at(name).0 + 1);
        let answer = symbolize(&ModuleSource::Vdso { image: &image }, &[inside]);
        let found = answer.results[0].as_ref().unwrap();
        assert_eq!(found.locations[0].function.as_deref(), Some(name));
        assert_eq!(found.start, at(name));
    }
}

/// The running kernel: one name out of each thousand of its own table.
#[test]
fn running_kernel() {
    let text = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let kernel = KernelSymbols::parse(&text);
    let source = ModuleSource::Kernel(&kernel);
    if kernel.is_restricted() {
        eprintln!("SKIPPED running_kernel: /proc/kallsyms is hidden from this user");
        let answer = symbolize(&source, &[RelativeAddress(0xffff_ffff_8100_0000)]);
        assert_eq!(answer.results[0].as_ref().unwrap_err().reason, Unsymbolized::KernelRestricted);
        return;
    }
    let listed: Vec<(u64, &str)> = text
        .lines()
        .filter_map(|line| {
            let [address, "t" | "T" | "w" | "W", name, ..] = line.split_whitespace().collect::<Vec<_>>()[..]
            else {
                return None;
            };
            Some((programs::hex(address), name))
        })
        .filter(|(address, _)| *address != 0)
        .collect();
    assert_eq!(kernel.skipped_lines(), 0);
    for &(address, _) in listed.iter().step_by(1000) {
        let answer = symbolize(&source, &[RelativeAddress(address)]);
        let found = answer.results[0].as_ref().unwrap();
        let name = found.locations[0].function.as_deref().unwrap();
        assert!(listed.iter().any(|(at, listed)| *at == address && uhr_symbolize::demangle(listed) == name));
    }
}

/// Runs a program that writes a perf map and gives the map's text.
fn perf_map_of(program: &Path, arguments: &[&str], script: &Path) -> Option<Vec<u8>> {
    let mut command = Command::new(program);
    // Node leaves a log in its working folder.
    command.args(arguments).arg(script).current_dir(script.parent().unwrap());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let map = format!("/tmp/perf-{}.map", child.id());
    let succeeded = child.wait().unwrap().success();
    let text = fs::read(&map).ok();
    let _ = fs::remove_file(&map);
    text.filter(|_| succeeded)
}

fn address_of_line(text: &[u8], end: &str) -> RelativeAddress {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().rev().find(|line| line.ends_with(end)).unwrap_or_else(|| panic!("no {end}"));
    RelativeAddress(programs::hex(line.split(' ').next().unwrap()))
}

#[test]
fn cpython() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("work.py");
    fs::write(&script, "class A:\n  def m(self):\n    return sum(x for x in range(9))\nA().m()\n").unwrap();
    let pythons = ["python3.14", "python3.13", "python3.12", "python3"].map(PathBuf::from).into_iter();
    let home = std::env::var("HOME").unwrap_or_default();
    let pyenv = fs::read_dir(Path::new(&home).join(".pyenv/versions")).into_iter().flatten().flatten();
    let mut pythons = pythons.chain(pyenv.map(|version| version.path().join("bin/python")));
    let Some(text) = pythons.find_map(|python| perf_map_of(&python, &["-X", "perf"], &script)) else {
        eprintln!("SKIPPED cpython: no CPython of 3.12 or later that writes perf maps");
        return;
    };
    let map = PerfMap::parse(&text);
    assert_eq!(map.skipped_lines(), 0);
    let file = script.to_str().unwrap();
    for function in ["A.m", "A.m.<locals>.<genexpr>", "<module>"] {
        let at = address_of_line(&text, &format!(" py::{function}:{file}"));
        let answer = symbolize(&ModuleSource::PerfMap(&map), &[RelativeAddress(at.0 + 1)]);
        let found = answer.results[0].as_ref().unwrap();
        let location = Location { function: Some(function.into()), file: Some(file.into()), line: None };
        assert_eq!((found.start, found.mode), (at, Some(FrameMode::Interpreter)));
        assert_eq!(found.locations, [location]);
    }
}

#[test]
fn node() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("work.js");
    let source = "\nclass A { get size() {\n  return 1 } }\nfunction fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2) }\n\
        fib(27); for (let i = 0, a = new A(); i < 1e6; i++) a.size;";
    fs::write(&script, source).unwrap();
    let Some(text) = perf_map_of(Path::new("node"), &["--perf-basic-prof"], &script) else {
        eprintln!("SKIPPED node: not installed");
        return;
    };
    let map = PerfMap::parse(&text);
    let file = script.to_str().unwrap();
    let at = address_of_line(&text, &format!("JS:*fib {file}:4:13"));
    let answer = symbolize(&ModuleSource::PerfMap(&map), &[at]);
    let found = answer.results[0].as_ref().unwrap();
    let location = Location { function: Some("fib".into()), file: Some(file.into()), line: Some(4) };
    assert_eq!((found.locations.as_slice(), found.mode), (&[location][..], None));
}
