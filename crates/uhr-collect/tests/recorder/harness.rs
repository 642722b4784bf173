//! Building programs, recording them, reading stacks back.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use uhr_collect::child::HeldChild;
use uhr_collect::{Captured, Options, Recorder, SamplerChoice, Target, UnwindChoice};
use uhr_recording::Recording;
use uhr_recording::tables::{Frames, Stacks};

/// Compiles a C program into `folder`.
pub(crate) fn build(folder: &Path, name: &str, source: &str) -> PathBuf {
    let (file, out) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&file, source).unwrap();
    let built = std::process::Command::new("gcc")
        .args(["-O2", "-g", "-fno-inline", "-pthread", "-o"])
        .args([&out, &file])
        .status()
        .unwrap();
    assert!(built.success());
    out
}

/// Records a program until it ends; `None` where this host refuses.
pub(crate) fn record(folder: &Path, program: &Path) -> Option<(Captured, Recording)> {
    let command: Vec<OsString> = vec![program.into()];
    let held = HeldChild::fork(&command, None).unwrap();
    let options = Options {
        target: Target::Child { pid: held.pid(), program: program.to_owned() },
        sampler: SamplerChoice::Auto,
        frequency: 999,
        unwind: UnwindChoice::Auto,
        stack_size: 16 << 10,
        check_walks: false,
        syscalls: false,
        max_overhead: None,
    };
    let mut recorder = start(folder, &options)?;
    let mut child = held.release().unwrap();
    recorder.run(&mut || child.wait(Duration::ZERO).unwrap().is_none()).unwrap();
    Some(finish(folder, recorder))
}

fn start(folder: &Path, options: &Options) -> Option<Recorder> {
    let started = Recorder::start(options, &folder.join("rec"));
    started.inspect_err(|error| eprintln!("SKIPPED: this host refuses: {error}")).ok()
}

fn finish(folder: &Path, recorder: Recorder) -> (Captured, Recording) {
    let captured = recorder.finish().unwrap();
    (captured, Recording::open(&folder.join("rec")).unwrap())
}

/// Records what runs already, as long as `go_on` says so.
pub(crate) fn attach(
    folder: &Path,
    target: Target,
    go_on: &mut dyn FnMut() -> bool,
) -> Option<(Captured, Recording)> {
    let options = Options {
        target,
        sampler: SamplerChoice::Auto,
        frequency: 999,
        unwind: UnwindChoice::Dwarf,
        stack_size: 16 << 10,
        check_walks: false,
        syscalls: false,
        max_overhead: None,
    };
    let mut recorder = start(folder, &options)?;
    recorder.run(go_on).unwrap();
    Some(finish(folder, recorder))
}

/// The body of a test, run as an ordinary user: by this very test program again where we are root.
pub(crate) fn as_ordinary_user(test: &str, body: impl FnOnce()) {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return body();
    }
    let own = std::env::current_exe().unwrap();
    let ran = std::process::Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(own)
        .args(["--exact", test, "--nocapture"])
        .status()
        .unwrap();
    assert!(ran.success(), "as an ordinary user: {ran}");
}

/// A stack as `module+0xaddress`, the leaf first.
pub(crate) fn show(recording: &Recording, mut stack: u32) -> String {
    let (stacks, frames, modules) = (
        recording.table::<Stacks>().unwrap(),
        recording.table::<Frames>().unwrap(),
        recording.modules().unwrap(),
    );
    let mut shown = String::new();
    while let (Some(parent), Some(frame)) = (stacks.parent[stack as usize], stacks.frame[stack as usize]) {
        let module = frames.module[frame as usize].map_or("?", |module| &modules[module as usize].path);
        shown += &format!("{module}+{:#x} ", frames.address[frame as usize]);
        stack = parent;
    }
    shown
}
