//! Keeps what recording costs below what was asked for, by taking less: fewer samples a second, fewer looks at waiting
//! threads, no windows of counting system calls. What samples and waits stand for does not change with it.

use std::time::{Duration, Instant};

use uhr_ebpf::Sampler;

use crate::perf::process_cpu_ns;

/// How often the cost is looked at.
const WINDOW: Duration = Duration::from_secs(1);
/// Halvings of the rates, at most: 999 samples a second become 31.
const SLOWEST: u32 = 5;
/// Below this part of the limit for so many windows, rates go up again.
const CALM: f64 = 0.35;
const CALM_WINDOWS: u32 = 5;

/// Watches the cost, where there is a limit.
#[derive(Debug)]
pub(crate) struct Overhead {
    /// As a share of the time of all CPUs.
    limit: f64,
    cpus: f64,
    /// Samples a second and CPU, where nothing is lowered.
    frequency: u32,
    since: Instant,
    cpu_ns: u64,
    /// Time of the programs in the kernel in the windows in which they were measured, and the length of those.
    programs: (u64, Duration),
    calm: u32,
    /// Rates are halved so often.
    level: u32,
    kept: Kept,
}

/// How the limit was kept.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Kept {
    /// The most that rates were halved.
    pub(crate) level: u32,
    /// How long they were lowered.
    pub(crate) lowered: Duration,
    /// Cost over the time that was watched, as a share of all CPUs.
    pub(crate) spent: Duration,
    pub(crate) watched: Duration,
    /// The cost of the last window, if it was too much even at the lowest rates.
    pub(crate) still_too_much: Option<f64>,
}

impl Overhead {
    pub(crate) fn new(limit: f64, cpus: usize, frequency: u32) -> Self {
        Self {
            limit,
            cpus: cpus.max(1) as f64,
            frequency,
            since: Instant::now(),
            cpu_ns: process_cpu_ns(),
            programs: Default::default(),
            calm: 0,
            level: 0,
            kept: Kept::default(),
        }
    }

    /// How it was kept so far.
    pub(crate) fn kept(&self) -> Kept {
        self.kept
    }

    /// Looks at the cost if it is time to, and sets the clocks by it; gives the number of halvings if it changes.
    pub(crate) fn take(&mut self, sampler: &Sampler) -> Option<u32> {
        let elapsed = self.since.elapsed();
        if elapsed < WINDOW {
            return None;
        }
        let cpu_ns = process_cpu_ns();
        let programs = sampler.costs().map_or((0, Duration::ZERO), |(costs, measured)| {
            (costs.iter().map(|cost| cost.ns).sum(), measured)
        });
        let measured = programs.1.saturating_sub(self.programs.1);
        let in_kernel = programs.0.saturating_sub(self.programs.0) as f64 / measured.as_nanos().max(1) as f64;
        let own = cpu_ns.saturating_sub(self.cpu_ns) as f64 / elapsed.as_nanos().max(1) as f64;
        (self.since, self.cpu_ns, self.programs) = (Instant::now(), cpu_ns, programs);
        let share = (own + in_kernel) / self.cpus;
        self.kept.watched += elapsed;
        self.kept.spent += elapsed.mul_f64(share);
        if self.level > 0 {
            self.kept.lowered += elapsed;
        }
        let level = self.next_level(share)?;
        // If the kernel refuses, the cost stays, and is told.
        let _ = sampler.set_frequency((self.frequency >> level).max(1));
        Some(level)
    }

    fn next_level(&mut self, share: f64) -> Option<u32> {
        let before = self.level;
        self.kept.still_too_much = None;
        if share > self.limit {
            self.calm = 0;
            let halvings = (share / self.limit).log2().ceil().max(1.0) as u32;
            self.level = (self.level + halvings).min(SLOWEST);
            if before == SLOWEST {
                self.kept.still_too_much = Some(share);
            }
        } else if share < self.limit * CALM && self.level > 0 {
            self.calm += 1;
            if self.calm >= CALM_WINDOWS {
                (self.level, self.calm) = (self.level - 1, 0);
            }
        } else {
            self.calm = 0;
        }
        self.kept.level = self.kept.level.max(self.level);
        (self.level != before).then_some(self.level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_fall_at_once_and_rise_when_it_has_been_calm() {
        let mut overhead = Overhead::new(0.01, 2, 999);
        assert_eq!(overhead.next_level(0.009), None);
        assert_eq!(overhead.next_level(0.035), Some(2), "four times as much: a quarter of the rates");
        assert_eq!(overhead.next_level(0.011), Some(3));
        assert_eq!(overhead.next_level(0.006), None);
        let calm: Vec<_> = (0..6).map(|_| overhead.next_level(0.002)).collect();
        assert_eq!(calm, [None, None, None, None, Some(2), None]);
        assert_eq!(overhead.next_level(0.9), Some(SLOWEST));
        assert_eq!(overhead.kept().still_too_much, None);
        assert_eq!(overhead.next_level(0.02), None);
        assert_eq!(overhead.kept().still_too_much, Some(0.02));
    }
}
