//! How many page faults or switches a sample stands for.
//!
//! In frequency mode the kernel chooses after each sample how many occurrences to let pass until the next, and writes
//! *that* number into the sample (`perf_swevent_set_period`). What a sample stands for is what passed before it: the
//! number in the sample before. Each inherited copy of an event counts for itself, hence by stream.

use rustc_hash::FxHashMap;

use super::event::EventKind;
use super::sample::Sample;

/// More copies of events than a recording has threads and CPUs; beyond it the oldest knowledge is dropped.
const MOST_STREAMS: usize = 1 << 20;

/// Gives each sample its weight. Feed it every sample, in the order of time.
///
/// The sum of weights stays a little below the event's own count ([`EventCounts::value`](super::EventCounts)): what
/// passed after the last sample of a copy is in no weight. Scale by the count where the sum matters.
#[derive(Debug, Default)]
pub struct Weights(FxHashMap<u64, u64>);

impl Weights {
    /// What the sample stands for: nanoseconds, page faults or switches.
    pub fn weigh(&mut self, sample: &Sample<'_>) -> u64 {
        if sample.kind == EventKind::Cpu {
            return sample.period;
        }
        if self.0.len() >= MOST_STREAMS {
            self.0.clear();
        }
        // The first occurrence is always sampled and stands for itself.
        self.0.insert(sample.stream, sample.period).unwrap_or(1).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::Addresses;

    #[test]
    fn a_sample_stands_for_what_passed_since_the_one_before() {
        let mut weights = Weights::default();
        let mut weigh = |kind, stream, period| {
            weights.weigh(&Sample {
                kind,
                ip: 0,
                period,
                stream,
                address: None,
                is_second_hand: false,
                in_kernel: false,
                kernel_chain: Addresses::default(),
                user_chain: Addresses::default(),
                chain_is_full: false,
                user_registers: None,
                stack: &[],
            })
        };
        assert_eq!(weigh(EventKind::Cpu, 0, 1_000_000), 1_000_000);
        assert_eq!(weigh(EventKind::PageFault, 1, 20), 1);
        assert_eq!(weigh(EventKind::PageFault, 2, 5), 1);
        assert_eq!(weigh(EventKind::PageFault, 1, 300), 20);
        assert_eq!(weigh(EventKind::PageFault, 2, 7), 5);
        assert_eq!(weigh(EventKind::PageFault, 1, 1), 300);
    }
}
