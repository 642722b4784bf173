//! Keeps what uhr takes of the machine's memory small.

/// Returns large blocks to the system as soon as they are let go, and keeps few heaps. glibc raises the size from which it
/// does so up to 32 MB by itself, after the first large block: the unwind sections of compilers then stay in a heap with
/// holes (seen: 206 MB resident instead of 120 on a machine that builds).
pub(crate) fn keep_small() {
    #[cfg(target_env = "gnu")]
    // SAFETY: both calls set a number of the allocator; what it has handed out stays as it is.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 512 << 10);
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}
