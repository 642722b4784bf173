//! eBPF programs that burn in a known line: their names are those of `/proc/kallsyms`, their code is what the kernel gives to
//! another library, and their lines are those that `bpftool` shows.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};
use libbpf_rs::{Object, ObjectBuilder, Program, ProgramInput};
use serde_json::Value;
use uhr_recording::Recording;

use crate::annotate::{address, disassembled, mnemonic, share};
use crate::harness::{
    Place, Recorded, Running, Who, ask, built, find, has, has_ebpf, line_of, rows, source, wait_until,
};

const SOURCE: &str = "kernel_burn.bpf.c";
const SAMPLERS: [&str; 2] = ["perf", "ebpf"];

/// Compiles a copy of the program under this name, and takes its source away.
fn compiled(place: &Place, name: &str) -> PathBuf {
    let (copy, object) = (place.path(&format!("{name}.c")), place.path(&format!("{name}.o")));
    std::fs::copy(source(SOURCE), &copy).unwrap();
    let mut clang = Command::new(std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned()));
    clang.args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-c", "-o"]).arg(&object).arg(&copy);
    built(clang.arg(format!("-DNAME={name}")));
    std::fs::remove_file(copy).unwrap();
    object
}

/// A program in the kernel, as long as this lives.
struct Loaded {
    object: Object,
    id: u32,
}

impl Loaded {
    fn new(object: &Path) -> Self {
        let object = ObjectBuilder::default().open_file(object).unwrap().load().unwrap();
        let program = object.progs().next().unwrap();
        let id = Program::id_from_fd(program.as_fd()).unwrap();
        Self { object, id }
    }

    /// Lets it run in this thread, some 50 ms at a time.
    fn run_while(&mut self, mut goes_on: impl FnMut() -> bool) {
        let program = self.object.progs_mut().next().unwrap();
        while goes_on() {
            let packet = [0; 64];
            let input = ProgramInput { data_in: Some(&packet), repeat: 5_000, ..ProgramInput::default() };
            program.test_run(input).unwrap();
        }
    }

    fn run_times(&mut self, times: u32) {
        let mut turns = 0..times;
        self.run_while(|| turns.next().is_some());
    }

    /// What another library reads of it.
    fn as_told(&self) -> ProgramInfo {
        let mut all = ProgInfoIter::with_query_opts(ProgInfoQueryOptions::default().include_all());
        all.find(|program| program.id == self.id).unwrap()
    }

    /// The address and the kernel's name of its function `divides`.
    fn divides(&self) -> (u64, String) {
        let start = self.as_told().jited_ksyms[1] as u64;
        let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
        let prefix = format!("{start:016x} t ");
        let line = symbols.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap();
        let name = line.split('\t').next().unwrap().to_owned();
        assert!(name.starts_with("bpf_prog_") && name.ends_with("_divides"), "{name}");
        (start, name)
    }
}

/// Records this very process, or all.
fn recording(place: &Place, rec: &str, sampler: &str, target: &str) -> Running {
    let pid = std::process::id().to_string();
    let target = if target == "machine" { &["-a"][..] } else { &["--pid", &pid] };
    let running = place.start(Who::Us, rec, &[&["--sampler", sampler], target].concat(), &[]);
    wait_until("it records", || running.rec.join("manifest.json").exists());
    running
}

fn ended(running: Running) -> Recorded {
    running.signal("INT");
    let recorded = running.end();
    assert_eq!(recorded.code(), 0, "{}", recorded.stderr);
    recorded
}

#[test]
fn a_program_has_the_kernels_name_its_lines_and_their_text() {
    if !has_ebpf() {
        return;
    }
    let place = Place::new();
    let object = compiled(&place, "burn");
    for sampler in SAMPLERS {
        let mut program = Loaded::new(&object);
        let running = recording(&place, sampler, sampler, "pid");
        program.run_times(20);
        let recorded = ended(running);
        let (_, name) = program.divides();
        // Whoever asks later has neither the program nor its source.
        drop(program);
        let functions = recorded.ask("query --group-by function --limit 100");
        let row = find(&functions, "function", &name).unwrap_or_else(|| panic!("{name}: {functions:#}"));
        assert_eq!(row["key"]["module"], "[bpf]");
        assert!(share(row, "self_share") > 0.7, "{sampler}: {functions:#}");
        let costly = line_of(SOURCE, "costly");
        let lines = recorded.ask(&format!("query --group-by line --function {name}"));
        assert_eq!(rows(&lines)[0]["key"]["line"], costly, "{sampler}: {lines:#}");
        assert!(rows(&lines)[0]["key"]["file"].as_str().unwrap().ends_with("/burn.c"), "{lines:#}");
        let annotated = recorded.ask(&format!("annotate --function {name}"));
        let row = rows(&annotated).iter().find(|row| row["line"] == costly).unwrap();
        assert!(share(row, "self_share") > 0.7, "{sampler}: {annotated:#}");
        assert!(row["text"].as_str().unwrap().ends_with("// LINE costly"), "{annotated:#}");
        let call = recorded.ask("annotate --function _burn");
        let row = rows(&call).iter().find(|row| row["line"] == line_of(SOURCE, "call")).unwrap();
        assert!(share(row, "total_share") > 0.9, "{call:#}");
    }
}

#[test]
fn instructions_of_a_program_are_the_kernels_own() {
    if !has_ebpf() || !has("objdump") {
        return;
    }
    let place = Place::new();
    let mut program = Loaded::new(&compiled(&place, "burn"));
    for sampler in SAMPLERS {
        let running = recording(&place, sampler, sampler, "pid");
        program.run_times(15);
        let recorded = ended(running);
        let (start, name) = program.divides();
        let told = program.as_told();
        let code = &told.jited_prog_insns[told.jited_func_lens[0] as usize..];
        let answer = recorded.ask(&format!("annotate --function {name} --asm --detail full"));
        let instructions = rows(&answer);
        assert_eq!(address(&instructions[0]), start);
        assert_eq!(instructions.iter().flat_map(bytes).collect::<Vec<u8>>(), code, "{sampler}");
        // Another disassembler sees the same.
        let expected = objdump(&place, code, start);
        let seen: Vec<(u64, String)> = instructions
            .iter()
            .map(|row| (address(row), mnemonic(row["text"].as_str().unwrap()).to_owned()))
            .collect();
        assert_eq!(seen, expected);
        // What a division holds up is the instruction behind it.
        let behind = expected.iter().position(|(_, text)| text == "div").unwrap() + 1;
        let of_division: f64 =
            instructions[behind - 1..=behind].iter().map(|row| share(row, "self_share")).sum();
        assert!(of_division > 0.5, "{answer:#}");
        let by_instruction = recorded.ask(&format!("query --group-by instruction --function {name}"));
        let most = &rows(&by_instruction)[0]["key"];
        assert_eq!(address(most), expected[behind].0, "{by_instruction:#}");
        assert_eq!(mnemonic(most["instruction"].as_str().unwrap()), expected[behind].1);
        let by_address = recorded.ask(&format!("query --group-by address --function {name}"));
        assert_eq!(rows(&by_address)[0]["key"]["address"], most["address"], "{by_address:#}");
    }
}

#[test]
fn lines_of_a_program_are_those_of_bpftool() {
    if !has_ebpf() || !has("bpftool") {
        return;
    }
    let place = Place::new();
    let mut program = Loaded::new(&compiled(&place, "burn"));
    let running = recording(&place, "rec", "perf", "pid");
    program.run_times(10);
    let recorded = ended(running);
    let (_, name) = program.divides();
    let dump = Command::new("bpftool")
        .args(["prog", "dump", "xlated", "id", &program.id.to_string(), "linum"])
        .output()
        .unwrap();
    let dump = String::from_utf8(dump.stdout).unwrap();
    let (_, divides) = dump.split_once("divides(u64 x, u64 y):\n").unwrap_or_else(|| panic!("{dump}"));
    let mut expected: Vec<(String, u64)> = divides.lines().filter_map(line_of_bpftool).collect();
    expected.dedup();
    let answer = recorded.ask(&format!("annotate --function {name} --asm --detail full"));
    let mut seen: Vec<(String, u64)> = Vec::new();
    for row in rows(&answer) {
        assert!(row["file"].as_str().unwrap().ends_with("/burn.c"), "{row}");
        let line = row["line"].as_u64().unwrap();
        if let Some(text) = row["source"].as_str() {
            seen.push((text.trim().to_owned(), line));
        }
        assert_eq!(seen.last().unwrap().1, line, "{answer:#}");
    }
    assert!(expected.len() > 4, "{dump}");
    assert_eq!(seen, expected, "{dump}\n{answer:#}");
}

/// Two programs have their turns at one address: each keeps its own samples.
#[test]
fn programs_that_come_and_go_keep_their_names() {
    if !has_ebpf() {
        return;
    }
    let place = Place::new();
    let objects = ["burn", "glow"].map(|name| compiled(&place, name));
    for (sampler, target) in [("perf", "pid"), ("ebpf", "machine")] {
        let rec = format!("{sampler}-{target}");
        let running = recording(&place, &rec, sampler, target);
        let mut starts = Vec::new();
        for object in [&objects[0], &objects[1], &objects[0]] {
            let mut program = Loaded::new(object);
            program.run_times(6);
            starts.push(program.as_told().jited_ksyms[0] as u64);
            drop(program);
            // The kernel frees it after a grace period.
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        let recorded = ended(running);
        let process = format!("--process {}", std::process::id());
        let functions = recorded.ask(&format!("query --group-by function --limit 100 {process}"));
        let total = |name: &str| {
            let is_it = |row: &&Value| {
                let function = row["key"]["function"].as_str().unwrap_or_default();
                function.starts_with("bpf_prog_") && function.ends_with(name)
            };
            rows(&functions).iter().filter(is_it).map(|row| row["total"].as_f64().unwrap()).sum::<f64>()
        };
        let (burn, glow) = (total("_burn"), total("_glow"));
        assert!(
            glow > 0.0 && (1.5..2.6).contains(&(burn / glow)),
            "{rec}: two turns of {burn} and one of {glow}, at {starts:x?}: {functions:#}"
        );
    }
}

/// What was read of a program is on disk before the recording ends.
#[test]
fn a_killed_recorder_leaves_the_names_and_lines_of_programs() {
    if !has_ebpf() {
        return;
    }
    let place = Place::new();
    let mut program = Loaded::new(&compiled(&place, "burn"));
    let mut running = recording(&place, "rec", "ebpf", "pid");
    // A second's rows are written at a time.
    let began = std::time::Instant::now();
    program.run_while(|| began.elapsed() < std::time::Duration::from_secs(3));
    running.kill();
    let (_, name) = program.divides();
    drop(program);
    let (code, lines) = ask(&running.rec, &format!("query --group-by line --function {name}"));
    assert_eq!((code, &lines["recording"]["state"]), (0, &"recovered".into()), "{lines:#}");
    assert_eq!(rows(&lines)[0]["key"]["line"], line_of(SOURCE, "costly"), "{lines:#}");
    let (_, annotated) = ask(&running.rec, &format!("annotate --function {name} --asm"));
    let costly = rows(&annotated).iter().find(|row| share(row, "self_share") > 0.3).unwrap();
    assert!(costly["bytes"].is_string(), "{annotated:#}");
    let (_, annotated) = ask(&running.rec, &format!("annotate --function {name}"));
    let texts = rows(&annotated).iter().filter_map(|row| row["text"].as_str());
    assert!(texts.into_iter().any(|text| text.ends_with("// LINE costly")), "{annotated:#}");
}

/// Without CAP_SYS_ADMIN nobody may ask for programs. The kernel's records still tell of those that are new.
#[test]
fn without_the_right_programs_have_names_and_a_reason_for_the_rest() {
    if !has_ebpf() || !has("setpriv") {
        return;
    }
    let place = Place::new();
    let (rec, pid) = (place.path("rec"), std::process::id().to_string());
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-sys_admin", "--", env!("CARGO_BIN_EXE_uhr"), "record", "--pid", &pid]);
    command.args(["--sampler", "ebpf", "-o"]).arg(&rec);
    let running = Running::program(&place, "uhr", &mut command);
    wait_until("it records", || rec.join("manifest.json").exists());
    let mut program = Loaded::new(&compiled(&place, "burn"));
    program.run_times(15);
    let (_, name) = program.divides();
    let recorded = Recorded { rec, ..ended(running) };
    let functions = recorded.ask("query --group-by function --limit 100");
    let row = find(&functions, "function", &name).unwrap_or_else(|| panic!("{name}: {functions:#}"));
    assert_eq!(row["key"]["module"], "[bpf]");
    let answer = recorded.ask(&format!("annotate --function {name} --asm"));
    assert!(rows(&answer).iter().all(|row| row["bytes"].is_null()), "{answer:#}");
    assert!(answer["coverage"]["notes"].to_string().contains("CAP_SYS_ADMIN"), "{answer:#}");
    let misses = Recording::open(&recorded.rec).unwrap().manifest.ledger.misses;
    assert!(misses.iter().any(|(what, &count)| what.contains("CAP_SYS_ADMIN") && count > 0), "{misses:?}");
}

fn bytes(row: &Value) -> Vec<u8> {
    let text = row["bytes"].as_str().unwrap();
    text.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

/// `; y += x; [file:/tmp/burn.c line_num:20 line_col:21]`
fn line_of_bpftool(line: &str) -> Option<(String, u64)> {
    let (text, place) = line.strip_prefix("; ")?.rsplit_once(" [file:")?;
    let number = place.split_once("line_num:")?.1.split(' ').next()?;
    Some((text.trim().to_owned(), number.parse().ok()?))
}

/// The mnemonics of code that runs at an address.
fn objdump(place: &Place, code: &[u8], start: u64) -> Vec<(u64, String)> {
    let file = place.path("code");
    std::fs::write(&file, code).unwrap();
    let mut objdump = Command::new("objdump");
    objdump.args(["-D", "-b", "binary", "-m", "i386:x86-64", "-M", "intel", "-w"]);
    disassembled(objdump.arg(format!("--adjust-vma={start:#x}")).arg(&file))
}
