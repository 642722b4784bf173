//! What threads wait for. One closed table for every sampler: from the system call a thread is blocked in, or, where
//! the number is not known but the kernel stack is, from the kernel function that put it to sleep.

use crate::codes::codes;
use crate::syscall;

codes! {
    /// What kind of thing a blocked thread waits for.
    WaitKind {
        /// Not known: neither the system call nor a kernel stack was seen.
        Unknown = 0 "unknown",
        /// A lock, condition or other futex.
        Lock = 1 "lock",
        /// A sleep that the program asked for.
        Sleep = 2 "sleep",
        /// Any of several files: poll, select.
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
        /// For work: an event loop with nothing to do (epoll, io_uring), a server that accepts, a thread of a pool or of
        /// the kernel.
        Idle = 11 "idle",
    }
}

impl WaitKind {
    /// The kind of wait of a thread blocked in system call `number` (x86-64). A `read` or `write` can wait for a pipe,
    /// a socket or a disk: that is [`WaitKind::Other`] unless the file is known.
    pub fn of_syscall(number: u32) -> Self {
        syscall::row(number).and_then(|row| row.2).unwrap_or(Self::Other)
    }

    /// The kind of wait that a kernel function of the sleeper's stack stands for, if it stands for one.
    /// Walk from the leaf outwards and take the first answer.
    pub fn of_kernel_function(name: &str) -> Option<Self> {
        KERNEL_FUNCTIONS.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|row| row.1)
    }
}

/// Kernel functions that put a thread to sleep, by the beginning of their name; the first that fits counts.
const KERNEL_FUNCTIONS: &[(&str, WaitKind)] = &[
    ("futex_", WaitKind::Lock),
    ("__futex_", WaitKind::Lock),
    ("do_futex", WaitKind::Lock),
    ("flock_lock_inode_wait", WaitKind::Lock),
    ("rwsem_down_", WaitKind::Lock),
    ("__mutex_lock", WaitKind::Lock),
    ("mutex_lock", WaitKind::Lock),
    ("rt_mutex_", WaitKind::Lock),
    ("percpu_rwsem_wait", WaitKind::Lock),
    ("do_nanosleep", WaitKind::Sleep),
    ("hrtimer_nanosleep", WaitKind::Sleep),
    ("common_nsleep", WaitKind::Sleep),
    ("ep_poll", WaitKind::Idle),
    ("do_epoll_", WaitKind::Idle),
    ("poll_schedule_timeout", WaitKind::Poll),
    ("do_poll", WaitKind::Poll),
    ("do_sys_poll", WaitKind::Poll),
    ("do_select", WaitKind::Poll),
    ("io_cqring_wait", WaitKind::Idle),
    ("pipe_", WaitKind::Pipe),
    ("anon_pipe_", WaitKind::Pipe),
    ("fifo_open", WaitKind::Pipe),
    ("unix_accept", WaitKind::Idle),
    ("unix_", WaitKind::Socket),
    ("tcp_", WaitKind::Socket),
    ("udp_", WaitKind::Socket),
    ("inet_csk_accept", WaitKind::Idle),
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
    fn system_calls() {
        assert_eq!(WaitKind::of_syscall(202), WaitKind::Lock);
        assert_eq!(WaitKind::of_syscall(39), WaitKind::Other);
        assert_eq!(WaitKind::of_syscall(9999), WaitKind::Other);
    }

    #[test]
    fn kernel_functions() {
        assert_eq!(WaitKind::of_kernel_function("pipe_read"), Some(WaitKind::Pipe));
        assert_eq!(WaitKind::of_kernel_function("schedule"), None);
    }
}
