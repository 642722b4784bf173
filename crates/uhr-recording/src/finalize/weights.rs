//! What rows stand for, known only when the capture has ended: a sample's time on CPU, a fault sample's faults.

use uhr_model::StackEnding;

use crate::columns::Table;
use crate::tables::{Samples, ThreadRow};

/// Gives every CPU sample the time it stands for: a thread's exact time on CPU, less what is already counted without a
/// stack, shared among its samples so that the sum is exact. Threads of one pool share theirs.
#[derive(Debug)]
pub struct CpuWeights {
    /// By thread.
    pool_of: Vec<usize>,
    /// By the row of a pool's first thread.
    pools: Vec<Pool>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Pool {
    on_cpu_ns: u64,
    /// What all its samples stand for by the clock's period, which may have changed meanwhile.
    sampled_ns: u128,
    /// Counted by rows without a stack.
    fixed_ns: u64,
    /// The samples of those that have had their share.
    seen_ns: u128,
}

impl CpuWeights {
    /// Of these threads.
    pub fn of(threads: &[ThreadRow]) -> Self {
        let pool_of: Vec<usize> = threads
            .iter()
            .enumerate()
            .map(|(own, thread)| {
                Some(thread.pool as usize).filter(|pool| *pool < threads.len()).unwrap_or(own)
            })
            .collect();
        let mut pools = vec![Pool::default(); threads.len()];
        for (thread, &pool) in threads.iter().zip(&pool_of) {
            pools[pool].on_cpu_ns = pools[pool].on_cpu_ns.saturating_add(thread.on_cpu_ns);
        }
        Self { pool_of, pools }
    }

    /// Takes in what rows stand for so far; to be called with all before the first is given its weight.
    pub fn learn(&mut self, rows: &Samples) {
        for row in 0..rows.len() {
            let Some(&pool) = self.pool_of.get(rows.thread[row] as usize) else { continue };
            let pool = &mut self.pools[pool];
            if is_sample(rows, row) {
                pool.sampled_ns += u128::from(rows.weight_ns[row].max(1));
            } else {
                pool.fixed_ns = pool.fixed_ns.saturating_add(rows.weight_ns[row]);
            }
        }
    }

    /// Gives the rows their weights; to be called with all rows, in their order.
    pub fn apply(&mut self, rows: &mut Samples) {
        for row in 0..rows.len() {
            let Some(&pool) = self.pool_of.get(rows.thread[row] as usize) else { continue };
            let pool = &mut self.pools[pool];
            let rest_ns = pool.on_cpu_ns.saturating_sub(pool.fixed_ns);
            if !is_sample(rows, row) {
                // Where no sample was taken the row without one stands for all of it.
                if pool.sampled_ns == 0 && pool.seen_ns == 0 {
                    rows.weight_ns[row] = rows.weight_ns[row].saturating_add(rest_ns);
                    pool.seen_ns = 1;
                }
                continue;
            }
            let next_ns = pool.seen_ns + u128::from(rows.weight_ns[row].max(1));
            if rest_ns > 0 && pool.sampled_ns > 0 {
                let shared = |sampled_ns: u128| u128::from(rest_ns) * sampled_ns / pool.sampled_ns;
                rows.weight_ns[row] = (shared(next_ns) - shared(pool.seen_ns)) as u64;
            }
            pool.seen_ns = next_ns;
        }
    }
}

fn is_sample(rows: &Samples, row: usize) -> bool {
    StackEnding::from_code(rows.ending[row]).is_some_and(|ending| !ending.is_without_sample())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::SampleRow;

    fn thread(id: u32, on_cpu_ns: u64, samples: u64, pool: u32) -> ThreadRow {
        ThreadRow {
            id,
            process: 0,
            tid: id,
            name: String::new(),
            start_ns: 0,
            end_ns: None,
            on_cpu_ns,
            samples,
            pool,
            switches: 0,
            run_delay_ns: None,
        }
    }

    fn sample(thread: u32) -> SampleRow {
        let ending = StackEnding::Complete.code();
        SampleRow { time_ns: 0, thread, cpu: 0, stack: 1, weight_ns: 1_000_000, ending, syscall: None }
    }

    #[test]
    fn short_threads_share_the_samples_that_met_some_of_them() {
        // 10 threads of 0.3 ms, three of which a tick met, beside one of 5 ms.
        let mut threads: Vec<ThreadRow> =
            (0..10).map(|id| thread(id, 300_000, u64::from(id < 3), 0)).collect();
        threads.push(thread(10, 5_000_000, 4, 10));
        let mut rows = Samples::default();
        [0, 1, 2, 10, 10, 10, 10].into_iter().for_each(|of| rows.push(sample(of)));
        let mut weights = CpuWeights::of(&threads);
        weights.learn(&rows);
        weights.apply(&mut rows);
        assert_eq!(
            rows.weight_ns,
            [1_000_000, 1_000_000, 1_000_000, 1_250_000, 1_250_000, 1_250_000, 1_250_000]
        );
    }
}
