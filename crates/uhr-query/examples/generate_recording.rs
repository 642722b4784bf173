//! Writes a large recording that is the same every time, to measure questions by:
//!
//! ```text
//! cargo run --release -p uhr-query --example generate_recording -- FOLDER [SAMPLES]
//! ```
//!
//! 64 threads of 4 processes, 200,000 stack nodes up to 60 deep, 20,000 frames of 5,000 functions in 40 modules. Stacks
//! are log-uniform: a few are hot, many are seen once, which is harder than what programs do. Every 20th sample goes
//! with a wait, every 50th with a page fault.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a tool of the benchmark, not of users")]

use std::path::Path;

use uhr_model::{FrameMode, ModuleKind, StackEnding, WaitKind};
use uhr_recording::tables::{
    FaultRow, FrameRow, LocationRow, ModuleRow, OffCpuRow, ProcessRow, ResidentRow, SampleRow, StackRow,
    ThreadRow,
};
use uhr_recording::{
    Clock, Finalized, Host, Manifest, Recording, RecordingWriter, SampleLedger, Settings, State, Window,
    finalize,
};

const THREADS: u32 = 64;
const PROCESSES: u32 = 4;
const MODULES: u32 = 40;
const FUNCTIONS: u32 = 5_000;
const FRAMES: u32 = 20_000;
const STACKS: u32 = 200_000;
const DEEPEST: usize = 60;
/// Nanoseconds between two samples of all threads together.
const STEP_NS: u64 = 15_625;
const START_NS: u64 = 1_000_000_000;

/// Deterministic random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u32) -> u32 {
        (self.next() % u64::from(bound)) as u32
    }

    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), samples) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: generate_recording FOLDER [SAMPLES]");
        std::process::exit(2);
    };
    let samples = samples.map_or(10_000_000, |text| text.parse().unwrap());
    generate(Path::new(&folder), samples);
}

fn generate(folder: &Path, samples: u64) {
    let manifest = manifest(samples);
    let mut writer = RecordingWriter::create(folder, &manifest).unwrap();
    let mut random = Random(42);
    let locations = write_code(&mut writer, &mut random);
    let of_thread = write_observations(&mut writer, &mut random, samples);
    write_owners(&mut writer, &of_thread);
    writer.finish(&manifest).unwrap();
    let names = Finalized { locations, ..Finalized::default() };
    finalize(&Recording::open(folder).unwrap(), names).unwrap();
}

fn manifest(samples: u64) -> Manifest {
    let settings = Settings {
        sampler: "generated".into(),
        frequency_asked_hz: 1000,
        frequency_hz: 1000,
        kernel_visible: true,
        wait_stacks: "switch".into(),
        ..Settings::default()
    };
    let clock = Clock { monotonic_ns: START_NS, realtime_ns: 1_794_000_896_000_000_000 };
    let mut manifest = Manifest::new(settings, Host { cpus: 64, ..Host::default() }, clock);
    manifest.state = State::Captured;
    manifest.window = Window { start_ns: START_NS, end_ns: START_NS + samples * STEP_NS };
    manifest.ledger.cpu = SampleLedger { expected: samples, captured: samples, ..SampleLedger::default() };
    let faults = samples / 50;
    manifest.ledger.faults = SampleLedger { expected: faults, captured: faults, ..SampleLedger::default() };
    manifest
}

fn write_code(writer: &mut RecordingWriter, random: &mut Random) -> Vec<LocationRow> {
    for id in 0..MODULES {
        let (kind, path) = match id {
            0 => (ModuleKind::Kernel, "[kernel.kallsyms]".to_owned()),
            _ => (ModuleKind::Elf, format!("/usr/lib/libmodule{id}.so")),
        };
        let row = ModuleRow { id, kind: kind.code(), path, build_id: None, process: None, symbols: None };
        writer.push_module(row);
    }
    let mut locations = Vec::new();
    for id in 0..FRAMES {
        let function = random.below(FUNCTIONS);
        let module = function % MODULES;
        let mode = if module == 0 { FrameMode::Kernel } else { FrameMode::User };
        let address = u64::from(function) * 4096 + u64::from(random.below(4000));
        let row = FrameRow { id, mode: mode.code(), module: Some(module), address, is_return: true };
        writer.push_frame(row);
        // A third of the frames have a function inlined.
        let inlined = (random.below(3) == 0).then_some(function ^ 1);
        for (depth, function) in inlined.into_iter().chain([function]).enumerate() {
            locations.push(LocationRow {
                frame: id,
                depth: depth as u32,
                function: Some(format!(
                    "namespace{}::function_number_{function}(int, char const*)",
                    function % 97
                )),
                file: Some(format!("/src/module{module}/file{}.cc", function % 500)),
                line: Some(random.below(3000)),
                function_start: Some(u64::from(function) * 4096),
                mode: None,
                reason: None,
            });
        }
    }
    writer.push_stack(StackRow { id: 0, parent: None, frame: None });
    let mut path = vec![0u32];
    for id in 1..STACKS {
        // A walk through a tree: back a little, then one deeper.
        let back = (random.uniform().powi(3) * 12.0) as usize;
        path.truncate(path.len().saturating_sub(back).clamp(1, DEEPEST));
        let parent = path.last().copied();
        writer.push_stack(StackRow { id, parent, frame: Some(random.below(FRAMES)) });
        path.push(id);
    }
    locations
}

fn write_observations(writer: &mut RecordingWriter, random: &mut Random, samples: u64) -> Vec<u64> {
    let mut of_thread = vec![0u64; THREADS as usize];
    for at in 0..samples {
        let time_ns = START_NS + at * STEP_NS;
        let thread = random.below(THREADS);
        // Log-uniform over the nodes, so that the first are hot; spread over the tree by a step prime to their number.
        let rank = f64::from(STACKS - 1).powf(random.uniform()) as u64;
        let stack = (rank * 77_773 % u64::from(STACKS - 1)) as u32 + 1;
        let ending = StackEnding::Complete.code();
        of_thread[thread as usize] += 1;
        writer.push_sample(SampleRow {
            time_ns,
            thread,
            cpu: thread as u16,
            stack,
            weight_ns: 1_000_000,
            ending,
            syscall: None,
        });
        if at % 20 == 0 {
            let duration_ns = 1_000 + u64::from(random.below(5_000_000));
            writer.push_off_cpu(OffCpuRow {
                start_ns: time_ns,
                end_ns: time_ns + duration_ns,
                duration_ns,
                weight_ns: duration_ns,
                count: 1,
                thread,
                stack,
                ending,
                runnable: at % 100 == 0,
                wait: WaitKind::ALL[random.below(WaitKind::ALL.len() as u32) as usize].code(),
                syscall: Some(202),
                waker: 0,
                waker_stack: 0,
            });
        }
        if at % 50 == 0 {
            let region = (random.below(4)) as u8;
            writer.push_fault(FaultRow {
                time_ns,
                thread,
                stack,
                ending,
                address: at,
                region,
                mapping: None,
                weight: 1,
                major: false,
                page: 1,
            });
        }
        if at % 100_000 == 0 {
            for process in 0..PROCESSES {
                writer.push_resident(ResidentRow {
                    time_ns,
                    process,
                    anonymous_bytes: 1_000_000 + at,
                    file_bytes: 500_000,
                    shared_bytes: 0,
                });
            }
        }
        if writer.wants_flush() {
            writer.flush().unwrap();
        }
    }
    of_thread
}

fn write_owners(writer: &mut RecordingWriter, of_thread: &[u64]) {
    for id in 0..PROCESSES {
        writer.push_process(ProcessRow {
            id,
            pid: 1000 + id,
            inner_pid: None,
            parent: None,
            name: format!("server{id}"),
            executable: None,
            start_ns: START_NS,
            end_ns: None,
            cgroup: None,
            container: None,
            pod: None,
        });
    }
    for (id, &samples) in of_thread.iter().enumerate() {
        writer.push_thread(ThreadRow {
            id: id as u32,
            process: id as u32 % PROCESSES,
            tid: 2000 + id as u32,
            name: format!("worker{id}"),
            start_ns: START_NS,
            end_ns: None,
            on_cpu_ns: samples * 1_000_000,
            samples,
            pool: id as u32,
            switches: 0,
            run_delay_ns: None,
        });
    }
}
