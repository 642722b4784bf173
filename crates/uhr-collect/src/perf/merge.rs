//! Puts the records of several rings into the order of time.
//!
//! Each ring is nearly in order already. A record can still come late: its time is taken a moment before it becomes
//! readable. So records wait here until nothing older can arrive: whatever was written before the *previous* pass over
//! the rings began is certainly here once this pass is done.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::decoder::{Decoder, set_time};
use super::sys::monotonic_ns;

/// Merges rings by time, in bounded memory.
#[derive(Debug)]
pub struct Merger {
    decoder: Decoder,
    /// Of each ring, by time.
    queues: Vec<VecDeque<Entry>>,
    /// Where the records lie, the oldest block first.
    blocks: VecDeque<Block>,
    /// How many blocks there were before the first of these.
    gone: usize,
    /// A block that is done with.
    spare: Option<Vec<u8>>,
    buffered_bytes: usize,
    limit_bytes: usize,
    released_ns: u64,
    out_of_order: u64,
    forced: u64,
}

/// Records as they were read, one behind the other.
#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    /// How many of them wait.
    waiting: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    time_ns: u64,
    block: usize,
    at: usize,
    length: usize,
}

/// A larger block is given back to the system: most passes bring less.
const WORTH_KEEPING: usize = 1 << 20;

impl Merger {
    /// Holds about `limit_bytes` at most, plus what one pass over the rings brings.
    pub fn new(decoder: Decoder, limit_bytes: usize) -> Self {
        Self {
            decoder,
            queues: Vec::new(),
            blocks: VecDeque::new(),
            gone: 0,
            spare: None,
            buffered_bytes: 0,
            limit_bytes,
            released_ns: 0,
            out_of_order: 0,
            forced: 0,
        }
    }

    /// Takes the records that lie one behind the other in `bytes`, of each the ring and the length. `other_time` tells when a
    /// record of another sampler was sent, whose ring has no perf records. One whose time cannot be trusted gets its
    /// predecessor's.
    pub fn push(
        &mut self,
        bytes: Vec<u8>,
        records: impl Iterator<Item = (usize, usize)>,
        other_time: impl Fn(usize, &[u8]) -> Option<u64>,
    ) {
        let (block, mut at, now_ns) = (self.gone + self.blocks.len(), 0, monotonic_ns());
        let mut own = Block { bytes, waiting: 0 };
        for (ring, length) in records {
            let Some(record) = own.bytes.get_mut(at..at + length) else { break };
            if ring >= self.queues.len() {
                self.queues.resize_with(ring + 1, VecDeque::default);
            }
            let Some(queue) = self.queues.get_mut(ring) else { break };
            let own_time = other_time(ring, record).or_else(|| self.decoder.time_ns(record));
            // Of the future there is no record; one would wait for ever.
            let time_ns = own_time.filter(|&time_ns| time_ns <= now_ns).unwrap_or_else(|| {
                let previous = queue.back().map_or(self.released_ns, |entry| entry.time_ns);
                set_time(record, previous);
                previous
            });
            insert(queue, Entry { time_ns, block, at, length });
            own.waiting += 1;
            self.buffered_bytes += length;
            at += length;
        }
        self.blocks.push_back(own);
    }

    /// Memory for the next records, if some is to spare: new memory has to be cleared by the kernel, page by page.
    pub fn spare(&mut self) -> Option<Vec<u8>> {
        self.spare.take()
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
            .filter_map(|(ring, queue)| Some(Reverse((queue.front()?.time_ns, ring))))
            .collect();
        while let Some(Reverse((time_ns, ring))) = fronts.pop() {
            let Some(queue) = self.queues.get_mut(ring) else { continue };
            let Some(entry) = queue.pop_front_if(|entry| is_due(entry)) else { continue };
            let Some(block) = self.blocks.get_mut(entry.block - self.gone) else { continue };
            sink(ring, block.bytes.get(entry.at..entry.at + entry.length).unwrap_or_default());
            block.waiting -= 1;
            self.buffered_bytes -= entry.length;
            self.out_of_order += u64::from(time_ns < self.released_ns);
            self.released_ns = self.released_ns.max(time_ns);
            if let Some(next) = queue.front() {
                fronts.push(Reverse((next.time_ns, ring)));
            }
        }
        while let Some(mut done) = self.blocks.pop_front_if(|block| block.waiting == 0) {
            self.gone += 1;
            if done.bytes.capacity() <= WORTH_KEEPING {
                done.bytes.clear();
                self.spare = Some(done.bytes);
            }
        }
    }
}

/// An interrupt's record can be written between the moment at which another takes its time and its own writing: a ring's
/// neighbours can be swapped.
fn insert(queue: &mut VecDeque<Entry>, entry: Entry) {
    let place = queue.iter().rposition(|other| other.time_ns <= entry.time_ns).map_or(0, |at| at + 1);
    queue.insert(place, entry);
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

    fn push(merger: &mut Merger, ring: usize, record: Vec<u8>) {
        let length = record.len();
        merger.push(record, std::iter::once((ring, length)), |_, _| None);
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
            push(&mut merger, ring, switch(time));
        }
        assert_eq!(times(&mut merger, Some(30)), [5, 10, 15, 20]);
        push(&mut merger, 2, switch(25));
        assert_eq!(times(&mut merger, Some(31)), [25, 30]);
        assert_eq!(times(&mut merger, None), [40]);
        assert!(merger.blocks.is_empty() && merger.spare().is_some_and(|spare| spare.is_empty()));
        assert_eq!((merger.out_of_order(), merger.forced(), merger.buffered_bytes()), (0, 0, 0));
    }

    #[test]
    fn a_record_that_comes_too_late_is_counted_not_lost() {
        let mut merger = Merger::new(decoder(), 1 << 20);
        push(&mut merger, 0, switch(50));
        assert_eq!(times(&mut merger, Some(60)), [50]);
        push(&mut merger, 1, switch(40));
        assert_eq!(times(&mut merger, Some(60)), [40]);
        assert_eq!(merger.out_of_order(), 1);
    }

    #[test]
    fn a_record_of_the_future_holds_nothing_up() {
        let mut merger = Merger::new(decoder(), 1 << 20);
        push(&mut merger, 0, switch(50));
        push(&mut merger, 0, switch(u64::MAX));
        push(&mut merger, 0, switch(60));
        assert_eq!(times(&mut merger, Some(70)), [50, 50, 60], "it came behind the one of 50");
        assert!(merger.blocks.is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let mut merger = Merger::new(decoder(), 1000);
        for time in 0..100 {
            push(&mut merger, 0, switch(time));
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
                    push(&mut merger, ring, switch(time));
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
