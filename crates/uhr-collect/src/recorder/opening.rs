//! Which sampler records a target, and its events, opened.

use uhr_ebpf::{Counting, LoadError, Sampler, Scope};
use uhr_recording::Settings;

use super::kernel_ledger::KernelSide;
use super::{Options, SamplerChoice, Target};
use crate::error::CollectError;
use crate::overhead::Overhead;
use crate::perf::{self, Session, Targets, UserStack};
use crate::procfs;
use crate::reader::Source;
use crate::unwind_choice::{UnwindChoice, choose, modules_of_process, modules_of_program};

/// One page fault in so many is sampled: a prime, so that no loop over pages keeps step with it.
pub(super) const FAULTS_A_SAMPLE: u64 = 61;

/// What was opened for a target.
pub(super) struct Opened {
    pub(super) source: Source,
    pub(super) settings: Settings,
    pub(super) kernel_side: KernelSide,
}

/// How user stacks are taken, and why.
struct Unwinding {
    by_frame_pointers: bool,
    reason: Option<String>,
}

impl Unwinding {
    fn of(options: &Options) -> Self {
        match options.unwind {
            UnwindChoice::Fp => Self { by_frame_pointers: true, reason: None },
            UnwindChoice::Dwarf => Self { by_frame_pointers: false, reason: None },
            UnwindChoice::Auto => {
                let (by_frame_pointers, reason) = choose(&modules_of(&options.target));
                Self { by_frame_pointers, reason: Some(reason) }
            }
        }
    }
}

impl Opened {
    /// Opens the events of the sampler that was asked for; where uhr may choose, those of its own programs if they can be
    /// loaded.
    pub(super) fn open(
        options: &Options,
        target: &Target,
        threads: &[(u32, Vec<u32>)],
    ) -> Result<Self, CollectError> {
        if options.sampler == SamplerChoice::Perf {
            if let Some(what) = needs_programs(options) {
                return Err(CollectError::NeedsEbpf(what));
            }
            return Self::perf(options, target, threads, None);
        }
        let may_choose = options.sampler == SamplerChoice::Auto && needs_programs(options).is_none();
        if may_choose && options.stack_size > uhr_ebpf::MAX_COPY_BYTES && options.unwind != UnwindChoice::Fp {
            let reason = format!("they copy at most {} KiB of a stack", uhr_ebpf::MAX_COPY_BYTES >> 10);
            return Self::perf(options, target, threads, Some(reason));
        }
        let opened = match uhr_ebpf::check_rights() {
            Ok(()) => Self::ebpf(options, target),
            // That an ordinary user may not is nothing to be told every time.
            Err(LoadError::NotPermitted { .. }) if may_choose && !crate::host().root => {
                return Self::perf(options, target, threads, None);
            }
            Err(error) => Err(error.into()),
        };
        match opened {
            Err(error) if may_choose => Self::perf(options, target, threads, Some(error.to_string())),
            opened => opened,
        }
    }

    fn perf(
        options: &Options,
        target: &Target,
        threads: &[(u32, Vec<u32>)],
        refused: Option<String>,
    ) -> Result<Self, CollectError> {
        let unwinding = Unwinding::of(options);
        let settings = perf::Settings {
            frequency: options.frequency,
            user_stack: if unwinding.by_frame_pointers {
                UserStack::FramePointers
            } else {
                UserStack::Copy { bytes: options.stack_size }
            },
            data_mappings: true,
            ..perf::Settings::default()
        };
        let tids: Vec<u32> = threads.iter().flat_map(|(_, tids)| tids.clone()).collect();
        let targets = match target {
            Target::Child { pid, .. } => Targets::Child { pid: *pid },
            Target::Processes(_) => Targets::Threads(&tids),
            // Only programs know a cgroup; see `needs_programs`.
            Target::Cgroup(_) | Target::Machine => Targets::WholeMachine,
        };
        let session = Session::open(targets, &settings)?;
        let granted = session.granted();
        let settings = Settings {
            sampler: "perf".to_owned(),
            frequency_hz: granted.frequency,
            stack_size: (!unwinding.by_frame_pointers).then_some(granted.stack_copy_bytes),
            kernel_visible: granted.kernel_visible,
            wait_stacks: if granted.switch_stacks { "switch" } else { "outside" }.to_owned(),
            ..settings_of(options, &unwinding)
        };
        let kernel_side = KernelSide { refused, ..KernelSide::default() };
        Ok(Self { source: Source { session, sampler: None, overhead: None }, settings, kernel_side })
    }

    fn ebpf(options: &Options, target: &Target) -> Result<Self, CollectError> {
        // By rows is cheap and right everywhere: there is nothing to choose.
        let unwinding = &Unwinding { by_frame_pointers: options.unwind == UnwindChoice::Fp, reason: None };
        let sideband = perf::Settings {
            frequency: options.frequency,
            data_mappings: true,
            sideband_only: true,
            ..perf::Settings::default()
        };
        let mut session = Session::open(Targets::WholeMachine, &sideband)?;
        let scope = scope(target)?;
        // Who is made from now on is told of; then the sampler begins, and with it the recording.
        session.enable().map_err(|source| CollectError::System { step: "enabling the events", source })?;
        // The limit of the host holds for the clock that runs the programs, too.
        let frequency = session.granted().frequency;
        let sampler = Sampler::start(&kernel_options(options, frequency, scope, unwinding))?;
        let settings = Settings {
            sampler: "ebpf".to_owned(),
            frequency_hz: frequency,
            stack_size: (!unwinding.by_frame_pointers)
                .then_some(options.stack_size.min(uhr_ebpf::MAX_COPY_BYTES)),
            kernel_visible: true,
            wait_stacks: if sampler.can_look() { "clock" } else { "none" }.to_owned(),
            syscalls: sampler
                .can_count()
                .then(|| if options.syscalls { "always" } else { "windows" }.to_owned()),
            ..settings_of(options, unwinding)
        };
        let kernel_side = KernelSide { missing: sampler.missing().to_vec(), ..KernelSide::default() };
        let cpus = perf::online_cpus().len();
        let overhead = options.max_overhead.map(|limit| Overhead::new(limit, cpus, frequency));
        Ok(Self { source: Source { session, sampler: Some(sampler), overhead }, settings, kernel_side })
    }
}

/// What only uhr's own programs can do, if any of it is asked for.
fn needs_programs(options: &Options) -> Option<&'static str> {
    if matches!(options.target, Target::Cgroup(_)) {
        Some("a cgroup is recorded")
    } else if options.syscalls {
        Some("system calls are counted")
    } else if options.max_overhead.is_some() {
        Some("overhead is kept to a limit")
    } else {
        None
    }
}

fn kernel_options(
    options: &Options,
    frequency: u32,
    scope: Scope,
    unwinding: &Unwinding,
) -> uhr_ebpf::Options {
    uhr_ebpf::Options {
        frequency,
        copy_bytes: options.stack_size,
        copies_too: options.check_walks,
        frame_pointers: unwinding.by_frame_pointers,
        fault_period: FAULTS_A_SAMPLE,
        counting: if options.syscalls { Counting::Always } else { Counting::InWindows },
        family: procfs::with_descendants,
        ..uhr_ebpf::Options::new(scope, perf::online_cpus())
    }
}

/// The target as the programs know it.
fn scope(target: &Target) -> Result<Scope, CollectError> {
    Ok(match target {
        Target::Child { pid, .. } => Scope::Command { pid: *pid },
        Target::Processes(pids) => Scope::Processes(pids.clone()),
        Target::Machine => Scope::Machine,
        Target::Cgroup(cgroup) => match cgroup.id {
            Some(id) => Scope::Cgroup { id, level: cgroup.level },
            // Of version 1 the kernel tells programs nothing: its processes now, and what they make.
            None => Scope::Processes(cgroup.processes()?),
        },
    })
}

fn settings_of(options: &Options, unwinding: &Unwinding) -> Settings {
    let (target, command, pids) = match &options.target {
        Target::Child { program, .. } => {
            ("command", Some(program.to_string_lossy().into_owned()), Vec::new())
        }
        Target::Processes(pids) => ("processes", None, pids.clone()),
        Target::Cgroup(cgroup) => ("cgroup", Some(cgroup.path.clone()), Vec::new()),
        Target::Machine => ("machine", None, Vec::new()),
    };
    Settings {
        frequency_asked_hz: options.frequency,
        unwind: if unwinding.by_frame_pointers { "fp" } else { "dwarf" }.to_owned(),
        unwind_reason: unwinding.reason.clone(),
        max_overhead: options.max_overhead,
        target: target.to_owned(),
        command,
        pids,
        ..Settings::default()
    }
}

fn modules_of(target: &Target) -> Vec<std::path::PathBuf> {
    match target {
        Target::Child { program, .. } => modules_of_program(program),
        Target::Processes(pids) => pids.iter().flat_map(|&pid| modules_of_process(pid)).collect(),
        Target::Cgroup(_) | Target::Machine => Vec::new(),
    }
}
