//! Page faults and switches, from the events to the finished recording: what samples stand for adds up, whatever the
//! program does and however busy the machine is.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use uhr_collect::child::HeldChild;
use uhr_collect::{Options, Recorder, SamplerChoice, Target, UnwindChoice};
use uhr_model::StackEnding;
use uhr_recording::tables::{Faults, Frames, OffCpu, Stacks};
use uhr_recording::{Finalized, Manifest, Recording, finalize};

use crate::harness::{can_record, symbols};

/// A finished recording of a run of `ladder.c`.
struct Finished {
    program: PathBuf,
    manifest: Manifest,
    recording: Recording,
    _folder: TempDir,
}

/// Compiles the program with its C library in it, so that its names are known, at addresses that begin with 0.
fn build(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/perf_live/ladder.c");
    let program = folder.join("ladder");
    let built =
        Command::new("gcc").args(["-O2", "-static-pie", "-o"]).args([&program, &source]).status().unwrap();
    assert!(built.success());
    program
}

/// Records a run of the program, to the end of the finish step. `None`: this host grants no perf events.
fn finished(mode: &str, amount: u32, unwind: UnwindChoice) -> Option<Finished> {
    if !can_record() {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path());
    let command: Vec<OsString> = vec![program.clone().into(), mode.into(), amount.to_string().into()];
    let held = HeldChild::fork(&command, None).unwrap();
    let target = Target::Child { pid: held.pid(), program: program.clone() };
    let options = Options {
        syscalls: false,
        max_overhead: None,
        target,
        sampler: SamplerChoice::Perf,
        frequency: 999,
        unwind,
        stack_size: 16 << 10,
        check_walks: false,
    };
    let path = folder.path().join("recording");
    let mut recorder = Recorder::start(&options, &path).unwrap();
    let mut child = held.release().unwrap();
    recorder.run(&mut || child.wait(Duration::ZERO).unwrap().is_none()).unwrap();
    recorder.finish().unwrap();
    let manifest = finalize(&Recording::open(&path).unwrap(), Finalized::default()).unwrap();
    let recording = Recording::open(&path).unwrap();
    Some(Finished { program, manifest, recording, _folder: folder })
}

impl Finished {
    /// For each row of `stacks`, whether one of its frames is in one of the functions.
    fn passes(&self, functions: &[&str]) -> Vec<bool> {
        let names: BTreeMap<u64, (u64, String)> = symbols(&self.program);
        let modules = self.recording.modules().unwrap();
        let frames: Frames = self.recording.table().unwrap();
        let stacks: Stacks = self.recording.table().unwrap();
        let is_one = |frame: u32| {
            let module = &modules[frames.module[frame as usize]? as usize];
            let address = frames.address[frame as usize];
            let (start, (size, name)) = names.range(..=address).next_back()?;
            let is_inside = module.path.ends_with("/ladder") && address < start + size;
            Some(is_inside && functions.contains(&name.as_str()))
        };
        let mut passes = vec![false; stacks.parent.len()];
        for (at, frame) in stacks.frame.iter().enumerate() {
            let parent = stacks.parent[at].is_some_and(|parent| passes[parent as usize]);
            passes[at] = parent || frame.and_then(is_one).unwrap_or(false);
        }
        passes
    }

    fn switches_have_stacks(&self) -> bool {
        self.manifest.settings.wait_stacks == "switch"
    }
}

#[test]
fn a_ping_pong_is_thinned_and_adds_up() {
    for unwind in [UnwindChoice::Dwarf, UnwindChoice::Fp] {
        let Some(finished) = finished("ping-pong", 200_000, unwind) else { return };
        let (ledger, notes) = (&finished.manifest.ledger, &finished.manifest.notes);
        if ledger.records_lost > 0 {
            // Where the host takes the CPUs away, no ring is large enough; root's of 8 MiB are good for a second.
            eprintln!("SKIPPED: the rings did not suffice on a busy machine: {ledger:?}");
            assert!(ledger.threads_inexact > 0, "which is said");
            continue;
        }
        assert_eq!((ledger.records_lost, ledger.threads_inexact, ledger.malformed), (0, 0, 0), "{ledger:?}");
        let threads = finished.recording.threads().unwrap();
        assert_eq!(threads.len(), 2);
        let waits: OffCpu = finished.recording.table().unwrap();
        let rows = || 0..waits.thread.len();
        for thread in &threads {
            let of_thread = rows().filter(|&row| waits.thread[row] == thread.id);
            let off_ns: u64 = of_thread.map(|row| waits.duration_ns[row]).sum();
            let end_ns = thread.end_ns.unwrap_or(finished.manifest.window.end_ns);
            assert_eq!(thread.on_cpu_ns + off_ns, end_ns - thread.start_ns, "on or off, to the nanosecond");
        }
        let waited = |row: &usize| !waits.runnable[*row];
        let all_ns: u64 = rows().filter(waited).map(|row| waits.duration_ns[row]).sum();
        assert_eq!(rows().filter(waited).map(|row| waits.weight_ns[row]).sum::<u64>(), all_ns);
        let count: u64 = rows().map(|row| u64::from(waits.count[row])).sum();
        eprintln!("{count} waits, {all_ns} ns; {notes:?} {:?}", finished.manifest.cost);
        if !finished.switches_have_stacks() {
            continue;
        }
        let passes = finished.passes(&["read", "__read", "__libc_read"]);
        let read_ns: u64 = rows()
            .filter(waited)
            .filter(|&row| passes[waits.stack[row] as usize])
            .map(|row| waits.weight_ns[row])
            .sum();
        assert!(read_ns as f64 >= 0.95 * all_ns as f64, "{read_ns} of {all_ns} in read");
        let told = notes.iter().any(|note| note.starts_with("stacks of one switch in 31 were taken for"));
        assert!(told, "{notes:?}");
    }
}

#[test]
fn every_wait_of_a_program_that_waits_seldom_has_its_stack() {
    let Some(finished) = finished("nap", 50, UnwindChoice::Dwarf) else { return };
    if !finished.switches_have_stacks() {
        return;
    }
    let waits: OffCpu = finished.recording.table().unwrap();
    let passes = finished.passes(&["main"]);
    let naps = (0..waits.thread.len()).filter(|&row| {
        !waits.runnable[row] && waits.duration_ns[row] / u64::from(waits.count[row]) >= 2_000_000
    });
    let mut count = 0;
    for row in naps {
        assert_eq!(waits.ending[row], StackEnding::Complete.code());
        assert!(passes[waits.stack[row] as usize]);
        count += waits.count[row];
    }
    assert_eq!(count, 50);
}

#[test]
fn a_burst_of_page_faults_on_a_busy_machine_is_seen_evenly() {
    if !can_record() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path());
    let busy = || Command::new(&program).args(["busy", "1"]).spawn().unwrap();
    let mut others = [busy(), busy()];
    let finished = finished("touch", 16_384, UnwindChoice::Dwarf);
    others.iter_mut().for_each(|other| assert!(other.wait().unwrap().success()));
    let Some(finished) = finished else { return };
    let faults: Faults = finished.recording.table().unwrap();
    assert!(faults.weight.len() >= 200, "{} samples", faults.weight.len());
    let counted = finished.manifest.ledger.faults.expected;
    assert_eq!(faults.weight.iter().sum::<u64>(), counted);
    assert!((16_384..17_000).contains(&counted), "{counted}");
    // One in 61 of the pages: no two neighbours among the samples are far apart.
    let mut pages: Vec<u64> = faults.address.iter().map(|address| address >> 12).collect();
    pages.sort_unstable();
    let first = pages.partition_point(|page| page + 16_384 < *pages.last().unwrap());
    let widest = pages[first..].windows(2).map(|two| two[1] - two[0]).max().unwrap();
    eprintln!("{} samples, at most {widest} pages apart, {:?}", pages.len(), finished.manifest.ledger.faults);
}
