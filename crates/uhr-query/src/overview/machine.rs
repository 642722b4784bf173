//! Was the machine itself short of something?

use crate::answers::{Activity, Machine, share};
use crate::profile::Profile;
use crate::window::seconds;

/// Of the time that threads could run, the part they waited for a CPU that is worth a sentence.
const QUEUED: f64 = 0.1;
/// Share of the recording with some task stalled, from which on it is worth a sentence.
const CPU_PRESSURE: f64 = 0.25;
const OTHER_PRESSURE: f64 = 0.1;

/// In less than this a few delays look like a shortage.
pub(super) const SHORTEST_NS: u64 = 1_000_000_000;

pub(super) fn machine(profile: &Profile, activity: &Activity, window_ns: u64) -> Machine {
    let (host, load) = (&profile.manifest.host, &profile.manifest.load);
    let length = profile.end_ns - profile.start_ns();
    // It is read a little before the recording begins and after it has ended.
    let part = |ns: u64| share(ns, length).min(1.0);
    let pressure = load.pressure_ns.iter().map(|(resource, ns)| (resource.clone(), part(*ns)));
    let pressure = pressure.filter(|(_, share)| *share > 0.0);
    let pressure_share: std::collections::BTreeMap<String, f64> = pressure.collect();
    let mut reasons = Vec::new();
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let queued = share(activity.runqueue_ns, activity.on_cpu_ns.saturating_add(activity.runqueue_ns));
    if queued >= QUEUED {
        reasons.push(format!(
            "Its threads waited for a CPU for {} of the time they could run.",
            percent(queued)
        ));
    }
    if let Some(throttled) = load.cgroup_throttled_ns.filter(|throttled| share(*throttled, length) >= 0.01) {
        reasons.push(format!("The CPU quota of its cgroup stopped it for {}.", seconds(throttled)));
    }
    for (resource, &stalled) in &pressure_share {
        let (what, least) = match resource.as_str() {
            "cpu.some" => ("a CPU", CPU_PRESSURE),
            "memory.some" => ("memory", OTHER_PRESSURE),
            "io.some" => ("a disk", OTHER_PRESSURE),
            _ => continue,
        };
        if stalled >= least {
            reasons.push(format!(
                "Some task of the machine waited for {what} {} of the time.",
                percent(stalled)
            ));
        }
    }
    let starved = (window_ns >= SHORTEST_NS).then_some(!reasons.is_empty());
    if starved.is_none() {
        reasons.clear();
    }
    if let Some(load) = load.load_average.filter(|load| *load >= 1.5 * f64::from(host.cpus.max(1))) {
        reasons.push(format!("The load average at the end was {load:.1} on {} CPUs.", host.cpus));
    }
    Machine {
        starved,
        reasons,
        cpus: u64::from(host.cpus),
        memory_bytes: host.memory_bytes,
        pressure_share,
        cgroup_throttled_ns: load.cgroup_throttled_ns,
        load_average: load.load_average,
    }
}
