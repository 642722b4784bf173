//! What the host says of itself, gathered once. Judging it ([`super::host`]) is then a matter of values.

use std::fs;
use std::path::Path;

use uhr_collect::Feature;
use uhr_collect::perf::Access;

use crate::kernel_names;

/// What the host says of itself and of this user.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// What perf events grant, found by trying.
    pub(super) access: Access,
    /// Which of uhr's own programs the kernel takes, or why none can be tried.
    pub(super) ebpf: Result<Vec<Feature>, String>,
    /// Release of the kernel.
    pub(super) kernel: String,
    /// CPUs that are online.
    pub(super) cpus: u32,
    /// Whether uhr runs as root.
    pub(super) is_root: bool,
    /// Whether this process may look into others whatever Yama says (CAP_SYS_PTRACE).
    pub(super) may_ptrace: bool,
    /// `kernel.yama.ptrace_scope`; missing where there is no Yama.
    pub(super) ptrace_scope: Option<u32>,
    /// Whether `/proc/kallsyms` shows addresses.
    pub(super) kernel_symbols: bool,
    /// `kernel.kptr_restrict`.
    pub(super) kptr_restrict: Option<u32>,
    /// The command that makes them have some.
    pub(super) kernel_names_remedy: Option<String>,
    /// Whether the machine counts cycles.
    pub(super) counts_cycles: bool,
    /// The most files that this process may open.
    pub(super) open_files: Option<u64>,
    /// The kind of container, where it shows.
    pub(super) container: Option<String>,
    /// Whether `/proc` shows the pid namespace that uhr runs in.
    pub(super) proc_is_own: bool,
    /// Whether the kernel tells how its tasks stall (`/proc/pressure`).
    pub(super) tells_pressure: bool,
    /// Whether the kernel tells how long threads wait for a CPU (`/proc/PID/schedstat`).
    pub(super) tells_run_delay: bool,
    /// Whether separate debug files are installed.
    pub(super) has_debug_files: bool,
}

impl Facts {
    /// Asks the kernel and `/proc`.
    pub(super) fn gather() -> Self {
        let status = text("/proc/self/status");
        Self {
            access: Access::probe(),
            ebpf: uhr_collect::features().map_err(|error| error.to_string()),
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
            is_root: effective_uid(&status) == Some(0),
            // CAP_SYS_PTRACE is bit 19 (include/uapi/linux/capability.h).
            may_ptrace: uhr_collect::effective_capabilities().is_some_and(|bits| bits & 1 << 19 != 0),
            ptrace_scope: number("/proc/sys/kernel/yama/ptrace_scope"),
            kernel_symbols: shows_addresses(),
            kptr_restrict: number("/proc/sys/kernel/kptr_restrict"),
            kernel_names_remedy: kernel_names::remedy_here(),
            counts_cycles: ["cpu", "cpu_core", "armv8_pmuv3_0"]
                .iter()
                .any(|pmu| Path::new("/sys/bus/event_source/devices").join(pmu).exists()),
            open_files: open_files(&text("/proc/self/limits")),
            container: container(),
            proc_is_own: fs::read_link("/proc/self")
                .is_ok_and(|own| own == Path::new(&std::process::id().to_string())),
            tells_pressure: Path::new("/proc/pressure/cpu").exists(),
            tells_run_delay: text("/proc/self/schedstat").split_whitespace().count() >= 2,
            has_debug_files: Path::new("/usr/lib/debug/.build-id").exists(),
        }
    }

    /// Major and minor version of the kernel.
    pub(super) fn kernel_version(&self) -> Option<(u32, u32)> {
        let mut numbers = self.kernel.split(|c: char| !c.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }
}

/// The second number of `Uid:` in `/proc/PID/status`: real, effective, saved, file system.
pub(super) fn effective_uid(status: &str) -> Option<u32> {
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    uids.split_whitespace().nth(1)?.parse().ok()
}

/// The first word behind a name in `/proc/PID/status`.
pub(super) fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()
}

/// A file of `/proc` as text; empty where it cannot be read.
pub(super) fn text(path: &str) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn number(path: &str) -> Option<u32> {
    text(path).trim().parse().ok()
}

/// The kernel shows zeros to those who may not see addresses, whatever the setting is called that decides it.
fn shows_addresses() -> bool {
    use std::io::Read;
    let mut start = [0; 4096];
    let Ok(read) = fs::File::open("/proc/kallsyms").and_then(|mut file| file.read(&mut start)) else {
        return false;
    };
    let lines = start[..read].split(|&byte| byte == b'\n').filter(|line| line.len() > 16);
    lines.into_iter().any(|line| line[..16].iter().any(|&digit| digit != b'0'))
}

/// The hard limit: uhr raises the soft one to it.
fn open_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let hard = line.split_whitespace().nth(1)?;
    if hard == "unlimited" { Some(u64::MAX) } else { hard.parse().ok() }
}

fn container() -> Option<String> {
    let marks = [("/.dockerenv", "docker"), ("/run/.containerenv", "podman")];
    let marked = marks.iter().find(|(path, _)| Path::new(path).exists()).map(|(_, kind)| (*kind).to_owned());
    let named = || std::env::var("container").ok().filter(|kind| !kind.is_empty());
    let kubernetes = || std::env::var_os("KUBERNETES_SERVICE_HOST").map(|_| "kubernetes".to_owned());
    marked.or_else(named).or_else(kubernetes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc() {
        let status = "Name:\ta\nUid:\t1000\t0\t0\t0\nSeccomp:\t2\nCapEff:\t000001ffffffffff\n";
        assert_eq!(effective_uid(status), Some(0));
        assert_eq!(field(status, "Seccomp:"), Some("2"));
        assert_eq!(
            open_files("Limit\nMax open files            1024                 1048576              files\n"),
            Some(1_048_576)
        );
        assert_eq!(open_files("Max open files  1024  unlimited files"), Some(u64::MAX));
    }
}
