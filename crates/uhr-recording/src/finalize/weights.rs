//! What rows stand for, known only when the capture has ended: a sample's time on CPU, a fault sample's faults.

use uhr_model::StackEnding;

use crate::columns::Table;
use crate::tables::{Samples, ThreadRow};

/// Gives every CPU sample the time it stands for: a thread's exact time on CPU, less what is already counted without a
/// stack, shared among its samples so that the sum is exact. `so_far` counts the samples of each thread that earlier
/// batches held; begin with zeros.
pub fn scale_weights(samples: &mut Samples, threads: &[ThreadRow], fixed_ns: &[u64], so_far: &mut [u64]) {
    for row in 0..samples.len() {
        let thread = samples.thread[row] as usize;
        let is_sample =
            StackEnding::from_code(samples.ending[row]).is_some_and(|ending| !ending.is_without_sample());
        let (Some(of), Some(seen)) = (threads.get(thread), so_far.get_mut(thread)) else { continue };
        let rest_ns = of.on_cpu_ns.saturating_sub(fixed_ns.get(thread).copied().unwrap_or(0));
        if !is_sample {
            // Where no sample was taken the row without one stands for all of it.
            if of.samples == 0 && *seen == 0 {
                samples.weight_ns[row] = samples.weight_ns[row].saturating_add(rest_ns);
                *seen = 1;
            }
            continue;
        }
        let time = u128::from(rest_ns);
        let (count, at) = (u128::from(of.samples.max(*seen + 1)), u128::from(*seen));
        if time > 0 {
            samples.weight_ns[row] = (time * (at + 1) / count - time * at / count) as u64;
        }
        *seen += 1;
    }
}

/// Scales counts that the kernel thinned out, so that their sum is what it counted.
#[derive(Debug)]
pub struct Scale {
    counted: u128,
    sampled: u128,
    so_far: u128,
}

impl Scale {
    /// From what the rows sum up to now to what was counted.
    pub fn new(sampled: u64, counted: u64) -> Self {
        Self { counted: counted.into(), sampled: sampled.max(1).into(), so_far: 0 }
    }

    /// Scales the next rows; the sum over all rows is exact.
    pub fn scale(&mut self, weights: &mut [u64]) {
        let scaled = |sampled: u128| sampled * self.counted / self.sampled;
        for weight in weights {
            let next = self.so_far + u128::from(*weight);
            *weight = (scaled(next) - scaled(self.so_far)) as u64;
            self.so_far = next;
        }
    }
}

/// Adds the time that rows without a sample stand for to that of their threads.
pub fn add_fixed_time(rows: &Samples, fixed_ns: &mut [u64]) {
    for row in 0..rows.len() {
        let without = StackEnding::from_code(rows.ending[row]).is_some_and(StackEnding::is_without_sample);
        if without && let Some(sum) = fixed_ns.get_mut(rows.thread[row] as usize) {
            *sum = sum.saturating_add(rows.weight_ns[row]);
        }
    }
}
