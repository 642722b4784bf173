//! A small recording made by hand, with known shares: 1,000 moments of two threads in 10 s.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use uhr_model::{FrameMode, ModuleKind, NoCode, Region, StackEnding, Unsymbolized, WaitKind};
use uhr_recording::tables::{
    CodeLineRow, FaultRow, FrameRow, LocationRow, MachineCodeRow, ModuleRow, OffCpuRow, ProcessRow,
    ResidentRow, SampleRow, StackRow, ThreadRow,
};
use uhr_recording::{
    Clock, Finalized, Host, Manifest, Recording, RecordingWriter, SampleLedger, Settings, State, Window,
    finalize,
};

/// 2026-11-06T12:34:56.123Z, as nanoseconds since 1970.
const REALTIME_NS: u64 = 1_793_968_496_123_000_000;
const START_NS: u64 = 5_000_000_000;
const SECOND: u64 = 1_000_000_000;

/// A function, its module, and its file and line.
type Frame = (&'static str, u32, Option<(&'static str, u32)>);

/// The frames with a name, in the order of their ids.
const FRAMES: &[Frame] = &[
    ("main", 0, Some(("/src/main.c", 40))),
    ("parse_json", 0, Some(("/src/parse.c", 12))),
    ("lex", 0, Some(("/src/parse.c", 90))),
    ("malloc", 1, None),
    ("worker_loop", 0, Some(("/src/worker.c", 7))),
    ("pthread_cond_wait", 1, None),
];

/// Stacks by id: parent and frame. 2 = main parse_json, 3 = main parse_json lex, 4 = main parse_json malloc,
/// 5 = worker_loop, 6 = worker_loop pthread_cond_wait, 7 = an unnamed frame below main.
const STACKS: &[(Option<u32>, Option<u32>)] = &[
    (None, None),
    (Some(0), Some(0)),
    (Some(1), Some(1)),
    (Some(2), Some(2)),
    (Some(2), Some(3)),
    (Some(0), Some(4)),
    (Some(5), Some(5)),
    (Some(1), Some(6)),
];

/// A folder with a recording in it.
pub struct Fixture {
    folder: TempDir,
}

impl Fixture {
    /// The recording `rec` of a program with ordinary names.
    pub fn new() -> Self {
        Self::with_name_of("lex", "lex")
    }

    /// The same, with the function `function` called `name` instead.
    pub fn with_name_of(function: &str, name: &str) -> Self {
        let fixture = Self { folder: tempfile::tempdir().unwrap() };
        write(&fixture.path("rec"), &|known| {
            if known == function { name.to_owned() } else { known.to_owned() }
        });
        fixture
    }

    /// A recording whose names were never looked up, as a killed recorder leaves it.
    pub fn unfinished() -> Self {
        let fixture = Self::empty();
        capture(&fixture.path("rec"));
        fixture
    }

    /// The recording `rec` of a server that waits, by the eBPF sampler.
    pub fn of_waits() -> Self {
        let fixture = Self::empty();
        crate::waits_fixture::write(&fixture.path("rec"));
        fixture
    }

    /// An empty folder.
    pub fn empty() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Another recording beside `rec`, which began later.
    pub fn add_later(&self, name: &str) {
        write(&self.path(name), &str::to_owned);
        let path = self.path(name).join("manifest.json");
        let mut manifest: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        manifest["clock"]["realtime_ns"] = (REALTIME_NS + SECOND).into();
        std::fs::write(path, manifest.to_string()).unwrap();
    }

    /// `uhr` in this folder, away from the settings of whoever runs the tests.
    pub fn uhr(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uhr"));
        command.args(args).current_dir(self.folder.path());
        for name in ["COLUMNS", "NO_COLOR", "TERM", "CLICOLOR_FORCE"] {
            command.env_remove(name);
        }
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.uhr(args).output().unwrap())
    }
}

/// What a command did.
pub struct Ran {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub fn of(output: Output) -> Self {
        Self {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The one JSON object on the standard output.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr))
    }
}

fn manifest() -> Manifest {
    let settings = Settings {
        sampler: "perf".into(),
        frequency_asked_hz: 100,
        frequency_hz: 100,
        unwind: "dwarf".into(),
        kernel_visible: true,
        wait_stacks: "switch".into(),
        target: "command".into(),
        command: Some("app".into()),
        ..Settings::default()
    };
    let host = Host {
        kernel: "6.18.0".into(),
        architecture: "x86_64".into(),
        cpus: 2,
        memory_bytes: 8_000_000_000,
        root: false,
        perf_event_paranoid: Some(1),
        ..Host::default()
    };
    let mut manifest =
        Manifest::new(settings, host, Clock { monotonic_ns: START_NS, realtime_ns: REALTIME_NS });
    manifest.id = "0123456789abcdef0123456789abcdef".into();
    manifest.window = Window { start_ns: START_NS, end_ns: START_NS + 10 * SECOND };
    manifest.state = State::Captured;
    manifest.ledger.cpu =
        SampleLedger { expected: 1_010, captured: 1_000, lost: 10, ..SampleLedger::default() };
    manifest.ledger.faults = SampleLedger { expected: 120, captured: 120, ..SampleLedger::default() };
    manifest
}

fn capture(folder: &Path) {
    let manifest = manifest();
    let mut writer = RecordingWriter::create(folder, &manifest).unwrap();
    write_dictionaries(&mut writer);
    write_observations(&mut writer);
    writer.finish(&manifest).unwrap();
}

fn write(folder: &Path, name_of: &dyn Fn(&str) -> String) {
    capture(folder);
    let recording = Recording::open(folder).unwrap();
    finalize(&recording, names(name_of)).unwrap();
}

fn write_dictionaries(writer: &mut RecordingWriter) {
    let end_ns = Some(START_NS + 10 * SECOND);
    writer.push_process(ProcessRow {
        id: 0,
        pid: 4711,
        inner_pid: None,
        parent: None,
        name: "app".into(),
        executable: Some("/opt/app".into()),
        start_ns: START_NS,
        end_ns,
        cgroup: None,
        container: None,
        pod: None,
    });
    for (id, tid, name, on_cpu_ns, samples) in
        [(0, 4711, "app", 9 * SECOND, 900), (1, 4712, "worker", SECOND, 100)]
    {
        writer.push_thread(ThreadRow {
            id,
            process: 0,
            tid,
            name: name.into(),
            start_ns: START_NS,
            end_ns,
            on_cpu_ns,
            samples,
            pool: id,
            switches: 0,
            run_delay_ns: Some(0),
        });
    }
    for (id, path) in [(0, "/opt/app"), (1, "/usr/lib/x86_64-linux-gnu/libc.so.6")] {
        writer.push_module(ModuleRow {
            id,
            kind: ModuleKind::Elf.code(),
            path: path.into(),
            build_id: Some(format!("{id:040x}")),
            process: None,
            symbols: None,
        });
    }
    for id in 0..=FRAMES.len() as u32 {
        let module = FRAMES.get(id as usize).map_or(0, |frame| frame.1);
        writer.push_frame(FrameRow {
            id,
            mode: FrameMode::User.code(),
            module: Some(module),
            address: 0x1000 + 0x100 * u64::from(id),
            is_return: false,
        });
    }
    for (id, &(parent, frame)) in STACKS.iter().enumerate() {
        writer.push_stack(StackRow { id: id as u32, parent, frame });
    }
}

/// Of every 10 samples of `app` 5 are in lex, 3 in malloc, 1 in parse_json itself, and 1 in code without a name.
fn write_observations(writer: &mut RecordingWriter) {
    for moment in 0..1_000_u64 {
        let worker = moment % 10 == 9;
        let stack = match moment % 10 {
            0 | 2 | 4 | 6 => 3,
            1 | 3 | 5 => 4,
            7 => 2,
            8 => 7,
            _ => 5,
        };
        let ending = if moment % 100 == 8 { StackEnding::NoUnwindInfo } else { StackEnding::Complete };
        writer.push_sample(SampleRow {
            time_ns: START_NS + moment * 10_000_000,
            thread: u32::from(worker),
            cpu: (moment % 2) as u16,
            stack,
            weight_ns: 10_000_000,
            ending: ending.code(),
            syscall: None,
        });
    }
    for second in 0..10 {
        writer.push_off_cpu(OffCpuRow {
            start_ns: START_NS + second * SECOND,
            end_ns: START_NS + second * SECOND + 900_000_000,
            duration_ns: 900_000_000,
            weight_ns: 900_000_000,
            count: 1,
            thread: 1,
            stack: 6,
            ending: StackEnding::Complete.code(),
            runnable: false,
            wait: WaitKind::Lock.code(),
            syscall: Some(202),
            waker: 0,
            waker_stack: 0,
        });
        writer.push_fault(FaultRow {
            time_ns: START_NS + second * SECOND,
            thread: 0,
            stack: 4,
            ending: StackEnding::Complete.code(),
            address: 0x7000_0000,
            region: Region::Heap.code(),
            mapping: None,
            weight: 12,
            major: false,
            page: 1,
        });
        writer.push_resident(ResidentRow {
            time_ns: START_NS + second * SECOND,
            process: 0,
            anonymous_bytes: 10_000_000 + second * 1_000_000,
            file_bytes: 2_000_000,
            shared_bytes: 0,
        });
    }
}

fn names(name_of: &dyn Fn(&str) -> String) -> Finalized {
    let named = FRAMES.iter().enumerate().map(|(frame, &(function, _, line))| LocationRow {
        frame: frame as u32,
        depth: 0,
        function: Some(name_of(function)),
        file: line.map(|(file, _)| file.to_owned()),
        line: line.map(|(_, line)| line),
        function_start: Some(0x1000 + 0x100 * frame as u64),
        mode: None,
        reason: None,
    });
    let unnamed = LocationRow {
        frame: FRAMES.len() as u32,
        depth: 0,
        function: None,
        file: None,
        line: None,
        function_start: None,
        mode: None,
        reason: Some(Unsymbolized::NoSymbol.code()),
    };
    Finalized {
        locations: named.chain([unnamed]).collect(),
        module_symbols: vec![Some("dwarf".into()), Some("symbol-table".into())],
        code: code(),
        code_lines: code_lines(),
        ..Finalized::default()
    }
}

/// `lex` is a division, an addition, a jump back to the division, and its end; `parse_json` is what no compiler made; of
/// `malloc` there is nothing.
fn code() -> Vec<MachineCodeRow> {
    let row = |module, start, bytes: Vec<u8>| MachineCodeRow {
        module,
        start,
        end: start + bytes.len() as u64,
        bytes,
        missing: None,
    };
    let noise = (0..200u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    vec![
        row(0, 0x1100, noise),
        row(0, 0x1200, vec![0x48, 0xf7, 0xf9, 0x48, 0x01, 0xc3, 0x75, 0xf8, 0xc3]),
        MachineCodeRow { end: 0x9_1300, missing: Some(NoCode::TooLong.code()), ..row(1, 0x1300, Vec::new()) },
    ]
}

/// The addition of `lex` was inlined from another function.
fn code_lines() -> Vec<CodeLineRow> {
    let row = |address, depth, function: &str, line| CodeLineRow {
        module: 0,
        address,
        depth,
        function: Some(function.to_owned()),
        file: Some("/src/parse.c".to_owned()),
        line: Some(line),
    };
    vec![row(0x1200, 0, "lex", 90), row(0x1203, 0, "add_token", 71), row(0x1203, 1, "lex", 91)]
}
