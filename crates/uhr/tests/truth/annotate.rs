//! Down to the instruction: a program whose time is in known divisions, held against `objdump`; without its file, without
//! its symbols, and as an ordinary user.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Place, Recorded, Who, ask, built, find, has, line_of, row, rows};

/// Records the planted divisions, and takes their program away.
fn divisions(place: &Place, who: Who, flags: &[&str]) -> Option<(Recorded, BTreeMap<u64, String>)> {
    let program = place.c("divides.c", flags);
    let instructions = objdump(&program);
    let recorded = place.record(who, "rec", &[], &[&program, &"1.2"]).or_skip()?;
    std::fs::remove_file(program).unwrap();
    Some((recorded, instructions))
}

/// The mnemonics of all of a program's instructions, by address.
fn objdump(program: &Path) -> BTreeMap<u64, String> {
    disassembled(Command::new("objdump").args(["-d", "-M", "intel", "-w"]).arg(program)).into_iter().collect()
}

/// The address and mnemonic of each instruction that objdump shows.
pub(crate) fn disassembled(objdump: &mut Command) -> Vec<(u64, String)> {
    let text = String::from_utf8(objdump.output().unwrap().stdout).unwrap();
    let instruction = |line: &str| {
        let (address, rest) = line.trim_start().split_once(":\t")?;
        let text = rest.split_once('\t')?.1;
        Some((u64::from_str_radix(address, 16).ok()?, mnemonic(text).to_owned()))
    };
    text.lines().filter_map(instruction).collect()
}

/// The first word that is no prefix: compilers pad with `cs nop`. binutils alone calls a move of eight bytes `movabs`.
pub(crate) fn mnemonic(text: &str) -> &str {
    let is_prefix = |word: &&str| ["cs", "data16", "notrack", "bnd"].contains(word);
    let word = text.split_whitespace().find(|word| !is_prefix(word)).unwrap_or_default();
    if word == "movabs" { "mov" } else { word }
}

pub(crate) fn address(row: &Value) -> u64 {
    u64::from_str_radix(row["address"].as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

pub(crate) fn share(row: &Value, which: &str) -> f64 {
    row[which].as_f64().unwrap_or(0.0)
}

#[test]
fn the_costly_line_is_found_with_its_text() {
    let place = Place::new();
    let Some((recorded, _)) = divisions(&place, Who::Us, &[]) else { return };
    let answer = recorded.ask("annotate --function divides");
    assert_eq!(answer["request"]["view"], "lines");
    let of = |name| {
        let number = line_of("divides.c", name);
        rows(&answer).iter().find(|row| row["line"] == number)
    };
    let costly = of("costly").unwrap();
    assert!(share(costly, "self_share") > 0.75, "{answer:#}");
    assert!(costly["text"].as_str().unwrap().ends_with("// LINE costly"), "{costly}");
    assert!(of("cheap").is_none_or(|row| share(row, "self_share") < 0.1), "{answer:#}");
    // What is inlined is another function's line.
    assert!(of("inlined").is_none(), "{answer:#}");
    let inlined = recorded.ask("annotate --function mixed_in");
    let lines = [line_of("divides.c", "inlined"), line_of("divides.c", "inlined") + 1];
    let is_its_own = |row: &Value| lines.iter().any(|line| row["line"] == *line);
    assert!(!rows(&inlined).is_empty() && rows(&inlined).iter().all(is_its_own), "{inlined:#}");
    assert_eq!(answer["sources"][0]["absent"], Value::Null, "{answer:#}");
}

#[test]
fn instructions_are_those_of_objdump_without_the_program() {
    if !has("objdump") {
        return;
    }
    let place = Place::new();
    for who in [Who::Us, Who::Ordinary] {
        let place = if who == Who::Us { &place } else { &Place::new() };
        let Some((recorded, instructions)) = divisions(place, who, &[]) else { return };
        let answer = recorded.ask("annotate --function divides --asm --detail full");
        // All of the function, and nothing else.
        let own: Vec<u64> = rows(&answer).iter().map(address).collect();
        let expected: Vec<u64> = instructions.range(own[0]..=own[own.len() - 1]).map(|one| *one.0).collect();
        assert_eq!(own, expected);
        assert!(own.len() > 20, "{answer:#}");
        for row in rows(&answer) {
            let (text, expected) = (row["text"].as_str().unwrap(), &instructions[&address(row)]);
            assert_eq!(mnemonic(text), expected, "{row}");
        }
        // A division holds up the instruction behind it: the sample falls on one of the two.
        let mut of_divisions = 0.0;
        for row in rows(&answer) {
            let before = instructions.range(..address(row)).next_back().unwrap();
            if mnemonic(row["text"].as_str().unwrap()) == "div" || before.1 == "div" {
                of_divisions += share(row, "self_share");
            }
        }
        assert!(of_divisions > 0.7, "{of_divisions} of {answer:#}");
        // The loop leads back into the function, and what it leads to is marked.
        let jumps = rows(&answer).iter().filter_map(|row| row["jump"].as_str()).collect::<Vec<_>>();
        assert!(!jumps.is_empty(), "{answer:#}");
        for row in rows(&answer).iter().filter(|row| jumps.contains(&row["address"].as_str().unwrap())) {
            assert_eq!(row["is_target"], true, "{row}");
        }
        assert!(rows(&answer).iter().any(|row| row["inlined_from"] == "mixed_in"), "{answer:#}");
        let notes = answer["coverage"]["notes"].to_string();
        assert!(notes.contains("skid"), "{notes}");
    }
}

#[test]
fn a_call_has_what_it_calls() {
    let place = Place::new();
    let Some((recorded, instructions)) = divisions(&place, Who::Us, &[]) else { return };
    let answer = recorded.ask("annotate --function main --asm");
    let call =
        rows(&answer).iter().max_by(|a, b| share(a, "total_share").total_cmp(&share(b, "total_share")));
    let call = call.unwrap();
    assert!(share(call, "total_share") > 0.9 && share(call, "self_share") < 0.05, "{call}");
    assert_eq!(instructions[&address(call)], "call", "{call}");
    assert_eq!(call["line"], line_of("divides.c", "call"), "{call}");
}

/// A function of the kernel calls another: at the address that the kernel says it has, or the answer says why that is not seen.
#[test]
fn instructions_of_the_kernel_or_the_reason_why_there_are_none() {
    let place = Place::new();
    let names = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let callee = names.lines().find_map(|line| line.strip_suffix(" T vfs_read"));
    let Some(callee) = callee.filter(|address| !address.trim_matches('0').is_empty()) else {
        eprintln!("SKIPPED: this user does not see the kernel's names");
        return;
    };
    let command: [&dyn AsRef<std::ffi::OsStr>; 5] =
        [&"dd", &"if=/dev/zero", &"of=/dev/null", &"bs=64k", &"count=100000"];
    let Some(recorded) = place.record(Who::Us, "rec", &[], &command).or_skip() else { return };
    let answer = recorded.ask("annotate --function ksys_read --asm");
    let costly =
        rows(&answer).iter().max_by(|a, b| share(a, "total_share").total_cmp(&share(b, "total_share")));
    let costly = costly.unwrap();
    let notes = answer["coverage"]["notes"].to_string();
    let is_readable =
        std::fs::File::open("/proc/kcore").is_ok_and(|mut kcore| kcore.read_exact(&mut [0; 64]).is_ok());
    if is_readable {
        assert_eq!(costly["text"], format!("call 0x{callee}"), "{answer:#}");
        assert!(!notes.contains("kcore"), "{notes}");
    } else {
        assert!(costly["bytes"].is_null() && notes.contains("/proc/kcore"), "{answer:#}");
    }
}

#[test]
fn a_stripped_function_has_instructions_and_no_lines() {
    let place = Place::new();
    let Some((recorded, instructions)) = divisions(&place, Who::Us, &["-s"]) else { return };
    let functions = recorded.ask("query --group-by function");
    let name = rows(&functions)[0]["key"]["function"].as_str().unwrap().to_owned();
    assert!(name.starts_with("divides+0x"), "{functions:#}");
    let lines = recorded.ask(&format!("annotate --function {name}"));
    assert_eq!(rows(&lines)[0]["line"], Value::Null, "{lines:#}");
    assert!(lines["coverage"]["notes"].to_string().contains("no debug information"), "{lines:#}");
    let answer = recorded.ask(&format!("annotate --function {name} --asm"));
    for row in rows(&answer) {
        assert_eq!(mnemonic(row["text"].as_str().unwrap()), instructions[&address(row)], "{row}");
    }
}

#[test]
fn groups_by_line_address_and_instruction() {
    let place = Place::new();
    let Some((recorded, instructions)) = divisions(&place, Who::Us, &[]) else { return };
    let lines = recorded.ask("query --group-by line --function divides");
    let first = &rows(&lines)[0]["key"];
    assert_eq!(first["line"], line_of("divides.c", "costly"), "{lines:#}");
    assert!(first["file"].as_str().unwrap().ends_with("divides.c"), "{lines:#}");
    let addresses = recorded.ask("query --group-by address --function divides");
    let found = recorded.ask("query --group-by instruction --function divides");
    assert_eq!(addresses["metric"], found["metric"]);
    let of_program = |found: &&Value| found["key"]["module"] == "divides";
    assert!(rows(&found).iter().filter(of_program).count() > 2, "{found:#}");
    for found in rows(&found).iter().filter(of_program) {
        let key = &found["key"];
        assert_eq!(mnemonic(key["instruction"].as_str().unwrap()), instructions[&address(key)], "{found}");
        let same = row(&addresses, "address", key["address"].as_str().unwrap());
        assert_eq!(same["self"], found["self"]);
    }
    // A function and its instructions are two halves of one key.
    let both = recorded.ask("query --group-by function,instruction");
    assert!(find(&both, "function", "divides").is_some(), "{both:#}");
}

#[test]
fn source_that_changed_is_not_shown() {
    let place = Place::new();
    let copy = place.path("copy.c");
    std::fs::copy(crate::harness::source("divides.c"), &copy).unwrap();
    let program = place.path("copied");
    built(Command::new("gcc").args(["-O2", "-g", "-o"]).arg(&program).arg(&copy));
    let Some(recorded) = place.record(Who::Us, "rec", &[], &[&program, &"0.5"]).or_skip() else { return };
    let absent = |answer: &Value| answer["sources"][0]["absent"].as_str().map(str::to_owned);
    let lines = |answer: &Value| rows(answer).iter().map(|row| row["line"].clone()).collect::<Vec<_>>();
    let whole = recorded.ask("annotate --function divides");
    assert_eq!(absent(&whole), None);
    std::fs::write(&copy, "// another\n").unwrap();
    let changed = recorded.ask("annotate --function divides");
    assert!(absent(&changed).unwrap().contains("changed after"), "{changed:#}");
    assert_eq!(lines(&changed), lines(&whole));
    let past = std::time::SystemTime::now() - std::time::Duration::from_secs(3_600);
    std::fs::File::options().write(true).open(&copy).unwrap().set_modified(past).unwrap();
    let shorter = recorded.ask("annotate --function divides");
    assert!(absent(&shorter).unwrap().contains("fewer lines"), "{shorter:#}");
    assert!(rows(&shorter).iter().all(|row| row["text"].is_null()), "{shorter:#}");
    std::fs::remove_file(&copy).unwrap();
    let (code, gone) = ask(&recorded.rec, "annotate --function divides --asm");
    assert_eq!(code, 0);
    assert!(absent(&gone).unwrap().contains("not on this machine"), "{gone:#}");
}

#[test]
fn generated_code_comes_from_a_jitdump() {
    if !has("node") {
        return;
    }
    let place = Place::new();
    let script = place.path("hot.js");
    let text = "function hot(n) { let x = 1; for (let i = 0; i < n; i++) x = (x * 31 + i) % 1000003; return x; }
        let sum = 0; const end = Date.now() + 1500; while (Date.now() < end) sum += hot(100000); console.log(sum);";
    std::fs::write(&script, text).unwrap();
    let Some(recorded) = place.record(Who::Us, "rec", &[], &[&"node", &"--perf-prof", &script]).or_skip()
    else {
        return;
    };
    let answer = recorded.ask("annotate --function hot --asm --detail full");
    assert_eq!(answer["function"]["key"]["module"], "[jit]", "{answer:#}");
    // What the function multiplies by and divides by stands in its code.
    let has = |words: &[&str]| {
        rows(&answer)
            .iter()
            .filter_map(|row| row["text"].as_str())
            .any(|text| words.iter().all(|word| text.contains(word)))
    };
    assert!(has(&["imul", "0x1f"]) && has(&["0xf4243"]), "{answer:#}");
    // Without the dump there would be addresses alone, and a note.
    let Some(mapped) = place.record(Who::Us, "map", &[], &[&"node", &"--perf-basic-prof", &script]).or_skip()
    else {
        return;
    };
    let answer = mapped.ask("annotate --function hot --asm");
    assert!(rows(&answer).iter().all(|row| row["text"].is_null()), "{answer:#}");
    assert!(answer["coverage"]["notes"].to_string().contains("jitdump"), "{answer:#}");
}
