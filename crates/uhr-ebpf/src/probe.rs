//! What this kernel and this user can do, found out by trying.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::LoadError;
use crate::loading::open;
use crate::log;
use crate::options::{Options, Scope};

/// One program, and whether the kernel takes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feature {
    /// The program's name.
    pub program: String,
    /// What it is for.
    pub purpose: &'static str,
    /// Why the kernel refused it; `None`: it took it.
    pub refused: Option<String>,
}

/// What each program is for.
const PURPOSES: &[(&str, &str)] = &[
    ("on_tick", "CPU samples"),
    ("on_fault", "page faults"),
    ("on_switch", "time off CPU"),
    ("on_waking", "who ends a wait"),
    ("on_fork", "new threads and processes"),
    ("on_rename", "programs that are executed"),
    ("mark", "threads that run already"),
    ("tell_times", "sums of each thread"),
    ("look", "stacks of waits"),
    ("on_enter", "lengths of system calls"),
    ("on_exit", "counts of system calls"),
    ("on_last_call", "system calls of threads that end"),
    ("tell_calls", "sums of system calls"),
];

/// The part of all programs that walks user stacks, which a kernel can refuse while it takes the programs.
pub const WALKER: &str = "walker";
const WALKER_PURPOSE: (&str, &str) = (WALKER, "user stacks walked in the kernel");

/// What a program is for.
pub fn purpose(program: &str) -> &'static str {
    PURPOSES.iter().chain([&WALKER_PURPOSE]).find(|row| row.0 == program).map_or("some things", |row| row.1)
}

/// Tries each program: loads it and throws it away.
///
/// # Errors
/// [`LoadError`] where none can be tried.
pub fn features() -> Result<Vec<Feature>, LoadError> {
    check_rights()?;
    let mut options = Options::new(Scope::Machine, Vec::new());
    options.ring_bytes = 4096;
    // All at once is the usual case, and ten times as fast.
    let takes_walker = open(&options)?.load().is_ok();
    let walker = Feature {
        program: WALKER.to_owned(),
        purpose: WALKER_PURPOSE.1,
        refused: (!takes_walker).then(|| log::reason().unwrap_or_else(|| "it does not load".to_owned())),
    };
    options.rows = false;
    let takes_all = takes_walker || open(&options)?.load().is_ok();
    let feature = |&(program, purpose): &(&str, &'static str)| Feature {
        program: program.to_owned(),
        purpose,
        refused: if takes_all { None } else { refused(program, &options) },
    };
    Ok(PURPOSES.iter().map(feature).chain([walker]).collect())
}

fn refused(program: &str, options: &Options) -> Option<String> {
    let mut open = match open(options) {
        Ok(open) => open,
        Err(error) => return Some(error.to_string()),
    };
    for mut other in open.progs_mut() {
        let is_it = other.name() == program;
        other.set_autoload(is_it);
    }
    open.load().err().map(|error| log::reason().unwrap_or_else(|| error.to_string()))
}

/// CAP_SYS_ADMIN, CAP_PERFMON and CAP_BPF (include/uapi/linux/capability.h).
const CAPABILITIES: [(&str, u32); 3] = [("cap_sys_admin", 21), ("cap_perfmon", 38), ("cap_bpf", 39)];

/// Whether the rights are there, and what the programs stand on.
///
/// # Errors
/// [`LoadError::NotPermitted`] and [`LoadError::NoBtf`].
pub fn check_rights() -> Result<(), LoadError> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok())
        .unwrap_or(0);
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
    let mut found = libbpf_sys::bpf_prog_info::default();
    let mut bytes = size_of_val(&found) as u32;
    // SAFETY: the kernel fills at most `bytes` of a struct of that size; it has no pointers that it would follow, all are 0.
    let result =
        unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut found, &raw mut bytes) };
    (result == 0).then_some(RunStats {
        runs: found.run_cnt,
        ns: found.run_time_ns,
        left_out: found.recursion_misses,
    })
}
