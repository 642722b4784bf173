//! What threads wait for. One closed table for every sampler: from the system call a thread is blocked in, or, where
//! the number is not known but the kernel stack is, from the kernel function that put it to sleep.

use crate::codes::codes;

codes! {
    /// What kind of thing a blocked thread waits for.
    WaitKind {
        /// Not known: neither the system call nor a kernel stack was seen.
        Unknown = 0 "unknown",
        /// A lock, condition or other futex.
        Lock = 1 "lock",
        /// A sleep that the program asked for.
        Sleep = 2 "sleep",
        /// An event loop: poll, select, epoll, io_uring.
        Poll = 3 "poll",
        /// A pipe.
        Pipe = 4 "pipe",
        /// A socket.
        Socket = 5 "socket",
        /// A disk, or a file system that waits for one.
        Disk = 6 "disk",
        /// Memory that had to be brought in.
        PageFault = 7 "page-fault",
        /// A child process.
        Child = 8 "child",
        /// A signal.
        Signal = 9 "signal",
        /// Another system call, or a file whose kind is not known.
        Other = 10 "other",
    }
}

impl WaitKind {
    /// The kind of wait of a thread blocked in system call `number` (x86-64). A `read` or `write` can wait for a pipe,
    /// a socket or a disk: that is [`WaitKind::Other`] unless the file is known.
    pub fn of_syscall(number: u32) -> Self {
        SYSCALLS.binary_search_by_key(&number, |row| row.0).map_or(Self::Other, |at| SYSCALLS[at].2)
    }

    /// The kind of wait that a kernel function of the sleeper's stack stands for, if it stands for one.
    /// Walk from the leaf outwards and take the first answer.
    pub fn of_kernel_function(name: &str) -> Option<Self> {
        KERNEL_FUNCTIONS.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|row| row.1)
    }
}

/// The name of a system call by its number on x86-64, where it is one that threads commonly wait in.
pub fn syscall_name(number: u32) -> Option<&'static str> {
    SYSCALLS.binary_search_by_key(&number, |row| row.0).ok().map(|at| SYSCALLS[at].1)
}

/// The system call that a kernel function is the entry of (`__x64_sys_futex`, `ksys_read`), of those that commonly block.
pub fn syscall_of_kernel_function(name: &str) -> Option<u32> {
    // The entry itself is often inlined into the dispatcher; what it calls has nearly the same name.
    const PREFIXES: &[&str] = &["__x64_sys_", "__se_sys_", "__do_sys_", "ksys_", "do_sys_", "kernel_", "do_"];
    let name = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    SYSCALLS.iter().find(|row| row.1 == name).map(|row| row.0)
}

/// System calls that can block, by number (arch/x86/entry/syscalls/syscall_64.tbl).
const SYSCALLS: &[(u32, &str, WaitKind)] = &[
    (0, "read", WaitKind::Other),
    (1, "write", WaitKind::Other),
    (2, "open", WaitKind::Disk),
    (3, "close", WaitKind::Disk),
    (4, "stat", WaitKind::Disk),
    (5, "fstat", WaitKind::Disk),
    (6, "lstat", WaitKind::Disk),
    (7, "poll", WaitKind::Poll),
    (9, "mmap", WaitKind::Other),
    (11, "munmap", WaitKind::Other),
    (16, "ioctl", WaitKind::Other),
    (17, "pread64", WaitKind::Disk),
    (18, "pwrite64", WaitKind::Disk),
    (19, "readv", WaitKind::Other),
    (20, "writev", WaitKind::Other),
    (23, "select", WaitKind::Poll),
    (26, "msync", WaitKind::Disk),
    (34, "pause", WaitKind::Signal),
    (35, "nanosleep", WaitKind::Sleep),
    (40, "sendfile", WaitKind::Other),
    (42, "connect", WaitKind::Socket),
    (43, "accept", WaitKind::Socket),
    (44, "sendto", WaitKind::Socket),
    (45, "recvfrom", WaitKind::Socket),
    (46, "sendmsg", WaitKind::Socket),
    (47, "recvmsg", WaitKind::Socket),
    (56, "clone", WaitKind::Child),
    (57, "fork", WaitKind::Child),
    (58, "vfork", WaitKind::Child),
    (59, "execve", WaitKind::Disk),
    (61, "wait4", WaitKind::Child),
    (72, "fcntl", WaitKind::Lock),
    (73, "flock", WaitKind::Lock),
    (74, "fsync", WaitKind::Disk),
    (75, "fdatasync", WaitKind::Disk),
    (78, "getdents", WaitKind::Disk),
    (82, "rename", WaitKind::Disk),
    (83, "mkdir", WaitKind::Disk),
    (87, "unlink", WaitKind::Disk),
    (128, "rt_sigtimedwait", WaitKind::Signal),
    (130, "rt_sigsuspend", WaitKind::Signal),
    (162, "sync", WaitKind::Disk),
    (202, "futex", WaitKind::Lock),
    (208, "io_getevents", WaitKind::Disk),
    (217, "getdents64", WaitKind::Disk),
    (230, "clock_nanosleep", WaitKind::Sleep),
    (232, "epoll_wait", WaitKind::Poll),
    (247, "waitid", WaitKind::Child),
    (257, "openat", WaitKind::Disk),
    (262, "newfstatat", WaitKind::Disk),
    (263, "unlinkat", WaitKind::Disk),
    (270, "pselect6", WaitKind::Poll),
    (271, "ppoll", WaitKind::Poll),
    (275, "splice", WaitKind::Other),
    (281, "epoll_pwait", WaitKind::Poll),
    (288, "accept4", WaitKind::Socket),
    (295, "preadv", WaitKind::Disk),
    (296, "pwritev", WaitKind::Disk),
    (299, "recvmmsg", WaitKind::Socket),
    (307, "sendmmsg", WaitKind::Socket),
    (332, "statx", WaitKind::Disk),
    (426, "io_uring_enter", WaitKind::Poll),
    (435, "clone3", WaitKind::Child),
    (441, "epoll_pwait2", WaitKind::Poll),
    (449, "futex_waitv", WaitKind::Lock),
    (455, "futex_wait", WaitKind::Lock),
];

/// Kernel functions that put a thread to sleep, by the beginning of their name; the first that fits counts.
const KERNEL_FUNCTIONS: &[(&str, WaitKind)] = &[
    ("futex_", WaitKind::Lock),
    ("__futex_", WaitKind::Lock),
    ("do_futex", WaitKind::Lock),
    ("flock_lock_inode_wait", WaitKind::Lock),
    ("rwsem_down_", WaitKind::Lock),
    ("do_nanosleep", WaitKind::Sleep),
    ("hrtimer_nanosleep", WaitKind::Sleep),
    ("common_nsleep", WaitKind::Sleep),
    ("ep_poll", WaitKind::Poll),
    ("do_epoll_", WaitKind::Poll),
    ("poll_schedule_timeout", WaitKind::Poll),
    ("do_poll", WaitKind::Poll),
    ("do_sys_poll", WaitKind::Poll),
    ("do_select", WaitKind::Poll),
    ("io_cqring_wait", WaitKind::Poll),
    ("pipe_", WaitKind::Pipe),
    ("anon_pipe_", WaitKind::Pipe),
    ("fifo_open", WaitKind::Pipe),
    ("unix_", WaitKind::Socket),
    ("tcp_", WaitKind::Socket),
    ("udp_", WaitKind::Socket),
    ("inet_", WaitKind::Socket),
    ("sk_wait_", WaitKind::Socket),
    ("sk_stream_wait_", WaitKind::Socket),
    ("__skb_wait_for_more_packets", WaitKind::Socket),
    ("sock_", WaitKind::Socket),
    ("netlink_", WaitKind::Socket),
    ("folio_wait_", WaitKind::Disk),
    ("__folio_lock", WaitKind::Disk),
    ("filemap_", WaitKind::Disk),
    ("wait_on_page_", WaitKind::Disk),
    ("io_schedule", WaitKind::Disk),
    ("blk_", WaitKind::Disk),
    ("submit_bio_wait", WaitKind::Disk),
    ("jbd2_", WaitKind::Disk),
    ("ext4_", WaitKind::Disk),
    ("xfs_", WaitKind::Disk),
    ("btrfs_", WaitKind::Disk),
    ("do_fsync", WaitKind::Disk),
    ("handle_mm_fault", WaitKind::PageFault),
    ("do_user_addr_fault", WaitKind::PageFault),
    ("exc_page_fault", WaitKind::PageFault),
    ("do_wait", WaitKind::Child),
    ("kernel_wait4", WaitKind::Child),
    ("kernel_clone", WaitKind::Child),
    ("do_sigtimedwait", WaitKind::Signal),
    ("sigsuspend", WaitKind::Signal),
    ("__x64_sys_pause", WaitKind::Signal),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_so_that_it_can_be_searched() {
        assert!(SYSCALLS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(syscall_name(230), Some("clock_nanosleep"));
        assert_eq!(WaitKind::of_syscall(202), WaitKind::Lock);
        assert_eq!(WaitKind::of_syscall(9999), WaitKind::Other);
    }

    #[test]
    fn kernel_functions() {
        assert_eq!(WaitKind::of_kernel_function("pipe_read"), Some(WaitKind::Pipe));
        assert_eq!(WaitKind::of_kernel_function("schedule"), None);
        assert_eq!(syscall_of_kernel_function("__x64_sys_futex"), Some(202));
        assert_eq!(syscall_of_kernel_function("ksys_read"), Some(0));
        assert_eq!(syscall_of_kernel_function("kernel_wait4"), Some(61));
        assert_eq!(syscall_of_kernel_function("do_sys_poll"), Some(7));
        assert_eq!(syscall_of_kernel_function("do_wait"), None);
        assert_eq!(syscall_of_kernel_function("read"), None);
    }
}
