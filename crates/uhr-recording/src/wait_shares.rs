//! Where a program switches too often for a stack of every wait, some waits have theirs taken: one in so many, without
//! regard to how long they turn out to be. Those stand for the others of the same thread.
//!
//! Long waits are also seen from outside, so a long wait is more likely to have a stack than a short one. Hence the
//! sharing goes by length: within one class of lengths every wait had the same chance.

use rustc_hash::FxHashMap;

use crate::Table;
use crate::clock_shares::ClockShares;
use crate::manifest::Manifest;
use crate::tables::OffCpu;

/// Waits of one thread and of one class of lengths.
type Class = (u32, bool, u8);

#[derive(Clone, Copy, Debug, Default)]
struct Times {
    all_ns: u128,
    with_stack_ns: u128,
    /// Time of rows with a stack that was shared out so far.
    so_far_ns: u128,
}

/// What waits without a stack are shared by.
#[derive(Debug)]
pub enum WaitShares {
    /// By thread and length: some waits had their stack taken, whatever their length.
    ByLength(LengthShares),
    /// By thread and system call: a clock looked at who waits.
    ByClock(ClockShares),
}

impl WaitShares {
    /// As the recording was made.
    pub fn of(manifest: &Manifest) -> Self {
        match manifest.settings.wait_stacks.as_str() {
            "clock" => Self::ByClock(ClockShares::new(manifest.window)),
            _ => Self::ByLength(LengthShares::default()),
        }
    }

    /// Takes rows in.
    pub fn learn(&mut self, rows: &OffCpu) {
        match self {
            Self::ByLength(shares) => shares.learn(rows),
            Self::ByClock(shares) => shares.learn(rows),
        }
    }

    /// To be called when all rows were taken in.
    pub fn settle(&mut self) {
        if let Self::ByClock(shares) = self {
            shares.settle();
        }
    }

    /// Gives the rows their weights; to be called with the same rows, in the same order, after [`WaitShares::settle`].
    pub fn apply(&mut self, rows: &mut OffCpu) {
        match self {
            Self::ByLength(shares) => shares.apply(rows),
            Self::ByClock(shares) => shares.apply(rows),
        }
    }
}

/// How much time the waits without a stack have, and those with one, by thread and length.
#[derive(Debug, Default)]
pub struct LengthShares(FxHashMap<Class, Times>);

/// The class of a wait's length. Below 5 ms a wait is not looked at from outside; above 25 ms it surely was.
pub fn length_class(duration_ns: u64) -> u8 {
    match duration_ns {
        0..5_000_000 => 0,
        5_000_000..25_000_000 => 1,
        _ => 2,
    }
}

impl LengthShares {
    fn learn(&mut self, rows: &OffCpu) {
        for row in 0..rows.len() {
            let times = self.0.entry(class(rows, row)).or_default();
            times.all_ns += u128::from(rows.duration_ns[row]);
            if has_stack(rows, row) {
                times.with_stack_ns += u128::from(rows.duration_ns[row]);
            }
        }
    }

    fn apply(&mut self, rows: &mut OffCpu) {
        for row in 0..rows.len() {
            let Some(times) = self.0.get_mut(&class(rows, row)) else { continue };
            if times.with_stack_ns == 0 {
                continue;
            }
            if !has_stack(rows, row) {
                rows.weight_ns[row] = 0;
                continue;
            }
            let scaled = |ns: u128| ns * times.all_ns / times.with_stack_ns;
            let next = times.so_far_ns + u128::from(rows.duration_ns[row]);
            rows.weight_ns[row] = (scaled(next) - scaled(times.so_far_ns)) as u64;
            times.so_far_ns = next;
        }
    }
}

fn class(rows: &OffCpu, row: usize) -> Class {
    let each_ns = rows.duration_ns[row] / u64::from(rows.count[row].max(1));
    (rows.thread[row], rows.runnable[row], length_class(each_ns))
}

fn has_stack(rows: &OffCpu, row: usize) -> bool {
    rows.stack[row] != 0
}

#[cfg(test)]
mod tests {
    use uhr_model::StackEnding;

    use super::*;
    use crate::tables::OffCpuRow;

    fn row(thread: u32, stack: u32, duration_ns: u64, count: u32) -> OffCpuRow {
        let ending = if stack == 0 { StackEnding::NotSampled } else { StackEnding::Complete };
        OffCpuRow {
            start_ns: 0,
            end_ns: duration_ns,
            duration_ns,
            weight_ns: duration_ns,
            count,
            thread,
            stack,
            ending: ending.code(),
            runnable: false,
            wait: 0,
            syscall: None,
            waker: 0,
            waker_stack: 0,
        }
    }

    #[test]
    fn sampled_waits_stand_for_their_like_and_the_sum_stays_exact() {
        let mut rows = OffCpu::default();
        rows.push(row(0, 1, 1_000, 1)); // Two stacks of short waits,
        rows.push(row(0, 2, 3_000, 3));
        rows.push(row(0, 0, 96_001, 96)); // and 96 short waits without one.
        rows.push(row(0, 0, 700_000_000, 1)); // A long one without a stack has no likeness,
        rows.push(row(1, 0, 500, 1)); // nor has another thread's.
        let mut shares = LengthShares::default();
        shares.learn(&rows);
        shares.apply(&mut rows);
        assert_eq!(rows.weight_ns[3..], [700_000_000, 500]);
        assert_eq!(rows.weight_ns[2], 0);
        assert_eq!(rows.weight_ns[0] + rows.weight_ns[1], 100_001);
        assert_eq!(rows.weight_ns[0], 25_000);
    }
}
