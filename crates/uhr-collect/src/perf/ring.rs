//! Reads the records of one ring in the order in which the kernel wrote them.

use super::sys::RingPages;

/// Every record begins with a type (u32), misc bits (u16) and its size (u16).
pub(super) const HEADER_BYTES: usize = 8;

/// What one pass over a ring found.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Pass {
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// Bytes that were given up because a size in them made no sense. The kernel does not do this; if it happens,
    /// it is counted and reading goes on behind them.
    pub(super) corrupt_bytes: u64,
}

#[derive(Debug)]
pub(super) struct Ring {
    pages: RingPages,
    tail: u64,
    /// Holds a record that lies across the ring's end.
    joined: Vec<u8>,
}

impl Ring {
    pub(super) fn new(pages: RingPages) -> Self {
        Self { pages, tail: 0, joined: Vec::new() }
    }

    /// Hands every record that is there now to `sink`. Records that arrive meanwhile wait for the next pass, so that
    /// a fast writer cannot hold the reader here.
    pub(super) fn drain(&mut self, sink: &mut impl FnMut(&[u8])) -> Pass {
        let mut pass = Pass::default();
        let head = self.pages.head();
        // Room is given back in steps: for the kernel early enough, for the cache line not after every record.
        let step = self.pages.data_bytes() as u64 / 8;
        let mut released = self.tail;
        while self.tail != head {
            let available = head.wrapping_sub(self.tail);
            let Some(length) = self.record_length(available) else {
                pass.corrupt_bytes += available;
                self.tail = head;
                break;
            };
            let first = self.pages.bytes(self.tail, length);
            if first.len() == length {
                sink(first);
            } else {
                self.joined.clear();
                self.joined.extend_from_slice(first);
                let rest = length - first.len();
                self.joined.extend_from_slice(self.pages.bytes(self.tail + first.len() as u64, rest));
                sink(&self.joined);
            }
            self.tail += length as u64;
            pass.records += 1;
            pass.bytes += length as u64;
            if self.tail - released >= step {
                self.pages.release(self.tail);
                released = self.tail;
            }
        }
        self.pages.release(self.tail);
        pass
    }

    /// The size of the record at the tail, if it can be true. Records are multiples of eight bytes and so is the
    /// ring, so a header never lies across the end.
    fn record_length(&self, available: u64) -> Option<usize> {
        if available < HEADER_BYTES as u64 || available > self.pages.data_bytes() as u64 {
            return None;
        }
        let header = self.pages.bytes(self.tail, HEADER_BYTES);
        let length = u16::from_ne_bytes([*header.get(6)?, *header.get(7)?]);
        let fits = usize::from(length) >= HEADER_BYTES && u64::from(length) <= available && length % 8 == 0;
        fits.then_some(usize::from(length))
    }
}
