//! What this user may do on this host, and who forbids the rest.

use std::fs;
use std::io;
use std::str::FromStr;

use perf_event_open_sys::bindings as b;

use super::sys;

/// Why the kernel refused perf events.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// A kernel of Debian or Ubuntu with a level above 2.
    #[error(
        "perf_event_open is refused: kernel.perf_event_paranoid is {value}, which forbids it to ordinary users; \
         2 or lower is needed, or root, or CAP_PERFMON"
    )]
    Paranoid {
        /// The level.
        value: i32,
    },
    /// A filter of a container or sandbox.
    #[error("perf_event_open is refused by a seccomp filter, as containers set one up ({error})")]
    Seccomp {
        /// The kernel's answer.
        error: String,
    },
    /// The kernel has no perf events.
    #[error("perf_event_open does not exist: this kernel was built without perf events")]
    NotBuiltIn,
    /// Nothing else explains it.
    #[error(
        "perf_event_open is refused ({error}) although kernel.perf_event_paranoid ({}) allows it: a security module \
         such as SELinux forbids it",
        .paranoid.map_or_else(|| "unreadable".to_owned(), |p| p.to_string())
    )]
    SecurityModule {
        /// The kernel's answer.
        error: String,
        /// The level.
        paranoid: Option<i32>,
    },
    /// The target is somebody else's.
    #[error(
        "thread {tid} may not be looked into: its process belongs to another user, or runs with other privileges \
         than it was started with; this needs root or CAP_PERFMON"
    )]
    OtherUser {
        /// The thread.
        tid: u32,
    },
    /// The whole machine needs more than a process.
    #[error(
        "the whole machine may not be looked into: that needs root, CAP_PERFMON or kernel.perf_event_paranoid at \
         most 0{}", .paranoid.map_or_else(String::new, |p| format!(" (it is {p})"))
    )]
    WholeMachine {
        /// The level.
        paranoid: Option<i32>,
    },
}

impl Refusal {
    /// The command, or the option of the container's command, that allows it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Paranoid { .. } => Some("sudo sysctl kernel.perf_event_paranoid=2"),
            Self::Seccomp { .. } => {
                Some("start the container with --cap-add PERFMON, or with --security-opt seccomp=unconfined")
            }
            Self::WholeMachine { .. } => Some("sudo sysctl kernel.perf_event_paranoid=0"),
            Self::OtherUser { .. } => Some("run uhr with sudo"),
            Self::NotBuiltIn | Self::SecurityModule { .. } => None,
        }
    }

    /// Finds the reason for `error`, which the kernel gave for `pid` (-1: the whole machine). `None`: it is not about
    /// permission.
    pub(super) fn explain(error: &io::Error, pid: i32) -> Option<Self> {
        if !matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::ENOSYS)) {
            return None;
        }
        // What is refused for this very thread is refused altogether; otherwise it is about the target.
        Some(match try_event(0, -1, false) {
            Err(own) => Self::of_host(&own),
            Ok(()) if pid == -1 => Self::WholeMachine { paranoid: paranoid() },
            Ok(()) => Self::OtherUser { tid: pid.cast_unsigned() },
        })
    }

    fn of_host(error: &io::Error) -> Self {
        Self::classify(error, paranoid(), has_seccomp_filter())
    }

    fn classify(error: &io::Error, paranoid: Option<i32>, is_filtered: bool) -> Self {
        let answer = error.raw_os_error();
        match paranoid {
            None if answer == Some(libc::ENOSYS) && !is_filtered => Self::NotBuiltIn,
            // A kernel that has the setting has the call.
            _ if answer == Some(libc::ENOSYS) => Self::Seccomp { error: error.to_string() },
            // The kernel's own refusal is EACCES; filters answer with EPERM.
            Some(value) if value > 2 && (answer == Some(libc::EACCES) || !is_filtered) => {
                Self::Paranoid { value }
            }
            _ if is_filtered => Self::Seccomp { error: error.to_string() },
            _ => Self::SecurityModule { error: error.to_string(), paranoid },
        }
    }
}

/// What this user may do on this host, found by trying.
#[derive(Clone, Debug)]
pub struct Access {
    /// Whether own processes may be sampled at all, user code only.
    pub own_processes: Result<(), Refusal>,
    /// Whether the kernel's part is visible too.
    pub kernel: bool,
    /// Whether the whole machine may be recorded.
    pub whole_machine: bool,
    /// `kernel.perf_event_paranoid`.
    pub paranoid: Option<i32>,
    /// `kernel.perf_event_max_sample_rate`: the most samples a second.
    pub max_sample_rate: Option<u32>,
    /// `kernel.perf_event_mlock_kb`: KiB of rings a CPU that all profilers of an ordinary user share.
    pub ring_kb_a_cpu: Option<u32>,
}

impl Access {
    /// Tries the calls. Opens nothing that stays.
    pub fn probe() -> Self {
        let own = try_event(0, -1, false);
        Self {
            own_processes: own.map_err(|error| Refusal::of_host(&error)),
            kernel: try_event(0, -1, true).is_ok(),
            whole_machine: online_cpus().first().is_some_and(|&cpu| try_event(-1, cpu, false).is_ok()),
            paranoid: paranoid(),
            max_sample_rate: setting("perf_event_max_sample_rate"),
            ring_kb_a_cpu: setting("perf_event_mlock_kb"),
        }
    }
}

fn try_event(pid: i32, cpu: i32, with_kernel: bool) -> io::Result<()> {
    let mut attr = b::perf_event_attr {
        type_: b::PERF_TYPE_SOFTWARE,
        size: size_of::<b::perf_event_attr>() as u32,
        config: u64::from(b::PERF_COUNT_SW_CPU_CLOCK),
        ..b::perf_event_attr::default()
    };
    attr.set_disabled(1);
    attr.set_exclude_hv(1);
    attr.set_exclude_guest(1);
    attr.set_exclude_kernel(u64::from(!with_kernel));
    sys::open_event(&attr, pid, cpu).map(drop)
}

/// `kernel.perf_event_paranoid`.
pub(super) fn paranoid() -> Option<i32> {
    setting("perf_event_paranoid")
}

/// A number in /proc/sys/kernel.
pub(super) fn setting<N: FromStr>(name: &str) -> Option<N> {
    fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse().ok()
}

fn has_seccomp_filter() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_some_and(|mode| mode.trim() == "2")
}

/// The CPUs that are online, by number. Empty if the kernel does not tell.
pub(crate) fn online_cpus() -> Vec<i32> {
    let listed = parse_cpus(&fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default());
    if !listed.is_empty() {
        return listed;
    }
    // A chroot or a small container may have no /sys.
    cpus_of_stat(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// The CPUs that `/proc/stat` has a line of.
fn cpus_of_stat(stat: &str) -> Vec<i32> {
    let number = |line: &str| line.strip_prefix("cpu")?.split(' ').next()?.parse().ok();
    stat.lines().filter_map(number).collect()
}

/// Parses a list such as `0-3,8`.
fn parse_cpus(list: &str) -> Vec<i32> {
    /// More than any kernel supports (NR_CPUS is at most 8192).
    const MOST: i32 = 1 << 16;
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<i32>().ok()?.max(0)..=last.parse::<i32>().ok()?.min(MOST))
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpus("0-1\n"), [0, 1]);
        assert_eq!(parse_cpus("0,2-4,7"), [0, 2, 3, 4, 7]);
        assert_eq!(parse_cpus(""), [0; 0]);
        assert_eq!(parse_cpus("x,-1,3"), [3]);
        assert_eq!(cpus_of_stat("cpu  1 2\ncpu0 1 2\ncpu3 1 2\nintr 5\n"), [0, 3]);
    }

    #[test]
    fn who_refuses() {
        let who = |errno, paranoid, is_filtered| {
            Refusal::classify(&io::Error::from_raw_os_error(errno), paranoid, is_filtered)
        };
        assert_eq!(who(libc::EACCES, Some(3), false), Refusal::Paranoid { value: 3 });
        assert_eq!(who(libc::EACCES, Some(4), true), Refusal::Paranoid { value: 4 });
        assert!(matches!(who(libc::EPERM, Some(4), true), Refusal::Seccomp { .. }));
        assert!(matches!(who(libc::EPERM, Some(2), true), Refusal::Seccomp { .. }));
        assert!(matches!(who(libc::ENOSYS, Some(2), true), Refusal::Seccomp { .. }));
        assert!(matches!(who(libc::EACCES, Some(2), false), Refusal::SecurityModule { .. }));
        assert_eq!(who(libc::ENOSYS, None, false), Refusal::NotBuiltIn);
        let hint = Refusal::Paranoid { value: 3 }.hint();
        assert_eq!(hint, Some("sudo sysctl kernel.perf_event_paranoid=2"));
    }

    #[test]
    fn a_missing_event_is_not_a_refusal() {
        let error = io::Error::from_raw_os_error(libc::ENOENT);
        assert_eq!(Refusal::explain(&error, 1), None);
    }
}
