//! What this kernel and this user can do, found out by trying.

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::LoadError;
use crate::loaded_programs::program_info;
use crate::loading::{load_whole, open, reason_of};
use crate::log;
use crate::options::{Options, Scope};
use crate::programs::{PARTS, Programs, REQUIRED, WALKER, instead, purpose};

/// One program or part of them, and whether the kernel takes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feature {
    /// Its name.
    pub program: String,
    /// What it is for.
    pub purpose: &'static str,
    /// What is done where it is missing, if anything.
    pub instead: Option<&'static str>,
    /// `None`: the kernel took it.
    pub refused: Option<Refused>,
}

impl Feature {
    fn of(program: String, refused: Option<Refused>) -> Self {
        Self { purpose: purpose(&program), instead: instead(&program), program, refused }
    }
}

/// Why the kernel did not take a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The kernel's or libbpf's words.
    pub reason: String,
    /// The reason is none of the program's: with other rights or more memory the kernel might take it.
    pub is_unsure: bool,
}

impl Refused {
    fn last(error: &str) -> Self {
        Self { reason: reason_of(error), is_unsure: log::has_no_verdict() }
    }

    /// The same, where nothing works without the program.
    pub(crate) fn of(self, program: String) -> LoadError {
        match self {
            Self { reason, is_unsure: true } => LoadError::Untold { program, reason },
            Self { reason, .. } => LoadError::Unsupported { program, reason },
        }
    }
}

/// Tries the programs: loads them and throws them away.
///
/// # Errors
/// [`LoadError`] where none can be tried.
pub fn features() -> Result<Vec<Feature>, LoadError> {
    check_rights()?;
    // All at once is the usual case, and ten times as fast.
    let Some(loaded) = load_whole(&tried_with())? else { return Ok(each()?.1) };
    let names: Vec<String> = loaded.object.progs().map(|program| text(program.name())).collect();
    let parts = PARTS.map(str::to_owned);
    let feature = |program: String| {
        let missing = loaded.missing.iter().find(|(absent, _)| *absent == program);
        let refused = missing.map(|(_, reason)| Refused { reason: reason.clone(), is_unsure: false });
        Feature::of(program, refused)
    };
    Ok(names.into_iter().chain(parts).map(feature).collect())
}

/// Tries each program by itself: the first version of them that can work without those that are refused.
pub(crate) fn each() -> Result<(Programs, Vec<Feature>), LoadError> {
    let options = Options { rows: false, ..tried_with() };
    let mut last = None;
    for &programs in Programs::tried() {
        let names: Vec<String> =
            open(&options, programs)?.progs().map(|program| text(program.name())).collect();
        let feature = |program: String| {
            let refused = refused(&program, &options, programs);
            Feature::of(program, refused)
        };
        let mut features: Vec<Feature> = names.into_iter().map(feature).collect();
        let parts = PARTS.into_iter().filter(|part| *part == WALKER || programs == Programs::Older);
        features.extend(parts.map(|part| {
            let reason = "it does not take all programs".to_owned();
            Feature::of(part.to_owned(), Some(Refused { reason, is_unsure: false }))
        }));
        let is_lost = |own: &Feature| own.refused.is_some() && REQUIRED.contains(&own.program.as_str());
        let is_enough = !features.iter().any(is_lost);
        last = Some((programs, features));
        if is_enough {
            break;
        }
    }
    last.ok_or_else(|| LoadError::at("finding programs")(io::ErrorKind::NotFound.into()))
}

/// As little memory as it takes.
fn tried_with() -> Options {
    Options { ring_bytes: 4096, ..Options::new(Scope::Machine, Vec::new()) }
}

fn text(name: &OsStr) -> String {
    name.to_string_lossy().into_owned()
}

fn refused(program: &str, options: &Options, programs: Programs) -> Option<Refused> {
    let mut open = match open(options, programs) {
        Ok(open) => open,
        Err(error) => return Some(Refused::last(&error.to_string())),
    };
    for mut other in open.progs_mut() {
        let is_it = other.name() == program;
        other.set_autoload(is_it);
    }
    open.load().err().map(|error| Refused::last(&error.to_string()))
}

/// CAP_SYS_ADMIN, CAP_PERFMON and CAP_BPF (include/uapi/linux/capability.h).
const CAPABILITIES: [(&str, u32); 3] = [("cap_sys_admin", 21), ("cap_perfmon", 38), ("cap_bpf", 39)];

/// The capabilities that this process has now, a bit each (include/uapi/linux/capability.h). `None`: there is no `/proc`.
pub fn effective_capabilities() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok())
}

/// Whether the rights are there, and what the programs stand on.
///
/// # Errors
/// [`LoadError::NotPermitted`] and [`LoadError::NoBtf`].
pub fn check_rights() -> Result<(), LoadError> {
    let effective = effective_capabilities().unwrap_or(0);
    let has = |bit: u32| effective >> bit & 1 == 1;
    let missing: Vec<&str> = CAPABILITIES
        .iter()
        .skip(1)
        .filter(|(_, bit)| !has(*bit) && !has(CAPABILITIES[0].1))
        .map(|row| row.0)
        .collect();
    if !missing.is_empty() {
        return Err(LoadError::NotPermitted { missing: missing.join(",") });
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(LoadError::NoBtf);
    }
    Ok(())
}

/// The inode number of uhr's pid namespace; 0 if it is the first.
pub(crate) fn pid_namespace() -> u64 {
    /// PROC_PID_INIT_INO (include/linux/proc_ns.h).
    const FIRST: u64 = 0xEFFF_FFFC;
    let own = std::fs::metadata("/proc/self/ns/pid").map_or(0, |file| file.ino());
    if own == FIRST { 0 } else { own }
}

/// What the kernel counted of a program.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunStats {
    /// Runs while they were measured.
    pub(crate) runs: u64,
    /// Their time.
    pub(crate) ns: u64,
    /// Runs left out because the program was at work on that CPU already.
    pub(crate) left_out: u64,
}

/// What the kernel counted of a program so far.
pub(crate) fn run_stats(program: BorrowedFd<'_>) -> Option<RunStats> {
    let found = program_info(program).ok()?;
    Some(RunStats { runs: found.run_cnt, ns: found.run_time_ns, left_out: found.recursion_misses })
}
