//! A recording of waits made by hand, as the eBPF sampler writes it: a server in a container with two workers, one of
//! which waits for the other, and a client that was not recorded.

use std::path::Path;

use uhr_model::{FrameMode, Interrupt, ModuleKind, StackEnding, WaitKind};
use uhr_recording::tables::{
    FrameRow, LocationRow, ModuleRow, OffCpuRow, ProcessRow, SampleRow, StackRow, ThreadRow, WakerRow,
};
use uhr_recording::{
    Clock, CpuTicks, Finalized, FrameHint, Host, Manifest, ProgramCost, Recording, RecordingWriter,
    SampleLedger, Settings, State, Window, finalize,
};

const START_NS: u64 = 5_000_000_000;
const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// Functions and whether they are the kernel's, in the order of their frames.
const FRAMES: &[(&str, bool)] = &[
    ("serve", false),
    ("take_lock", false),
    ("futex_wait_queue", true),
    ("give_lock", false),
    ("__x64_sys_futex", true),
    ("asm_sysvec_apic_timer_interrupt", true),
    ("hrtimer_wakeup", true),
    ("event_loop", false),
    ("ep_poll", true),
    ("rest", false),
    ("hrtimer_nanosleep", true),
    ("__x64_sys_write", true),
];

/// Parent and frame of each stack but the first.
const STACKS: &[(u32, u32)] = &[
    (0, 0),   // 1: serve
    (1, 1),   // 2: serve take_lock
    (2, 2),   // 3: serve take_lock futex_wait_queue
    (1, 3),   // 4: serve give_lock
    (4, 4),   // 5: serve give_lock __x64_sys_futex
    (1, 5),   // 6: serve asm_sysvec_apic_timer_interrupt
    (6, 6),   // 7: serve asm_sysvec_apic_timer_interrupt hrtimer_wakeup
    (0, 7),   // 8: event_loop
    (8, 8),   // 9: event_loop ep_poll
    (1, 9),   // 10: serve rest
    (10, 10), // 11: serve rest hrtimer_nanosleep
    (1, 11),  // 12: serve __x64_sys_write
];

/// Writes the recording.
pub fn write(folder: &Path) {
    let manifest = manifest();
    let mut writer = RecordingWriter::create(folder, &manifest).unwrap();
    write_dictionaries(&mut writer);
    write_wakers(&mut writer);
    write_observations(&mut writer);
    writer.finish(&manifest).unwrap();
    finalize(&Recording::open(folder).unwrap(), names()).unwrap();
}

fn manifest() -> Manifest {
    let settings = Settings {
        sampler: "ebpf".into(),
        frequency_asked_hz: 100,
        frequency_hz: 100,
        unwind: "fp".into(),
        kernel_visible: true,
        wait_stacks: "clock".into(),
        wait_period_ns: Some(20 * MS),
        target: "processes".into(),
        pids: vec![100],
        ..Settings::default()
    };
    let host = Host {
        kernel: "6.18.0".into(),
        architecture: "x86_64".into(),
        cpus: 2,
        memory_bytes: 8_000_000_000,
        root: true,
        ..Host::default()
    };
    let clock = Clock { monotonic_ns: START_NS, realtime_ns: 1_793_968_496_123_000_000 };
    let mut manifest = Manifest::new(settings, host, clock);
    manifest.id = "fedcba9876543210fedcba9876543210".into();
    manifest.window = Window { start_ns: START_NS, end_ns: START_NS + 10 * SECOND };
    manifest.state = State::Captured;
    manifest.ledger.cpu = SampleLedger { expected: 200, captured: 200, ..SampleLedger::default() };
    manifest.ledger.cpus = vec![CpuTicks { cpu: 0, expected: 200, captured: 200 }];
    manifest.cost.cpu_ns = 40 * MS;
    manifest.cost.peak_memory_bytes = 30_000_000;
    manifest.cost.kernel_ns = Some(20 * MS);
    manifest.cost.programs.insert("on_switch".into(), ProgramCost { runs: 10_000, ns: 15 * MS });
    manifest.cost.programs.insert("on_tick".into(), ProgramCost { runs: 1_000, ns: 5 * MS });
    manifest
}

fn write_dictionaries(writer: &mut RecordingWriter) {
    writer.push_process(ProcessRow {
        id: 0,
        pid: 100,
        inner_pid: Some(1),
        parent: None,
        name: "server".into(),
        executable: Some("/srv/server".into()),
        start_ns: START_NS,
        end_ns: None,
        cgroup: Some("/kubepods/besteffort/pod11111111-2222-3333-4444-555555555555/4a5b6c".into()),
        container: Some("4a5b6c".into()),
        pod: Some("11111111-2222-3333-4444-555555555555".into()),
    });
    for (id, tid, name, on_cpu_ns, samples) in
        [(0, 100, "loop", 0, 0), (1, 101, "giver", 2 * SECOND, 200), (2, 102, "taker", 0, 0)]
    {
        writer.push_thread(ThreadRow {
            id,
            process: 0,
            tid,
            name: name.into(),
            start_ns: START_NS,
            end_ns: None,
            on_cpu_ns,
            samples,
            pool: id,
            switches: 10,
            run_delay_ns: Some(0),
        });
    }
    for (id, kind, path) in [(0, ModuleKind::Elf, "/srv/server"), (1, ModuleKind::Kernel, "[kernel]")] {
        let (kind, path) = (kind.code(), path.to_owned());
        writer.push_module(ModuleRow { id, kind, path, build_id: None, process: None, symbols: None });
    }
    for (id, &(_, is_kernel)) in (0..).zip(FRAMES) {
        let (mode, module) = if is_kernel { (FrameMode::Kernel, 1) } else { (FrameMode::User, 0) };
        let (mode, address) = (mode.code(), 0x1000 + 0x100 * u64::from(id));
        writer.push_frame(FrameRow { id, mode, module: Some(module), address, is_return: false });
    }
    writer.push_stack(StackRow { id: 0, parent: None, frame: None });
    for (id, &(parent, frame)) in (1..).zip(STACKS) {
        writer.push_stack(StackRow { id, parent: Some(parent), frame: Some(frame) });
    }
}

/// 1: some interrupt; 2: `giver`, whom it had woken; 3: `client`; 4: `giver`, whom that had woken.
fn write_wakers(writer: &mut RecordingWriter) {
    let none = WakerRow::NOBODY;
    let giver = WakerRow {
        thread: Some(1),
        pid: Some(100),
        tid: Some(101),
        name: Some("giver".into()),
        ..none.clone()
    };
    let client =
        WakerRow { id: 3, pid: Some(700), tid: Some(700), name: Some("client".into()), ..none.clone() };
    writer.push_waker(none.clone());
    writer.push_waker(WakerRow { id: 1, interrupt: Some(Interrupt::Other.code()), ..none });
    writer.push_waker(WakerRow { id: 2, woken_by: Some(1), ..giver.clone() });
    writer.push_waker(client);
    writer.push_waker(WakerRow { id: 4, woken_by: Some(3), ..giver });
}

fn wait(thread: u32, stack: u32, (from_ms, to_ms): (u64, u64), syscall: u32, waker: (u32, u32)) -> OffCpuRow {
    OffCpuRow {
        start_ns: START_NS + from_ms * MS,
        end_ns: START_NS + to_ms * MS,
        duration_ns: (to_ms - from_ms) * MS,
        weight_ns: (to_ms - from_ms) * MS,
        count: 1,
        thread,
        stack,
        ending: StackEnding::Complete.code(),
        runnable: false,
        wait: WaitKind::of_syscall(syscall).code(),
        syscall: Some(syscall),
        waker: waker.0,
        waker_stack: waker.1,
    }
}

/// A second at a time: `giver` works for 200 ms, half of that in `write`, and rests for 800 ms; `taker` waits 900 ms for it,
/// 700 ms since the timer had woken it and 200 ms since `client` had; and `loop` waits for work.
fn write_observations(writer: &mut RecordingWriter) {
    const FUTEX: u32 = 202;
    for second in 0..10 {
        let at = |ms: u64| second * 1000 + ms;
        for tick in 0..20 {
            writer.push_sample(SampleRow {
                time_ns: START_NS + at(tick * 10) * MS,
                thread: 1,
                cpu: 0,
                stack: if tick < 10 { 1 } else { 12 },
                weight_ns: 10 * MS,
                ending: StackEnding::Complete.code(),
                syscall: (tick >= 10).then_some(1),
            });
        }
        writer.push_off_cpu(wait(1, 11, (at(200), at(1000)), 230, (1, 7)));
        writer.push_off_cpu(wait(2, 3, (at(0), at(700)), FUTEX, (2, 5)));
        writer.push_off_cpu(wait(2, 3, (at(700), at(900)), FUTEX, (4, 5)));
        writer.push_off_cpu(wait(0, 9, (at(0), at(1000)), 232, (3, 0)));
    }
}

fn names() -> Finalized {
    let location = |(frame, &(name, _)): (u32, &(&str, bool))| LocationRow {
        frame,
        depth: 0,
        function: Some(name.into()),
        file: None,
        line: None,
        function_start: Some(0x1000 + 0x100 * u64::from(frame)),
        mode: None,
        reason: None,
    };
    let hint = |&(name, is_kernel): &(&str, bool)| match is_kernel {
        true => FrameHint::of_kernel_function(name),
        false => FrameHint::of_user_function(name, false),
    };
    Finalized {
        locations: (0..).zip(FRAMES).map(location).collect(),
        frame_hints: FRAMES.iter().map(hint).collect(),
        ..Finalized::default()
    }
}
