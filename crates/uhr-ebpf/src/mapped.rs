//! Memory of a map, shared with the kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Mapped shared with the kernel.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub(crate) start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for Mapped {}

impl Mapped {
    pub(crate) fn map(map: BorrowedFd<'_>, bytes: usize, offset: usize, writable: bool) -> io::Result<Self> {
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

    /// Copies bytes in, as far as they fit.
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        let room = self.bytes.saturating_sub(at).min(bytes.len());
        if room > 0 {
            // SAFETY: `at + room` lies within the mapping, which belongs to this value and was made writable by all who
            // write; the kernel reads what is written only after a system call has told it where.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(at), room) };
        }
    }

    /// The position at the beginning of the pages.
    pub(crate) fn position(&self) -> &AtomicU64 {
        // SAFETY: a page begins with this counter; it is aligned, and the kernel too only uses it atomically.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().cast()) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped, and nobody has a reference into it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
