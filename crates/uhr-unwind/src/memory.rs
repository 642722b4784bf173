//! The memory of a running process, read from outside. The only file of the unwinder with unsafe code.

use std::io;

use uhr_model::Avma;

/// Why memory of a process could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {length} bytes at {address} of process {pid}")]
pub struct MemoryError {
    /// The process.
    pub pid: u32,
    /// Where.
    pub address: Avma,
    /// How many bytes were wanted.
    pub length: usize,
    /// What the system said.
    pub source: io::Error,
}

/// Something that holds the memory of a process.
pub trait TargetMemory {
    /// Reads from `address` on into `buffer`, and says how many bytes it got: fewer than wanted where readable memory
    /// ends.
    ///
    /// # Errors
    /// [`MemoryError`] if not even the first byte can be read.
    fn read(&self, address: Avma, buffer: &mut [u8]) -> Result<usize, MemoryError>;
}

/// The memory of a living process, by `process_vm_readv`: nothing is written to it, and it is not stopped. Needs what
/// ptrace needs (the same user, or `CAP_SYS_PTRACE`).
#[derive(Clone, Copy, Debug)]
pub struct ProcessMemory {
    pid: libc::pid_t,
}

impl ProcessMemory {
    /// The process with this id, in our own pid namespace.
    pub fn new(pid: u32) -> Self {
        Self { pid: pid as libc::pid_t }
    }
}

impl TargetMemory for ProcessMemory {
    fn read(&self, address: Avma, buffer: &mut [u8]) -> Result<usize, MemoryError> {
        // A short answer of the system call ends at a page at the earliest, as the kernel works page by page within
        // one remote vector: what is readable before the first bad page does come.
        let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let remote = libc::iovec { iov_base: address.0 as *mut libc::c_void, iov_len: buffer.len() };
        // SAFETY: `local` describes `buffer`, which is borrowed mutably for the whole call; `remote` is an address of
        // another process that the kernel checks and we never dereference; one vector each, flags must be 0.
        let got = unsafe { libc::process_vm_readv(self.pid, &local, 1, &remote, 1, 0) };
        usize::try_from(got).map_err(|_| MemoryError {
            pid: self.pid as u32,
            address,
            length: buffer.len(),
            source: io::Error::last_os_error(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_memory_and_none() {
        let memory = ProcessMemory::new(std::process::id());
        let there = *b"0123456789";
        let mut here = [0; 10];
        assert_eq!(memory.read(Avma(there.as_ptr() as u64), &mut here).unwrap(), 10);
        assert_eq!(here, there);
        let error = memory.read(Avma(8), &mut here).unwrap_err();
        assert_eq!(error.source.raw_os_error(), Some(libc::EFAULT));
    }
}
