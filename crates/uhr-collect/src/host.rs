//! The machine: what it is, its clocks, and how busy it was.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use uhr_recording::{Clock, Host, MachineLoad};

use crate::perf::monotonic_ns;

/// What the machine is.
pub fn host() -> Host {
    let line = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let memory_kb = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        text.lines()
            .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok())
    });
    Host {
        kernel: line("/proc/sys/kernel/osrelease"),
        architecture: std::env::consts::ARCH.to_owned(),
        cpus: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
        boot_id: line("/proc/sys/kernel/random/boot_id"),
        memory_bytes: memory_kb.unwrap_or(0) * 1024,
        root: crate::procfs::own_uid() == Some(0),
        perf_event_paranoid: line("/proc/sys/kernel/perf_event_paranoid").parse().ok(),
    }
}

/// Both clocks at one moment.
pub fn clock() -> Clock {
    let before = monotonic_ns();
    let realtime_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    Clock { monotonic_ns: before.midpoint(monotonic_ns()), realtime_ns }
}

/// Counters of the machine's pressure at one moment; the difference of two is what happened between them.
#[derive(Debug, Default)]
pub(crate) struct LoadCounters {
    pressure_us: BTreeMap<String, u64>,
    /// Where the cgroup's throttling is counted: the process is gone when it is read again.
    throttling: Option<Throttling>,
    throttled_ns: Option<u64>,
}

/// A counter of throttled time.
#[derive(Clone, Debug)]
struct Throttling {
    file: PathBuf,
    field: &'static str,
    /// Nanoseconds of its unit.
    unit_ns: u64,
}

impl LoadCounters {
    /// Reads them; `pid` is a process whose cgroup counts.
    pub(crate) fn read(pid: u32) -> Self {
        Self::read_with(throttling_of(pid))
    }

    fn read_with(throttling: Option<Throttling>) -> Self {
        let mut pressure_us = BTreeMap::new();
        for resource in ["cpu", "memory", "io"] {
            let text = std::fs::read_to_string(format!("/proc/pressure/{resource}")).unwrap_or_default();
            for line in text.lines() {
                let kind = line.split(' ').next().unwrap_or_default();
                if let Some(total) = line.rsplit_once("total=").and_then(|(_, total)| total.parse().ok()) {
                    pressure_us.insert(format!("{resource}.{kind}"), total);
                }
            }
        }
        let throttled_ns = throttling.as_ref().and_then(Throttling::read);
        Self { pressure_us, throttling, throttled_ns }
    }

    /// What happened since `self` was read.
    pub(crate) fn since(&self) -> MachineLoad {
        let now = Self::read_with(self.throttling.clone());
        let pressure_ns = now
            .pressure_us
            .iter()
            .filter_map(|(name, us)| {
                Some((name.clone(), us.saturating_sub(*self.pressure_us.get(name)?) * 1000))
            })
            .collect();
        let cgroup_throttled_ns =
            self.throttled_ns.zip(now.throttled_ns).map(|(start, end)| end.saturating_sub(start));
        let load = std::fs::read_to_string("/proc/loadavg").ok();
        let load_average = load.and_then(|text| text.split(' ').next()?.parse().ok());
        MachineLoad { pressure_ns, cgroup_throttled_ns, load_average }
    }
}

impl Throttling {
    fn read(&self) -> Option<u64> {
        let stat = std::fs::read_to_string(&self.file).ok()?;
        let value: u64 = stat.lines().find_map(|line| line.strip_prefix(self.field)?.trim().parse().ok())?;
        value.checked_mul(self.unit_ns)
    }
}

/// Where the time is counted that a CPU quota keeps the process's cgroup from running, on either version of the
/// hierarchy.
fn throttling_of(pid: u32) -> Option<Throttling> {
    let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    cgroups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let path = path.trim_start_matches('/');
        let (root, field, unit_ns) = match controllers {
            "" => ("/sys/fs/cgroup", "throttled_usec ", 1000),
            list if list.split(',').any(|name| name == "cpu") => ("/sys/fs/cgroup/cpu", "throttled_time ", 1),
            _ => return None,
        };
        let file = PathBuf::from(root).join(path).join("cpu.stat");
        let counter = Throttling { file, field, unit_ns };
        counter.read().map(|_| counter)
    })
}
