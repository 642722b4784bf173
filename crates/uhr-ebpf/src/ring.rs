//! Reads the ring buffer that the programs send their events through (Documentation/bpf/ringbuf.rst). Nobody wakes the
//! reader: it looks every few milliseconds, for a wake-up costs more than an event.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::mapped::Mapped;

/// The record is not complete yet.
const BUSY: u32 = 1 << 31;
/// The program thought better of it.
const DISCARDED: u32 = 1 << 30;
const HEADER_BYTES: u64 = 8;

/// The reading end.
#[derive(Debug)]
pub(crate) struct Ring {
    consumer: Mapped,
    /// A page with the producer's position, and the data. (The kernel would map it twice in a row, so that no record lies across
    /// the end, and count it twice as memory of ours.)
    producer: Mapped,
    page: usize,
    data_bytes: u64,
    /// A record that does lie across the end.
    whole: Vec<u8>,
}

impl Ring {
    pub(crate) fn open(map: BorrowedFd<'_>, data_bytes: usize) -> io::Result<Self> {
        // SAFETY: asks for a constant.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let consumer = Mapped::map(map, page, 0, true)?;
        let producer = Mapped::map(map, page + data_bytes, page, false)?;
        Ok(Self { consumer, producer, page, data_bytes: data_bytes as u64, whole: Vec::new() })
    }

    /// What is there now, with what begins each record.
    pub(crate) fn waiting_bytes(&self) -> usize {
        let end = self.producer.position().load(Ordering::Acquire);
        let waiting = end.saturating_sub(self.consumer.position().load(Ordering::Relaxed));
        waiting.min(self.data_bytes) as usize
    }

    /// Hands out what is complete now. What arrives meanwhile waits for the next pass.
    pub(crate) fn drain(&mut self, sink: &mut dyn FnMut(&[u8])) {
        let end = self.producer.position().load(Ordering::Acquire);
        let mut at = self.consumer.position().load(Ordering::Relaxed);
        while at < end {
            let (length, is_wanted) = match self.header(at) {
                header if header & BUSY != 0 => break,
                header => (u64::from(header & !(BUSY | DISCARDED)), header & DISCARDED == 0),
            };
            if length > self.data_bytes {
                // It cannot be: give up what is there rather than read outside.
                at = end;
                break;
            }
            if is_wanted {
                self.hand_out(at + HEADER_BYTES, length as usize, sink);
            }
            at += (length + HEADER_BYTES).next_multiple_of(8);
            self.consumer.position().store(at, Ordering::Release);
        }
        self.consumer.position().store(at, Ordering::Release);
    }

    fn header(&self, at: u64) -> u32 {
        let offset = self.page + (at & (self.data_bytes - 1)) as usize;
        // SAFETY: inside the data pages, which are `data_bytes` (a power of two) long; records are aligned to 8.
        // The kernel publishes a record by its header.
        unsafe { AtomicU32::from_ptr(self.producer.start.as_ptr().add(offset).cast()) }
            .load(Ordering::Acquire)
    }

    fn hand_out(&mut self, at: u64, length: usize, sink: &mut dyn FnMut(&[u8])) {
        let from = (at & (self.data_bytes - 1)) as usize;
        let first = length.min(self.data_bytes as usize - from);
        if first == length {
            sink(self.bytes(from, length));
            return;
        }
        let mut whole = std::mem::take(&mut self.whole);
        whole.clear();
        whole.extend_from_slice(self.bytes(from, first));
        whole.extend_from_slice(self.bytes(0, length - first));
        sink(&whole);
        self.whole = whole;
    }

    /// Data from a place on; must lie before the end.
    fn bytes(&self, from: usize, length: usize) -> &[u8] {
        debug_assert!(from + length <= self.data_bytes as usize);
        // SAFETY: both callers stay within the data pages. The kernel does not write there until the position is given back,
        // after the borrow.
        unsafe { std::slice::from_raw_parts(self.producer.start.as_ptr().add(self.page + from), length) }
    }
}
