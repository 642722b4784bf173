//! Stacks are taken of some waits only; what each of them stands for.

/// How likely it was that the stack of a wait was taken.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Chance {
    /// It was drawn as it began. Otherwise the clock met it.
    pub is_by_lot: bool,
    /// The share of waits that are drawn.
    pub lot: f64,
    /// The time between two looks of the clock at this thread.
    pub period_ns: u64,
    /// A wait is the clock's only if it goes on for so long after the look: then its stack was surely read before it was
    /// over, so that the chance of waits of one length is the same for all.
    pub least_ns: u64,
}

impl Chance {
    /// [`Self::least_ns`] where the programs in the kernel read the stack: some 10 us.
    pub const LEAST_NS: u64 = 50_000;
    /// The same where uhr reads the program's part from outside, as soon as it hears of the look.
    pub const LEAST_FROM_OUTSIDE_NS: u64 = 2_000_000;

    /// What a wait of this length stands for: its length divided by the chance that it was taken (Horvitz and Thompson,
    /// 1952): that of the lot, else of the clock, which meets a moment of it that lies before its last [`Self::least_ns`].
    /// `left_ns` is how long it went on after it was taken. `None`: it does not count as taken.
    pub fn weight_ns(self, length_ns: u64, left_ns: u64) -> Option<u64> {
        if !self.is_by_lot && left_ns < self.least_ns {
            return None;
        }
        let within_sight = length_ns.saturating_sub(self.least_ns) as f64;
        let by_clock = (within_sight / self.period_ns.max(1) as f64).min(1.0);
        let chance = self.lot + (1.0 - self.lot) * by_clock;
        // It is 0 only for events that were made up.
        Some(if chance > 0.0 { ((length_ns as f64 / chance) as u64).max(length_ns) } else { length_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean of what is seen of a wait is its length, whatever the length: looked at by a clock whose ticks fall
    /// anywhere, and drawn by lot.
    #[test]
    fn what_is_taken_stands_for_all_of_its_length() {
        let period_ns = 10_000_000;
        let lots = [0.0, 0.01, 0.3, 1.0].map(|lot| (Chance::LEAST_NS, lot));
        for (least_ns, lot) in lots.into_iter().chain([(Chance::LEAST_FROM_OUTSIDE_NS, 0.01)]) {
            for length_ns in [200_000, 1_000_000, 9_000_000, 30_000_000_u64] {
                let by_lot =
                    Chance { is_by_lot: true, lot, period_ns, least_ns }.weight_ns(length_ns, length_ns);
                let mut mean = lot * by_lot.unwrap() as f64;
                let phases = 10_000;
                for phase in 0..phases {
                    let first_tick_ns = period_ns * phase / phases;
                    if first_tick_ns < length_ns {
                        let chance = Chance { is_by_lot: false, lot, period_ns, least_ns };
                        let weight = chance.weight_ns(length_ns, length_ns - first_tick_ns).unwrap_or(0);
                        mean += (1.0 - lot) * weight as f64 / phases as f64;
                    }
                }
                let ratio = mean / length_ns as f64;
                assert!((0.99..1.01).contains(&ratio), "{ratio} of {length_ns} ns, lot {lot}");
            }
        }
    }
}
