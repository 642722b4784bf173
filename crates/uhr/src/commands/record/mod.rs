//! `uhr record`: starts or attaches, records until something ends it, finishes the recording, and says what it holds.

mod account;
mod ending;
mod output_folder;
mod progress;
mod summary;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::Result;
use uhr_collect::child::{HeldChild, RunningChild, find_program};
use uhr_collect::{
    Captured, CgroupTarget, CollectError, Interrupts, LoadError, Options, Recorder, SETCAP, SamplerChoice,
    Target, UnwindChoice,
};
use uhr_recording::{Manifest, RecordingError};

use crate::args::{RecordArgs, Sampler, Unwind};
use crate::failure::{Exit, Failure};
use crate::finish;
use crate::output;

use ending::{Ending, Reason};
use progress::Progress;
pub(crate) use summary::RecordAnswer;

/// Records what the arguments name. The status is the recorded command's, or 0.
///
/// # Errors
/// Whatever kept uhr from recording: with a status of 125, or 126 and 127 for a command that cannot be run; without a
/// command, with those of every other question.
pub(crate) fn run(args: &RecordArgs) -> Result<ExitCode> {
    let interrupts = Interrupts::take().map_err(|source| CollectError::System { step: "signalfd", source });
    let result = interrupts.map_err(failure).and_then(|interrupts| record(args, interrupts));
    let result = if args.command.is_empty() { result.map_err(without_command) } else { result };
    result.map(ExitCode::from)
}

/// Where there is no command whose status ours could be taken for, 125 has nothing to keep apart.
fn without_command(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<Failure>() {
        Ok(failure) if failure.exit == Exit::Status(OWN_FAILURE) => {
            let is_refused = failure.answer.error.code == "cannot-open-events";
            failure.exit(if is_refused { Exit::HostCannot } else { Exit::Failed }).into()
        }
        Ok(failure) => failure.into(),
        Err(error) => error,
    }
}

/// The status of every failure of uhr's own.
const OWN_FAILURE: u8 = 125;

fn record(args: &RecordArgs, interrupts: Interrupts) -> Result<u8> {
    let user = args.as_user.as_deref().map(account::user).transpose()?;
    let folder = output_folder::choose(args)?;
    let mut ending = Ending::new(args.duration, interrupts);
    if args.command.is_empty() {
        let target = match &args.cgroup {
            Some(path) => Target::Cgroup(CgroupTarget::find(path).map_err(failure)?),
            None if args.all => Target::Machine,
            None => Target::Processes(args.pid.clone()),
        };
        let mut recorder = Recorder::start(&options(args, target), &folder).map_err(failure)?;
        let mut progress = Progress::new();
        ending.start();
        let result = recorder.run(&mut || {
            progress.tick();
            ending.go_on()
        });
        progress.clear();
        let manifest = conclude(recorder, result, &folder)?;
        return summary::report(args, &folder, &manifest, None).map(|()| 0);
    }
    let held = HeldChild::fork(&args.command, user.as_ref()).map_err(failure)?;
    let program = args.command.first().and_then(|name| find_program(name)).unwrap_or_default();
    let target = Target::Child { pid: held.pid(), program };
    let mut recorder = Recorder::start(&options(args, target), &folder).map_err(failure)?;
    let mut child = match held.release() {
        Ok(child) => child,
        Err(error) => {
            drop(recorder);
            let _ = std::fs::remove_dir_all(&folder);
            return Err(failure(error));
        }
    };
    ending.start();
    let mut status = None;
    let result = recorder.run(&mut || {
        status = child.wait(Duration::ZERO).ok().flatten();
        status.is_none() && ending.go_on()
    });
    ending.tell(&child);
    let manifest = conclude(recorder, result, &folder);
    let status = match status {
        Some(status) => status,
        None => wait_for(&mut child, &mut ending)?,
    };
    let manifest = manifest?;
    // The shell, which would say so, sees only that uhr has ended. (Of these two it says nothing either.)
    let is_told = status.signal().is_some_and(|signal| ![libc::SIGINT, libc::SIGPIPE].contains(&signal));
    if ending.reason().is_none() && is_told {
        output::say(&format!("uhr: the command was ended by {status}"));
    }
    summary::report(args, &folder, &manifest, Some(status))?;
    Ok(if ending.reason() == Some(Reason::Duration) { 0 } else { exit_status(status) })
}

fn options(args: &RecordArgs, target: Target) -> Options {
    Options {
        target,
        sampler: match args.sampler {
            Sampler::Auto => SamplerChoice::Auto,
            Sampler::Perf => SamplerChoice::Perf,
            Sampler::Ebpf => SamplerChoice::Ebpf,
        },
        frequency: args.frequency,
        unwind: match args.unwind {
            Unwind::Auto => UnwindChoice::Auto,
            Unwind::Fp => UnwindChoice::Fp,
            Unwind::Dwarf => UnwindChoice::Dwarf,
        },
        stack_size: args.stack_size,
        check_walks: args.check_walks,
        syscalls: args.syscalls,
        max_overhead: args.max_overhead,
    }
}

/// Ends the capture and finishes the recording. What went wrong on the way is told after as much as possible was saved.
fn conclude(recorder: Recorder, result: Result<(), CollectError>, folder: &Path) -> Result<Manifest> {
    let captured = match result {
        Ok(()) => recorder.finish(),
        Err(error) => {
            let _ = recorder.finish();
            Err(error)
        }
    };
    let Captured { held, .. } = captured.map_err(|error| kept(folder, error))?;
    let manifest = finish::finish(folder, &held).map_err(|error| kept(folder, error.into()))?;
    output_folder::give_to_caller(folder);
    let cpu = manifest.ledger.cpu;
    // At least five samples were expected and there is none: an empty profile is no success. Of threads that were each
    // too short for a sample none is expected; the kernel's own count of them is a little more than their exact time,
    // for it includes that of taking them apart (a tenth, measured on threads of 0.3 ms).
    let unavoidable = cpu.too_short.saturating_add(cpu.not_visible);
    let missing = cpu.expected.saturating_sub(unavoidable);
    if cpu.captured == 0 && missing >= 5 && missing > cpu.expected / 4 {
        return Err(Failure::new(
            Exit::Status(OWN_FAILURE),
            "nothing-captured",
            format!("{} samples were expected and none was captured", cpu.expected),
        )
        .next(overview_of(folder))
        .into());
    }
    Ok(manifest)
}

/// The command that looks at a recording.
fn overview_of(folder: &Path) -> String {
    format!("uhr overview {}", uhr_query::quoted(&folder.display().to_string()))
}

/// What was recorded before the error stays, and can be asked.
fn kept(folder: &Path, error: CollectError) -> anyhow::Error {
    output_folder::give_to_caller(folder);
    let text = format!("the recording ended early: {error}");
    Failure::new(Exit::Status(OWN_FAILURE), "recording-ended-early", text)
        .hint("what was recorded until then is kept")
        .next(overview_of(folder))
        .into()
}

/// Waits for the command after the recording has ended.
fn wait_for(child: &mut RunningChild, ending: &mut Ending) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.wait(Duration::from_millis(50))? {
            return Ok(status);
        }
        ending.insist(child);
    }
}

/// The status that a shell would show: the command's own, or 128 and the signal that ended it.
fn exit_status(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Words, advice and the status of what kept uhr from recording.
fn failure(error: CollectError) -> anyhow::Error {
    let own = |code: &str| Failure::new(Exit::Status(OWN_FAILURE), code, error.to_string());
    match &error {
        CollectError::Start { source, .. } => {
            let status = if source.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
            own("cannot-run").exit(Exit::Status(status))
        }
        CollectError::NoSuchProcess { .. } | CollectError::Ended { .. } => {
            own("no-such-process").hint("see the running processes: ps -e")
        }
        CollectError::NoSuchCgroup { similar, .. } if similar.is_empty() => {
            own("no-such-cgroup").hint("see the cgroups: systemd-cgls, or find /sys/fs/cgroup -type d")
        }
        CollectError::NoSuchCgroup { similar, .. } => {
            own("no-such-cgroup").hint(format!("there is {}", similar.join(", ")))
        }
        CollectError::Load(LoadError::NotPermitted { .. }) if !uhr_collect::host().root => {
            own("cannot-open-events").hint(format!("allow it: {SETCAP}")).next("uhr doctor")
        }
        CollectError::Open(_) | CollectError::Load(_) | CollectError::NeedsEbpf(_) => {
            own("cannot-open-events").next("uhr doctor")
        }
        CollectError::ForeignProc { .. } => {
            own("foreign-proc").hint("mount the namespace's own: unshare -rpf --mount-proc")
        }
        CollectError::Recording(RecordingError::Exists { .. }) => {
            own("exists").hint("name a new path with -o")
        }
        _ => own("failed"),
    }
    .into()
}
