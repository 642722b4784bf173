//! Reads the ring buffer that the programs send their events through (Documentation/bpf/ringbuf.rst). Nobody wakes the
//! reader: it looks every few milliseconds, for a wake-up costs more than an event.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The record is not complete yet.
const BUSY: u32 = 1 << 31;
/// The program thought better of it.
const DISCARDED: u32 = 1 << 30;
const HEADER_BYTES: u64 = 8;

/// Pages shared with the kernel.
#[derive(Debug)]
struct Pages {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for Pages {}

impl Pages {
    fn map(map: BorrowedFd<'_>, bytes: usize, offset: usize, writable: bool) -> io::Result<Self> {
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a new mapping of a descriptor that is open; nothing else is touched.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        match NonNull::new(start.cast::<u8>()) {
            Some(own) if start != libc::MAP_FAILED => Ok(Self { start: own, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The position at the beginning of the pages.
    fn position(&self) -> &AtomicU64 {
        // SAFETY: a page begins with this counter; it is aligned, and the kernel too only uses it atomically.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().cast()) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped, and nobody has a reference into it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The reading end.
#[derive(Debug)]
pub(crate) struct Ring {
    consumer: Pages,
    /// A page with the producer's position, and the data twice in a row, so that a record never lies across the end.
    producer: Pages,
    page: usize,
    data_bytes: u64,
}

impl Ring {
    pub(crate) fn open(map: BorrowedFd<'_>, data_bytes: usize) -> io::Result<Self> {
        // SAFETY: asks for a constant.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let consumer = Pages::map(map, page, 0, true)?;
        let producer = Pages::map(map, page + 2 * data_bytes, page, false)?;
        Ok(Self { consumer, producer, page, data_bytes: data_bytes as u64 })
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
                sink(self.bytes(at + HEADER_BYTES, length as usize));
            }
            at += (length + HEADER_BYTES).next_multiple_of(8);
            self.consumer.position().store(at, Ordering::Release);
        }
        self.consumer.position().store(at, Ordering::Release);
    }

    fn header(&self, at: u64) -> u32 {
        let offset = self.page + (at & (self.data_bytes - 1)) as usize;
        // SAFETY: inside the data pages, which are `data_bytes` (a power of two) long twice; records are aligned to 8.
        // The kernel publishes a record by its header.
        unsafe { AtomicU32::from_ptr(self.producer.start.as_ptr().add(offset).cast()) }
            .load(Ordering::Acquire)
    }

    fn bytes(&self, at: u64, length: usize) -> &[u8] {
        let offset = self.page + (at & (self.data_bytes - 1)) as usize;
        // SAFETY: the position lies in the first copy of the data and `length` was checked to be at most one copy, so the
        // end lies in the second. The kernel does not write there until the position is given back, after the borrow.
        unsafe { std::slice::from_raw_parts(self.producer.start.as_ptr().add(offset), length) }
    }
}
