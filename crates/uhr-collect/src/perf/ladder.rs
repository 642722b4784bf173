//! Whether the stack of every switch is taken, or of one in so many.
//!
//! A program that hands a byte to and fro through a pipe switches 400,000 times a second, and a copy of 16 KiB of each
//! would be 6.5 GB. So every stack is taken only up to a rate.

use super::attr::THINNED_TO;
use super::event::EventKind;

/// Switches a second from which on not every one has its stack taken, where stacks are copied: 64 MB a second.
const MANY_COPIED: u64 = 4_000;
/// Where the kernel follows frame pointers, a stack is a hundredth of the bytes; what it costs is uhr's own time.
const MANY_FOLLOWED: u64 = 5 * MANY_COPIED;
const SECOND_NS: u64 = 1_000_000_000;
/// How long switches are counted before they are called too many.
const CROWD_NS: u64 = 100_000_000;
/// How long they must be half as few before every one has its stack again.
const CALM_NS: u64 = 2_000_000_000;

/// Decides, by how many switches come, whether every one has its stack taken or one in [`THINNED_TO`].
#[derive(Debug)]
pub(crate) struct Ladder {
    /// Switches a second that are too many.
    many: u64,
    thinned: bool,
    since_ns: u64,
    /// Samples since then.
    samples: u64,
}

impl Ladder {
    pub(crate) fn new(stacks_are_copied: bool, now_ns: u64) -> Self {
        let many = if stacks_are_copied { MANY_COPIED } else { MANY_FOLLOWED };
        Self { many, thinned: false, since_ns: now_ns, samples: 0 }
    }

    /// Whether one in so many has its stack taken now.
    pub(crate) fn is_thinned(&self) -> bool {
        self.thinned
    }

    /// The event that is on.
    pub(crate) fn kind(&self) -> EventKind {
        if self.thinned { EventKind::SwitchThinned } else { EventKind::Switch }
    }

    /// Takes in how many samples of that event a pass brought; says whether to change to the other now.
    pub(crate) fn see(&mut self, samples: u64, now_ns: u64) -> bool {
        self.samples += samples;
        let elapsed_ns = now_ns.saturating_sub(self.since_ns);
        let (window_ns, change) = if self.thinned {
            let seen = self.samples.saturating_mul(THINNED_TO);
            (CALM_NS, elapsed_ns >= CALM_NS && seen < self.many / 2 * CALM_NS / SECOND_NS)
        } else {
            // Not only once the time is over: a ring of 8 MiB holds 500 copies.
            (CROWD_NS, self.samples > self.many * CROWD_NS / SECOND_NS)
        };
        self.thinned ^= change;
        if change || elapsed_ns >= window_ns {
            (self.since_ns, self.samples) = (now_ns, 0);
        }
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASS_NS: u64 = 10_000_000;

    /// Runs passes at a steady rate of switches for so long; gives the times, in ms, at which the ladder changed.
    fn run(ladder: &mut Ladder, now_ns: &mut u64, rate: u64, milliseconds: u64) -> Vec<u64> {
        let mut changes = Vec::new();
        for pass in 1..=milliseconds / 10 {
            let every = if ladder.thinned { THINNED_TO } else { 1 };
            let until = |pass: u64| pass * rate / 100 / every;
            *now_ns += PASS_NS;
            if ladder.see(until(pass) - until(pass - 1), *now_ns) {
                changes.push(pass * 10);
            }
        }
        changes
    }

    #[test]
    fn it_thins_above_4000_a_second_and_takes_every_one_again_below_2000() {
        let (mut ladder, mut now) = (Ladder::new(true, 0), 0);
        assert_eq!(run(&mut ladder, &mut now, 3_900, 5_000), [0_u64; 0]);
        assert_eq!(run(&mut ladder, &mut now, 400_000, 5_000), [10], "at once");
        assert!(ladder.thinned);
        assert_eq!(run(&mut ladder, &mut now, 2_500, 10_000), [0_u64; 0], "fewer, but not few");
        let back = run(&mut ladder, &mut now, 1_800, 10_000);
        assert!(matches!(back[..], [2_000..=4_000]), "{back:?}");
        assert!(!ladder.thinned);
    }

    #[test]
    fn a_burst_of_some_hundred_switches_keeps_all_its_stacks() {
        let mut ladder = Ladder::new(true, 0);
        assert!(!ladder.see(400, PASS_NS));
        assert!(ladder.see(1, 2 * PASS_NS));
    }
}
