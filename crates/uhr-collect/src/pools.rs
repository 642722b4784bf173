//! Threads that are too short for samples of their own.
//!
//! Ticks of the CPUs' clocks meet short threads in their right share, but each of them seldom. So those of one program
//! share what met some of them.

use rustc_hash::FxHashMap;
use uhr_model::StackEnding;
use uhr_recording::RecordingWriter;
use uhr_recording::tables::{SampleRow, ThreadRow};

/// Threads of fewer ticks share theirs with others of their program: of twenty ticks between 12 and 28 are seen.
const POOLED_TICKS: u64 = 20;
/// Programs whose short threads are kept apart.
const MAX_POOLS: usize = 65_536;

/// Short threads of programs of one name.
#[derive(Debug)]
struct Pool {
    /// Row of the first of them.
    first: u32,
    on_cpu_ns: u64,
    samples: u64,
}

/// The short threads of all programs, by the program's name.
#[derive(Debug, Default)]
pub(crate) struct Pools(FxHashMap<String, Pool>);

impl Pools {
    /// Takes in a thread that has ended: a short one into its program's pool.
    pub(crate) fn take(
        &mut self,
        thread: &mut ThreadRow,
        program: &str,
        period_ns: u64,
        now_ns: u64,
        writer: &mut RecordingWriter,
    ) {
        if thread.on_cpu_ns >= POOLED_TICKS * period_ns {
            // As likely as to win in a lottery, or it ran where no tick is taken.
            if thread.samples == 0 {
                push_unsampled(thread.id, thread.on_cpu_ns, StackEnding::NotSampled, now_ns, writer);
            }
            return;
        }
        if !self.0.contains_key(program) && self.0.len() < MAX_POOLS {
            self.0.insert(program.to_owned(), Pool { first: thread.id, on_cpu_ns: 0, samples: 0 });
        }
        if let Some(pool) = self.0.get_mut(program) {
            thread.pool = pool.first;
            pool.on_cpu_ns += thread.on_cpu_ns;
            pool.samples += thread.samples;
        }
    }

    /// The recording ends: what no tick has met in a whole pool. Gives how much that is.
    pub(crate) fn close(&mut self, now_ns: u64, writer: &mut RecordingWriter) -> u64 {
        let mut pools: Vec<Pool> = self.0.drain().map(|(_, pool)| pool).collect();
        pools.sort_by_key(|pool| pool.first);
        let unmet = pools.iter().filter(|pool| pool.samples == 0 && pool.on_cpu_ns > 0);
        unmet.fold(0, |sum, pool| {
            push_unsampled(pool.first, pool.on_cpu_ns, StackEnding::TooShortToSample, now_ns, writer);
            sum + pool.on_cpu_ns
        })
    }
}

/// A row for time on CPU without a stack.
pub(crate) fn push_unsampled(
    thread: u32,
    weight_ns: u64,
    ending: StackEnding,
    now_ns: u64,
    writer: &mut RecordingWriter,
) {
    writer.push_sample(SampleRow {
        time_ns: now_ns.saturating_sub(1),
        thread,
        cpu: 0,
        stack: 0,
        weight_ns,
        ending: ending.code(),
        syscall: None,
    });
}
