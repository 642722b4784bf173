//! Puts the records of several rings into the order of time.
//!
//! Each ring is nearly in order already. A record can still come late: its time is taken a moment before it becomes
//! readable. So records wait here until nothing older can arrive: whatever was written before the *previous* pass over
//! the rings began is certainly here once this pass is done.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::decoder::{Decoder, set_sample_time};

/// Merges rings by time, in bounded memory.
#[derive(Debug)]
pub struct Merger {
    decoder: Decoder,
    queues: Vec<Queue>,
    buffered_bytes: usize,
    limit_bytes: usize,
    released_ns: u64,
    out_of_order: u64,
    forced: u64,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: Vec<u8>,
    entries: VecDeque<Entry>,
    /// Bytes that entries still point to.
    live_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    time_ns: u64,
    at: usize,
    length: usize,
}

impl Merger {
    /// Holds about `limit_bytes` at most, plus what one pass over the rings brings.
    pub fn new(decoder: Decoder, limit_bytes: usize) -> Self {
        let queues = Vec::new();
        Self { decoder, queues, buffered_bytes: 0, limit_bytes, released_ns: 0, out_of_order: 0, forced: 0 }
    }

    /// Takes a record of ring number `ring`. One whose time cannot be trusted gets its predecessor's.
    pub fn push(&mut self, ring: usize, record: &[u8]) {
        self.push_at(ring, self.decoder.time_ns(record), record);
    }

    /// Takes what another sampler sent at `time_ns`. Its ring must have no perf records.
    pub fn push_event(&mut self, ring: usize, time_ns: u64, event: &[u8]) {
        self.push_at(ring, Some(time_ns), event);
    }

    fn push_at(&mut self, ring: usize, time_ns: Option<u64>, record: &[u8]) {
        if ring >= self.queues.len() {
            self.queues.resize_with(ring + 1, Queue::default);
        }
        if let Some(queue) = self.queues.get_mut(ring) {
            queue.push(record, time_ns, self.released_ns);
            self.buffered_bytes += record.len();
        }
    }

    /// Hands out, in the order of time and with their ring, all records older than `before_ns`: the
    /// [`started_ns`](super::Drained::started_ns) of the pass before the one that just ended. If more than the limit is
    /// held, everything goes out.
    pub fn release(&mut self, before_ns: u64, sink: &mut impl FnMut(usize, &[u8])) {
        let is_forced = self.buffered_bytes > self.limit_bytes;
        self.forced += u64::from(is_forced);
        self.hand_out(if is_forced { None } else { Some(before_ns) }, sink);
    }

    /// Hands out everything that is left. Nothing is to come.
    pub fn finish(&mut self, sink: &mut impl FnMut(usize, &[u8])) {
        self.hand_out(None, sink);
    }

    /// Records that were handed out after younger ones.
    pub fn out_of_order(&self) -> u64 {
        self.out_of_order
    }

    /// How often the limit made records go out before their time.
    pub fn forced(&self) -> u64 {
        self.forced
    }

    /// Bytes of the records that wait.
    pub fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }

    fn hand_out(&mut self, before_ns: Option<u64>, sink: &mut impl FnMut(usize, &[u8])) {
        let is_due = |entry: &Entry| before_ns.is_none_or(|before| entry.time_ns < before);
        let mut fronts: BinaryHeap<_> = self
            .queues
            .iter()
            .enumerate()
            .filter_map(|(ring, queue)| Some(Reverse((queue.entries.front()?.time_ns, ring))))
            .collect();
        while let Some(Reverse((time_ns, ring))) = fronts.pop() {
            let Some(queue) = self.queues.get_mut(ring) else { continue };
            let Some(entry) = queue.entries.pop_front_if(|entry| is_due(entry)) else { continue };
            sink(ring, queue.bytes.get(entry.at..entry.at + entry.length).unwrap_or_default());
            queue.live_bytes -= entry.length;
            self.buffered_bytes -= entry.length;
            self.out_of_order += u64::from(time_ns < self.released_ns);
            self.released_ns = self.released_ns.max(time_ns);
            if let Some(next) = queue.entries.front() {
                fronts.push(Reverse((next.time_ns, ring)));
            }
        }
        self.queues.iter_mut().for_each(Queue::compact);
    }
}

impl Queue {
    fn push(&mut self, record: &[u8], time_ns: Option<u64>, earliest_ns: u64) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(record);
        let time_ns = time_ns.unwrap_or_else(|| {
            let previous = self.entries.back().map_or(earliest_ns, |entry| entry.time_ns);
            set_sample_time(self.bytes.get_mut(at..).unwrap_or_default(), previous);
            previous
        });
        let entry = Entry { time_ns, at, length: record.len() };
        self.live_bytes += record.len();
        // An interrupt's record can be written between the moment at which another takes its time and its own
        // writing: a ring's neighbours can be swapped.
        let place = self.entries.iter().rposition(|e| e.time_ns <= time_ns).map_or(0, |at| at + 1);
        self.entries.insert(place, entry);
    }

    /// Drops the bytes that were handed out, once they are the larger part.
    fn compact(&mut self) {
        const WORTH: usize = 64 << 10;
        if self.entries.is_empty() {
            self.bytes.clear();
            self.bytes.shrink_to(WORTH * 16);
        } else if self.bytes.len() > 2 * self.live_bytes + WORTH {
            let mut kept = Vec::with_capacity(self.live_bytes);
            for entry in &mut self.entries {
                let record = self.bytes.get(entry.at..entry.at + entry.length).unwrap_or_default();
                entry.at = kept.len();
                kept.extend_from_slice(record);
            }
            self.bytes = kept;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::perf::attr::Periods;
    use crate::perf::decoder::EventIds;
    use crate::perf::sample::SampleShape;

    fn decoder() -> Decoder {
        let periods = Periods { cpu_ns: 1_000_000, page_faults: 61 };
        Decoder::new(EventIds::default(), SampleShape { max_stack: 127, periods })
    }

    /// A switch record of that time.
    fn switch(time_ns: u64) -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(14_u32.to_ne_bytes());
        record.extend([0, 0, 40, 0]);
        record.extend([0; 8]);
        record.extend(time_ns.to_ne_bytes());
        record.extend([0; 16]);
        record
    }

    fn times(merger: &mut Merger, before_ns: Option<u64>) -> Vec<u64> {
        let mut times = Vec::new();
        let mut sink = |_, record: &[u8]| times.push(decoder().time_ns(record).unwrap());
        match before_ns {
            Some(before) => merger.release(before, &mut sink),
            None => merger.finish(&mut sink),
        }
        times
    }

    #[test]
    fn rings_are_merged_and_young_records_wait() {
        let mut merger = Merger::new(decoder(), 1 << 20);
        for (ring, time) in [(0, 10), (0, 30), (1, 5), (1, 20), (1, 40), (2, 15)] {
            merger.push(ring, &switch(time));
        }
        assert_eq!(times(&mut merger, Some(30)), [5, 10, 15, 20]);
        merger.push(2, &switch(25));
        assert_eq!(times(&mut merger, Some(31)), [25, 30]);
        assert_eq!(times(&mut merger, None), [40]);
        assert_eq!((merger.out_of_order(), merger.forced(), merger.buffered_bytes()), (0, 0, 0));
    }

    #[test]
    fn a_record_that_comes_too_late_is_counted_not_lost() {
        let mut merger = Merger::new(decoder(), 1 << 20);
        merger.push(0, &switch(50));
        assert_eq!(times(&mut merger, Some(60)), [50]);
        merger.push(1, &switch(40));
        assert_eq!(times(&mut merger, Some(60)), [40]);
        assert_eq!(merger.out_of_order(), 1);
    }

    #[test]
    fn memory_is_bounded() {
        let mut merger = Merger::new(decoder(), 1000);
        for time in 0..100 {
            merger.push(0, &switch(time));
        }
        assert_eq!(times(&mut merger, Some(1)).len(), 100);
        assert_eq!((merger.forced(), merger.buffered_bytes()), (1, 0));
    }

    proptest! {
        #[test]
        fn whatever_the_order_nothing_is_lost(rounds in prop::collection::vec(
            prop::collection::vec((0..4_usize, 0..1000_u64), 0..50), 0..10)) {
            let mut merger = Merger::new(decoder(), 4000);
            let (mut pushed, mut seen) = (Vec::new(), Vec::new());
            for (round, records) in rounds.iter().enumerate() {
                for &(ring, time) in records {
                    merger.push(ring, &switch(time));
                    pushed.push(time);
                }
                seen.extend(times(&mut merger, Some(round as u64 * 100)));
            }
            seen.extend(times(&mut merger, None));
            pushed.sort_unstable();
            seen.sort_unstable();
            prop_assert_eq!(pushed, seen);
            prop_assert_eq!(merger.buffered_bytes(), 0);
        }
    }
}
