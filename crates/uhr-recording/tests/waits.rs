//! Waits in the finished form: what they stand for, what kind they are, who ended them and what that was doing.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use uhr_model::{FrameMode, Interrupt, ModuleKind, StackEnding, WaitKind};
use uhr_recording::tables::{
    FrameRow, MappingRow, ModuleRow, OffCpu, OffCpuRow, ProcessRow, SampleRow, Samples, StackRow, Stacks,
    ThreadRow, WakerRow, Wakers,
};
use uhr_recording::{
    Clock, Finalized, FrameHint, Host, Manifest, Recording, RecordingWriter, Settings, State, Window,
    finalize,
};

const SECOND: u64 = 1_000_000_000;

/// Frames by number: what each is called, and whether it is the kernel's.
const FRAMES: &[(&str, bool)] = &[
    ("main", false),
    ("futex_wait", true),
    ("schedule", true),
    ("tcp_sendmsg", true),
    ("asm_common_interrupt", true),
    ("virtblk_done", true),
    ("unlock", false),
    ("__x64_sys_sendto", true),
];

/// main futex_wait schedule (1 to 3); main tcp_sendmsg asm_common_interrupt virtblk_done (4 to 6); main unlock (7); the
/// last once more, of a second epoch (8, 9); main __x64_sys_sendto tcp_sendmsg (10, 11).
const STACKS: &[(u32, u32)] =
    &[(0, 0), (1, 1), (2, 2), (1, 3), (4, 4), (5, 5), (1, 6), (0, 0), (8, 6), (1, 7), (10, 3)];

fn wait(start_ns: u64, stack: u32, duration_ns: u64, weight_ns: u64, waker: (u32, u32)) -> OffCpuRow {
    let ending = if stack == 0 { StackEnding::NotSampled } else { StackEnding::Complete };
    OffCpuRow {
        start_ns,
        end_ns: start_ns + duration_ns,
        duration_ns,
        weight_ns,
        count: 1,
        thread: 0,
        stack,
        ending: ending.code(),
        runnable: false,
        wait: WaitKind::Lock.code(),
        syscall: Some(202),
        waker: waker.0,
        waker_stack: waker.1,
    }
}

fn waker(id: u32, woken_by: Option<u32>, tid: Option<u32>, interrupt: Option<Interrupt>) -> WakerRow {
    WakerRow {
        id,
        woken_by,
        thread: None,
        pid: tid,
        tid,
        name: tid.map(|tid| format!("t{tid}")),
        interrupt: interrupt.map(Interrupt::code),
    }
}

fn write_owners(writer: &mut RecordingWriter) {
    for (id, executable) in [(0, Some("/bin/x".to_owned())), (1, None), (2, None)] {
        writer.push_process(ProcessRow {
            id,
            pid: 7 + id,
            inner_pid: None,
            parent: None,
            name: "x".into(),
            executable,
            start_ns: 0,
            end_ns: None,
            cgroup: Some("/user.slice".into()),
            container: None,
            pod: None,
        });
        writer.push_thread(ThreadRow {
            id,
            process: id,
            tid: 7 + id,
            name: "x".into(),
            start_ns: 0,
            end_ns: None,
            on_cpu_ns: 0,
            samples: 0,
            pool: id,
            switches: 0,
            run_delay_ns: None,
        });
    }
    writer.push_module(ModuleRow {
        id: 0,
        kind: ModuleKind::Elf.code(),
        path: "/bin/x".into(),
        build_id: None,
        process: None,
        symbols: None,
    });
    // Process 2 has code of its own, though its program was not seen.
    writer.push_mapping(MappingRow { time_ns: 0, process: 2, start: 0, end: 1, file_offset: 0, module: 0 });
}

fn write(folder: &Path, waits: &[OffCpuRow]) -> (OffCpu, Stacks, Wakers) {
    let settings = Settings { wait_stacks: "clock".into(), ..Settings::default() };
    let mut manifest = Manifest::new(settings, Host::default(), Clock::default());
    manifest.window = Window { start_ns: 0, end_ns: 10 * SECOND };
    let mut writer = RecordingWriter::create(folder, &manifest).unwrap();
    write_owners(&mut writer);
    for (id, &(_, is_kernel)) in (0..).zip(FRAMES) {
        let mode = if is_kernel { FrameMode::Kernel } else { FrameMode::User }.code();
        writer.push_frame(FrameRow { id, mode, module: Some(0), address: u64::from(id), is_return: true });
    }
    writer.push_stack(StackRow { id: 0, parent: None, frame: None });
    for (id, &(parent, frame)) in (1..).zip(STACKS) {
        writer.push_stack(StackRow { id, parent: Some(parent), frame: Some(frame) });
    }
    writer.push_waker(waker(0, None, None, None));
    writer.push_waker(waker(1, None, None, Some(Interrupt::Other)));
    writer.push_waker(waker(2, Some(1), Some(70), None));
    waits.iter().for_each(|row| writer.push_off_cpu(row.clone()));
    for (stack, syscall) in [(1, None), (11, None), (4, Some(20))] {
        let ending = StackEnding::Complete.code();
        writer.push_sample(SampleRow { time_ns: 1, thread: 0, cpu: 3, stack, weight_ns: 1, ending, syscall });
    }
    manifest.state = State::Captured;
    writer.finish(&manifest).unwrap();
    let frame_hints = FRAMES
        .iter()
        .map(|&(name, is_kernel)| match is_kernel {
            true => FrameHint::of_kernel_function(name),
            false => FrameHint::of_user_function(name, false),
        })
        .collect();
    let names = Finalized { frame_hints, ..Finalized::default() };
    finalize(&Recording::open(folder).unwrap(), names).unwrap();
    let done = Recording::open(folder).unwrap();
    (done.table().unwrap(), done.table().unwrap(), done.table().unwrap())
}

/// The frames of a stack, the outermost first.
fn names(stacks: &Stacks, leaf: u32) -> Vec<&'static str> {
    let mut names = Vec::new();
    let mut at = leaf as usize;
    while let (Some(parent), Some(frame)) = (stacks.parent[at], stacks.frame[at]) {
        names.push(FRAMES[frame as usize].0);
        at = parent as usize;
    }
    names.reverse();
    names
}

#[test]
fn what_a_clock_did_not_catch_goes_to_what_it_caught() {
    let folder = tempfile::tempdir().unwrap();
    let caught = [wait(0, 3, 1_000, 1_000_000, (0, 0)), wait(5, 3, 2_000_000, 2_000_000, (0, 0))];
    // As short as the first: longer ones are a class of their own.
    let missed = OffCpuRow { count: 77, ..wait(10, 0, 77_000, 77_000, (0, 0)) };
    let (rows, stacks, wakers) = write(&folder.path().join("rec"), &[&caught[..], &[missed]].concat());
    assert_eq!(rows.weight_ns, [78_000, 2_000_000, 0]);
    assert_eq!(names(&stacks, rows.stack[0]), ["main", "futex_wait"], "the scheduler is in all of them");
    assert_eq!(wakers.interrupt[..5], [None, Some(0), Some(1), Some(2), Some(3)], "each kind of interrupt");
}

#[test]
fn wakers_are_renumbered_with_their_stacks() {
    let folder = tempfile::tempdir().unwrap();
    let waits = [wait(0, 3, 10, 10, (2, 9)), wait(20, 3, 10, 10, (1, 6)), wait(40, 3, 10, 10, (0, 0))];
    let (rows, stacks, wakers) = write(&folder.path().join("rec"), &waits);
    assert_eq!(names(&stacks, rows.waker_stack[0]), ["main", "unlock"], "of the second epoch, and merged");
    let of = |row: usize| rows.waker[row] as usize;
    assert_eq!(wakers.tid[of(0)], Some(70));
    assert_eq!(wakers.interrupt[of(1)], Some(Interrupt::Block.code()), "what ran in it says so");
    assert_eq!(names(&stacks, rows.waker_stack[1]), ["asm_common_interrupt", "virtblk_done"]);
    assert_eq!((of(2), rows.waker_stack[2]), (0, 0));
    let woken_by = wakers.woken_by[of(0)].unwrap() as usize;
    assert_eq!(
        wakers.interrupt[woken_by],
        Some(Interrupt::Other.code()),
        "of a thread that was not recorded"
    );
}

#[test]
fn only_threads_of_the_kernel_are_idle_without_more() {
    let folder = tempfile::tempdir().unwrap();
    let of = |thread: u32, syscall: Option<u32>| OffCpuRow {
        thread,
        syscall,
        wait: WaitKind::Unknown.code(),
        ..wait(0, 0, 10, 10, (0, 0))
    };
    let waits = [of(0, None), of(1, None), of(2, None), of(0, Some(232)), of(0, Some(202))];
    let (rows, ..) = write(&folder.path().join("rec"), &waits);
    let kinds: Vec<WaitKind> = rows.wait.iter().map(|&code| WaitKind::from_code(code).unwrap()).collect();
    let (unknown, idle) = (WaitKind::Unknown, WaitKind::Idle);
    assert_eq!(kinds, [unknown, idle, unknown, idle, WaitKind::Lock]);
}

#[test]
fn samples_are_in_the_system_call_that_their_stack_entered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rec");
    write(&path, &[]);
    let samples: Samples = Recording::open(&path).unwrap().table().unwrap();
    assert_eq!(samples.syscall, [None, Some(44), Some(20)], "what was seen counts more");
}
