//! Few file descriptors: for uhr, and for the program that it starts.

use std::process::Command;
use std::time::{Duration, Instant};

use uhr_collect::child::HeldChild;
use uhr_collect::perf::{
    Attached, Body, Limitation, RingLayout, Session, Settings, Targets, raise_open_files,
};
use uhr_collect::{Captured, Options, Recorder, SamplerChoice, UnwindChoice};
use uhr_model::StackEnding;
use uhr_recording::Recording;
use uhr_recording::tables::{OffCpu, Samples};

use crate::frame_pointers;
use crate::harness::{Target, can_record};

#[test]
fn more_threads_than_descriptors() {
    let Some(mut target) = Target::start("sleepers 300") else { return };
    target.go();
    target.wait_for("ready");
    let tids = target.threads();
    assert_eq!(tids.len(), 301);
    let settings = Settings { descriptors: Some(256), ..frame_pointers() };
    let open_before = open_files();
    let mut session = Session::open(Targets::Threads(&tids), &settings).unwrap();
    let granted = session.granted().clone();
    assert_eq!(granted.layout, RingLayout::PerThread);
    // Another test of this process may open or close some at the same time.
    let opened = open_files().saturating_sub(open_before);
    assert!(granted.attached >= 20, "{}", granted.attached);
    assert!(opened <= 256 + 128, "{opened}");
    assert_eq!(granted.attached + granted.unattached.len(), 301);
    assert!(granted.limitations.contains(&Limitation::Unattached { threads: granted.unattached.len() }));
    session.enable().unwrap();
    target.go();
    let mut added = Vec::new();
    target.follow_with(&mut session, |session, record| {
        if let Body::Fork(task) = record.body {
            added.push(session.add_thread(task.tid).unwrap());
        }
    });
    assert!(matches!(added[..], [Attached::NoRoom]), "{added:?}");
    let unattached = session.granted().unattached.len();
    assert_eq!(unattached, granted.unattached.len() + 1, "later ones are counted too");
    assert!(session.granted().limitations.contains(&Limitation::Unattached { threads: unattached }));
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn the_program_gets_the_limit_that_uhr_was_started_with() {
    run_behind("ulimit -Sn 200", "behind_a_limit");
}

#[test]
fn threads_without_room_are_told_by_the_scheduler() {
    if can_record() {
        run_behind("ulimit -n 256", "behind_a_hard_limit");
    }
}

/// Runs one of the tests below in a process of its own, with a limit of open files.
fn run_behind(limit: &str, test: &str) {
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(format!("{limit}; exec \"$0\" \"$@\"")).arg(own);
    command.args(["--ignored", "--exact", &format!("limits::{test}")]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let is_passed = output.status.success() && text.contains("1 passed");
    assert!(is_passed, "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "runs behind a limit, from another test"]
fn behind_a_limit() {
    // Whether the limit was raised before the fork or not.
    for round in 0..2 {
        let folder = tempfile::tempdir().unwrap();
        let said = folder.path().join("said");
        let script = format!("echo $(ulimit -Sn) $(ulimit -Hn) > {}", said.display());
        let held = HeldChild::fork(&["sh".into(), "-c".into(), script.into()], None).unwrap();
        let files = raise_open_files().unwrap();
        assert_eq!(files.soft_before, 200, "round {round}");
        assert!(files.soft > 200, "this host allows more");
        let mut running = held.release().unwrap();
        while running.wait(Duration::from_secs(5)).unwrap().is_none() {}
        let said = std::fs::read_to_string(&said).unwrap();
        let hard = if files.hard == u64::MAX { "unlimited".to_owned() } else { files.hard.to_string() };
        assert_eq!(said.trim(), format!("200 {hard}"));
    }
}

#[test]
#[ignore = "runs behind a limit, from another test"]
fn behind_a_hard_limit() {
    // The last two of its threads burn.
    let Some(mut target) = Target::start("crowd 20000") else { return };
    target.go();
    target.wait_for("ready");
    let pid = target.pid();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    let of_pid = uhr_collect::Target::Processes(vec![pid]);
    let options = Options {
        target: of_pid,
        sampler: SamplerChoice::Perf,
        frequency: 999,
        unwind: UnwindChoice::Fp,
        stack_size: 16 << 10,
        check_walks: false,
        syscalls: false,
        max_overhead: None,
    };
    let mut recorder = Recorder::start(&options, &path).unwrap();
    let unattached = recorder.granted().unattached.clone();
    let burners: Vec<u32> = target.threads().split_off(65);
    assert!(burners.iter().all(|tid| unattached.contains(tid)), "{burners:?} of {unattached:?}");
    let on_cpu_before = burners.iter().map(|&tid| on_cpu_ns(pid, tid)).sum::<u64>();
    let until = Instant::now() + Duration::from_millis(1200);
    recorder.run(&mut || Instant::now() < until).unwrap();
    let ran_ns = burners.iter().map(|&tid| on_cpu_ns(pid, tid)).sum::<u64>() - on_cpu_before;
    let Captured { manifest, .. } = recorder.finish().unwrap();
    target.kill();

    let recording = Recording::open(&path).unwrap();
    let threads = recording.threads().unwrap();
    let (samples, waits): (Samples, OffCpu) = (recording.table().unwrap(), recording.table().unwrap());
    let mut told_ns = 0;
    for thread in threads.iter().filter(|thread| burners.contains(&thread.tid)) {
        told_ns += thread.on_cpu_ns;
        let rows: Vec<usize> =
            (0..samples.thread.len()).filter(|&row| samples.thread[row] == thread.id).collect();
        assert_eq!(rows.len(), 1);
        assert_eq!(samples.weight_ns[rows[0]], thread.on_cpu_ns);
        assert_eq!(samples.ending[rows[0]], StackEnding::NotSampled.code());
        let off = (0..waits.thread.len()).filter(|&row| waits.thread[row] == thread.id);
        let off_ns: u64 = off.map(|row| waits.duration_ns[row]).sum();
        assert_eq!(thread.on_cpu_ns + off_ns, manifest.window.end_ns - thread.start_ns);
    }
    assert!(told_ns >= ran_ns && ran_ns > 0, "{told_ns} ns, of which {ran_ns} ns between two looks");
    let ledger = &manifest.ledger;
    assert_eq!(ledger.misses["threads that could not be attached"], unattached.len() as u64);
    assert_eq!(ledger.threads_inexact, unattached.len() as u64);
    assert!(ledger.cpu.too_short >= ran_ns / 1_001_001, "{ledger:?}");
}

fn on_cpu_ns(pid: u32, tid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}
