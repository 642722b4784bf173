//! Where a clock looks at who waits (one look each period), a wait is caught with a probability that grows with its
//! length: min(1, d / T) for a wait of length d and a period T. What was caught stands, by Horvitz and Thompson, for its
//! length over that probability, max(d, T): the recorder has written that as the row's weight.
//!
//! The sum over what was caught is right on average and scatters. The exact sum is known: the recorder counts the waits
//! that were not caught, by thread, system call and second. A caught wait stands for itself, exactly, and with its
//! excess e = max(d, T) - d for others that were not caught. On average the excesses of a function add up to what it
//! waited without being caught: a wait of length d is caught in d / T of all cases and then adds T - d, which makes
//! d (1 - d / T), and with the probability 1 - d / T it is not caught and adds d to what is missing. So what is missing
//! is shared in proportion to the excesses. That ratio keeps the sums exact and takes away most of the scatter.
//!
//! Waits shorter than 50 us are over before the clock has read their stack. They are drawn by lot as they begin, and keep
//! to themselves: their sums are rows of their own, and so are their classes here.
//!
//! Sharing goes by parts of time first, so that a window and a timeline stay exact too; what is missing in a part in
//! which nothing was caught goes to the whole of its class.

use rustc_hash::FxHashMap;
use uhr_model::StackEnding;

use crate::Table;
use crate::manifest::Window;
use crate::tables::OffCpu;

/// Waits that are alike: of one thread, in one system call, within sight of the clock or not.
type Class = (u32, bool, Option<u32>, bool);

/// Shorter waits are out of sight of the clock (`UHR_SHORT_NS` in the recorder's `bpf/abi.h`).
const SHORT_NS: u64 = 50_000;

/// Parts of time of a recording, and the least length of one: what the recorder adds up spans about a second.
const PARTS: u64 = 60;
const LEAST_PART_NS: u64 = 1_000_000_000;

/// What is missing, and what it is shared by.
#[derive(Debug, Default, Clone, Copy)]
struct Share {
    missing_ns: u128,
    excess_ns: u128,
    /// The excess of the rows that have had their share.
    so_far_ns: u128,
}

impl Share {
    /// The next row's share; the shares of all rows add up to what is missing.
    fn next(&mut self, excess_ns: u64) -> u128 {
        if self.excess_ns == 0 {
            return 0;
        }
        let shared = |so_far_ns: u128| self.missing_ns * so_far_ns / self.excess_ns;
        let next_ns = self.so_far_ns + u128::from(excess_ns);
        let share = shared(next_ns) - shared(self.so_far_ns);
        self.so_far_ns = next_ns;
        share
    }
}

/// The shares of every class and part of time.
#[derive(Debug)]
pub struct ClockShares {
    part_ns: u64,
    in_part: FxHashMap<(Class, u64), Share>,
    in_class: FxHashMap<Class, Share>,
}

impl ClockShares {
    pub(crate) fn new(window: Window) -> Self {
        let length_ns = window.end_ns.saturating_sub(window.start_ns);
        let part_ns = length_ns.div_ceil(PARTS).max(LEAST_PART_NS);
        Self { part_ns, in_part: FxHashMap::default(), in_class: FxHashMap::default() }
    }

    /// Takes rows in.
    pub(crate) fn learn(&mut self, rows: &OffCpu) {
        for row in 0..rows.len() {
            let class = class(rows, row);
            let part = self.in_part.entry((class, rows.start_ns[row] / self.part_ns)).or_default();
            let whole = self.in_class.entry(class).or_default();
            if was_missed(rows, row) {
                part.missing_ns += u128::from(rows.duration_ns[row]);
            }
            part.excess_ns += u128::from(excess_ns(rows, row));
            whole.excess_ns += u128::from(excess_ns(rows, row));
        }
    }

    /// To be called when all rows were taken in: what no row of its own part can stand for.
    pub(crate) fn settle(&mut self) {
        for ((class, _), part) in &self.in_part {
            if part.excess_ns == 0
                && let Some(whole) = self.in_class.get_mut(class)
            {
                whole.missing_ns += part.missing_ns;
            }
        }
    }

    /// Gives the rows their weights; to be called with the same rows, in the same order.
    pub(crate) fn apply(&mut self, rows: &mut OffCpu) {
        for row in 0..rows.len() {
            let class = class(rows, row);
            let (Some(part), Some(whole)) = (
                self.in_part.get_mut(&(class, rows.start_ns[row] / self.part_ns)),
                self.in_class.get_mut(&class),
            ) else {
                continue;
            };
            let excess_ns = excess_ns(rows, row);
            let weight_ns = match was_missed(rows, row) {
                true if whole.excess_ns > 0 => 0,
                true => u128::from(rows.duration_ns[row]),
                false => u128::from(rows.duration_ns[row]) + part.next(excess_ns) + whole.next(excess_ns),
            };
            rows.weight_ns[row] = u64::try_from(weight_ns).unwrap_or(u64::MAX);
        }
    }
}

fn class(rows: &OffCpu, row: usize) -> Class {
    let each_ns = rows.duration_ns[row] / u64::from(rows.count[row].max(1));
    (rows.thread[row], rows.runnable[row], rows.syscall[row], each_ns < SHORT_NS)
}

/// Whether the row counts waits that no look of the clock caught.
fn was_missed(rows: &OffCpu, row: usize) -> bool {
    rows.stack[row] == 0 && StackEnding::from_code(rows.ending[row]) == Some(StackEnding::NotSampled)
}

/// What the row stands for beyond itself.
fn excess_ns(rows: &OffCpu, row: usize) -> u64 {
    if was_missed(rows, row) { 0 } else { rows.weight_ns[row].saturating_sub(rows.duration_ns[row]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::OffCpuRow;

    const PERIOD_NS: u64 = 10_000_000;
    const SECOND: u64 = 1_000_000_000;

    fn row(start_ns: u64, stack: u32, duration_ns: u64, count: u32) -> OffCpuRow {
        let ending = if stack == 0 { StackEnding::NotSampled } else { StackEnding::Complete };
        OffCpuRow {
            start_ns,
            end_ns: start_ns + duration_ns,
            duration_ns,
            weight_ns: if stack == 0 { duration_ns } else { duration_ns.max(PERIOD_NS) },
            count,
            thread: 0,
            stack,
            ending: ending.code(),
            runnable: false,
            wait: 0,
            syscall: Some(202),
            waker: 0,
            waker_stack: 0,
        }
    }

    fn shared(rows: &[OffCpuRow], length_ns: u64) -> Vec<u64> {
        let mut table = OffCpu::default();
        rows.iter().for_each(|row| table.push(row.clone()));
        let mut shares = ClockShares::new(Window { start_ns: 0, end_ns: length_ns });
        shares.learn(&table);
        shares.settle();
        shares.apply(&mut table);
        table.weight_ns
    }

    #[test]
    fn what_was_missed_goes_to_those_that_stand_for_more_than_themselves() {
        let rows = [
            row(0, 1, 1_000_000, 1),   // stands for 9 ms beyond itself,
            row(1, 2, 7_000_000, 1),   // for 3 ms,
            row(2, 3, 70_000_000, 1),  // for nothing: it would always have been caught.
            row(3, 0, 36_000_001, 40), // What was missed.
        ];
        assert_eq!(shared(&rows, SECOND), [1_000_000 + 27_000_000, 7_000_000 + 9_000_001, 70_000_000, 0]);
    }

    #[test]
    fn a_class_of_which_nothing_was_caught_stays_without_a_stack() {
        let other = OffCpuRow { syscall: Some(0), ..row(0, 1, 1_000_000, 1) };
        let long = row(0, 2, 30_000_000, 1);
        assert_eq!(shared(&[other, long, row(0, 0, 500, 3)], SECOND), [1_000_000, 30_000_000, 500]);
    }

    #[test]
    fn parts_of_time_keep_their_sums() {
        let rows = [
            row(0, 1, 1_000_000, 1),
            row(0, 0, 100_000_000, 100),
            row(SECOND, 2, 1_000_000, 1),
            row(SECOND, 0, 300_000_000, 300),
            row(2 * SECOND, 0, 40_000_000, 40), // Nothing was caught in this part.
        ];
        let weights = shared(&rows, 3 * SECOND);
        assert_eq!(weights, [101_000_000 + 20_000_000, 0, 301_000_000 + 20_000_000, 0, 0]);
    }

    /// Waits of 0.1 ms to 10 s in six functions, looked at by a clock whose phase is not theirs: many recordings agree
    /// with the truth on average, and each has the exact sum.
    #[test]
    fn shares_are_unbiased_for_waits_of_any_length() {
        const LENGTHS: [u64; 6] = [100_000, 1_000_000, 5_000_000, 30_000_000, 1_000_000_000, 10_000_000_000];
        const TIMES: [u32; 6] = [3_000, 400, 100, 20, 2, 1];
        let truth: Vec<u64> =
            LENGTHS.iter().zip(TIMES).map(|(length, times)| length * u64::from(times)).collect();
        let mut seed = 1u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 11) as f64 / (1u64 << 53) as f64
        };
        const RUNS: u64 = 300;
        let mut sums = [0u64; 6];
        for _ in 0..RUNS {
            let mut rows = vec![];
            let (mut missed_ns, mut missed) = (0, 0);
            for (function, (&length, times)) in LENGTHS.iter().zip(TIMES).enumerate() {
                for _ in 0..times {
                    if random() < length as f64 / PERIOD_NS as f64 {
                        rows.push(row(0, function as u32 + 1, length, 1));
                    } else {
                        missed_ns += length;
                        missed += 1;
                    }
                }
            }
            rows.push(row(0, 0, missed_ns, missed));
            let weights = shared(&rows, SECOND);
            assert_eq!(weights.iter().sum::<u64>(), truth.iter().sum::<u64>());
            for (row, weight) in rows.iter().zip(weights).filter(|(row, _)| row.stack != 0) {
                sums[row.stack as usize - 1] += weight;
            }
        }
        for (sum, truth) in sums.iter().zip(truth) {
            let ratio = *sum as f64 / (truth * RUNS) as f64;
            assert!((0.97..1.03).contains(&ratio), "{sums:?}");
        }
    }
}
