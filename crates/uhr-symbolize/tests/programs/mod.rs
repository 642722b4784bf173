//! Programs that tests compile, and what binutils say about them.

#![allow(clippy::unwrap_used, reason = "a test's own helpers may fail the test")]
#![allow(clippy::print_stderr, reason = "a test says what it skips")]
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::process::Command;

use uhr_model::RelativeAddress;
use uhr_symbolize::{ElfSource, Location, ModuleSource, ModuleSymbols, Symbolized, Unnamed, symbolize};

/// Runs a tool and gives its output; the test fails if the tool does.
pub(crate) fn run(tool: &str, arguments: &[&str]) -> String {
    let output =
        Command::new(tool).args(arguments).output().unwrap_or_else(|error| panic!("{tool}: {error}"));
    assert!(output.status.success(), "{tool} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether a tool is there. A test that lacks it says so.
pub(crate) fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED what needs {tool}: it is not installed");
    }
    found
}

/// Compiles `source` (its file name decides the language) in `folder` and gives the program's path.
pub(crate) fn compile(folder: &Path, file: &str, source: &str, flags: &[&str]) -> PathBuf {
    std::fs::write(folder.join(file), source).unwrap();
    let program = folder.join(format!("{file}.out"));
    let compiler = if file.ends_with(".cpp") { "g++" } else { "gcc" };
    let mut arguments = vec![folder.join(file).to_str().unwrap().to_owned()];
    arguments.extend(["-o".to_owned(), program.to_str().unwrap().to_owned()]);
    arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
    run(compiler, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    program
}

/// The lowest address of the loadable segments, as readelf prints it.
pub(crate) fn image_base(program: &Path) -> u64 {
    let headers = run("readelf", &["-lW", program.to_str().unwrap()]);
    let loads = headers.lines().filter(|line| line.trim_start().starts_with("LOAD"));
    let address = |line: &str| hex(line.split_whitespace().nth(2).unwrap().trim_start_matches("0x"));
    loads.map(address).min().unwrap()
}

/// Address, size and name of each function, as nm prints them.
pub(crate) fn functions(program: &Path) -> Vec<(u64, u64, String)> {
    let listed = run("nm", &["-S", "--defined-only", program.to_str().unwrap()]);
    let function = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [start, size, kind, name] = words[..] else { return None };
        let name = name.split('@').next().unwrap();
        "tTwWi".contains(kind).then(|| (hex(start), hex(size), name.to_owned()))
    };
    listed.lines().filter_map(function).collect()
}

/// The stated address of one symbol.
pub(crate) fn address_of(program: &Path, name: &str) -> u64 {
    let listed = run("nm", &[program.to_str().unwrap()]);
    let line = listed.lines().find(|line| line.split_whitespace().last() == Some(name));
    hex(line.unwrap_or_else(|| panic!("no symbol {name}")).split_whitespace().next().unwrap())
}

pub(crate) fn hex(digits: &str) -> u64 {
    u64::from_str_radix(digits, 16).unwrap()
}

pub(crate) fn elf(program: &Path) -> ElfSource<'_> {
    ElfSource { open: program, path: program, build_id: None, root: None, elsewhere: None }
}

/// Looks up stated addresses.
pub(crate) fn look_up(source: ElfSource<'_>, base: u64, stated: &[u64]) -> ModuleSymbols {
    let relative: Vec<_> = stated.iter().map(|at| RelativeAddress(at - base)).collect();
    symbolize(&ModuleSource::Elf(source), &relative)
}

/// The name of the physical function, or the reason in words.
pub(crate) fn name(result: &Result<Symbolized, Unnamed>) -> &str {
    match result {
        Ok(found) => found.locations.last().and_then(|place| place.function.as_deref()).unwrap_or("?"),
        Err(unnamed) => unnamed.reason.name(),
    }
}

/// Asks addr2line for whole inline chains: function, file and line, innermost first.
pub(crate) fn oracle(program: &Path, stated: &[u64]) -> Vec<Vec<(String, String, u32)>> {
    oracle_of("addr2line", program, stated)
}

/// Asks `tool`, which takes addr2line's arguments, for whole inline chains: function, file and line, innermost first.
pub(crate) fn oracle_of(tool: &str, program: &Path, stated: &[u64]) -> Vec<Vec<(String, String, u32)>> {
    let addresses: Vec<String> = stated.iter().map(|at| format!("{at:#x}")).collect();
    let mut arguments = vec!["-a", "-f", "-i", "-C", "-e", program.to_str().unwrap()];
    arguments.extend(addresses.iter().map(String::as_str));
    let mut chains: Vec<Vec<(String, String, u32)>> = Vec::new();
    let text = run(tool, &arguments);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            chains.push(Vec::new());
            continue;
        }
        let place = lines.next().unwrap().split(" (disc").next().unwrap();
        let (file, number) = place.rsplit_once(':').unwrap();
        chains.last_mut().unwrap().push((line.to_owned(), file.to_owned(), number.parse().unwrap_or(0)));
    }
    chains
}

/// The file without its folder.
pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

/// File and line of each place, without the folder.
pub(crate) fn shape(locations: &[Location]) -> Vec<(String, u32)> {
    let file = |place: &Location| base_name(place.file.as_deref().unwrap_or("??")).to_owned();
    locations.iter().map(|place| (file(place), place.line.unwrap_or(0))).collect()
}
