//! The clock by which waiting threads are looked at.

use std::time::{Duration, Instant};

use crate::jitter::Jitter;

/// The shortest distance of two looks.
const SHORTEST: Duration = Duration::from_millis(40);
/// The longest, with thousands of threads.
const LONGEST: Duration = Duration::from_secs(1);
/// A look may take one part in so many of one CPU;
const SHARE: u32 = 200;
/// and one in so many while there are threads that no look has come by yet.
const SHARE_BEHIND: u32 = 50;

/// Stacks of waits that are taken as the waits begin, a second. Each costs some 5 us.
const LOTS_A_SECOND: f64 = 200.0;

/// The share of waits whose stack is taken as they begin, by how many waits there are.
#[derive(Debug)]
pub(crate) struct Lot {
    share: f64,
    waits: u64,
    since: Instant,
    /// So many times fewer.
    slowness: u32,
}

impl Lot {
    /// Until it is known how many there are, few enough for a program that does nothing but wait.
    pub(crate) fn new() -> Self {
        Self { share: 0.02, waits: 0, since: Instant::now(), slowness: 1 }
    }

    /// The share.
    pub(crate) fn share(&self) -> f64 {
        self.share
    }

    /// From now on so many times fewer are drawn than usual.
    pub(crate) fn slow_down(&mut self, times: u32) {
        self.slowness = times;
    }

    /// Whether it is time to say how many waits there were.
    pub(crate) fn is_due(&self) -> bool {
        self.since.elapsed() >= Duration::from_millis(100)
    }

    /// So many waits have begun since the programs were started.
    pub(crate) fn saw(&mut self, waits: u64) {
        let passed = self.since.elapsed().as_secs_f64();
        let rate = waits.saturating_sub(self.waits) as f64 / passed.max(0.001);
        // Down at once, up slowly: a burst costs most at its beginning.
        let wanted = (LOTS_A_SECOND / f64::from(self.slowness) / rate.max(1.0)).min(1.0);
        self.share = wanted.min(self.share * 2.0);
        (self.waits, self.since) = (waits, Instant::now());
    }
}

/// When to look next. The distance varies by a tenth around its mean, so that no program can keep step with it: one that
/// sleeps for exactly as long as the clock's period would always be seen, or never.
#[derive(Debug)]
pub(crate) struct LookClock {
    period: Duration,
    next: Instant,
    jitter: Jitter,
    /// So many times more seldom.
    slowness: u32,
}

impl LookClock {
    pub(crate) fn new(seed: u64) -> Self {
        Self { period: SHORTEST, next: Instant::now(), jitter: Jitter::new(seed), slowness: 1 }
    }

    /// How long until the next look.
    pub(crate) fn remaining(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// The mean distance of two looks.
    pub(crate) fn period_ns(&self) -> u64 {
        self.period.as_nanos() as u64
    }

    /// From now on there are so many times fewer looks than usual.
    pub(crate) fn slow_down(&mut self, times: u32) {
        self.slowness = times;
    }

    /// A look was taken, took so much CPU time, and came by all threads or not.
    pub(crate) fn looked(&mut self, took: Duration, saw_all: bool) {
        let share = self.slowness * if saw_all { SHARE } else { SHARE_BEHIND };
        let wanted = (took * share).max(SHORTEST * self.slowness).min(LONGEST);
        // One long look (a new process with many threads) is no reason to look away for long.
        self.period = (self.period * 7 + wanted) / 8;
        self.next += self.period.mul_f64(self.jitter.between(0.9, 1.1));
        // After a pause (the machine slept, the reader was kept waiting) missed looks are not made up for.
        self.next = self.next.max(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_apart_by_the_period_and_a_tenth() {
        let mut clock = LookClock::new(7);
        for _ in 0..1000 {
            let before = clock.next;
            clock.looked(Duration::from_micros(10), true);
            assert!(clock.next >= before + SHORTEST.mul_f64(0.9));
        }
        assert_eq!(clock.period, SHORTEST);
    }

    #[test]
    fn the_slowest_looks_are_no_slower_than_the_longest_distance() {
        let mut clock = LookClock::new(7);
        clock.slow_down(1 << 10);
        (0..100).for_each(|_| clock.looked(Duration::from_micros(10), true));
        assert!(clock.period > LONGEST.mul_f64(0.9) && clock.period <= LONGEST);
    }

    #[test]
    fn a_costly_look_is_taken_less_often() {
        let mut clock = LookClock::new(7);
        (0..100).for_each(|_| clock.looked(Duration::from_millis(1), true));
        assert!(clock.period > Duration::from_millis(190) && clock.period < Duration::from_millis(201));
    }
}
