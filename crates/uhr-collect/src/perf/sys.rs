//! The system calls behind perf events. All unsafe code of this module is in this file.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings::{PERF_FLAG_FD_CLOEXEC, perf_event_attr, perf_event_mmap_page};

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Opens one event of thread `pid` (0: the caller, -1: every thread) on `cpu` (-1: every CPU).
pub(super) fn open_event(attr: &perf_event_attr, pid: i32, cpu: i32) -> io::Result<OwnedFd> {
    let mut attr = *attr;
    let flags = libc::c_ulong::from(PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` is a live, fully initialised structure that states its own size; the kernel writes at most its
    // `size` field. The call has no other memory effect: the events asked for here raise no signals.
    let fd = check(unsafe { perf::perf_event_open(&raw mut attr, pid, cpu, -1, flags) })?;
    // SAFETY: the kernel has just made this descriptor for us, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Starts an event and those that its thread's children inherited.
pub(super) fn enable(event: &OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is open; the argument is a plain number.
    check(unsafe { perf::ioctls::ENABLE(event.as_raw_fd(), 0) }).map(drop)
}

/// Stops an event and those that its thread's children inherited.
pub(super) fn disable(event: &OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is open; the argument is a plain number.
    check(unsafe { perf::ioctls::DISABLE(event.as_raw_fd(), 0) }).map(drop)
}

/// Sends the records of `event` into the ring of `owner`. Both must be of the same CPU, or of the same thread.
pub(super) fn redirect(event: &OwnedFd, owner: &OwnedFd) -> io::Result<()> {
    // SAFETY: both descriptors are open; the argument is a plain number.
    check(unsafe { perf::ioctls::SET_OUTPUT(event.as_raw_fd(), owner.as_raw_fd()) }).map(drop)
}

/// The id that records of this event carry.
pub(super) fn event_id(event: &OwnedFd) -> io::Result<u64> {
    let mut id = 0_u64;
    // SAFETY: the kernel writes eight bytes to a live u64.
    check(unsafe { perf::ioctls::ID(event.as_raw_fd(), &raw mut id) }).map(|_| id)
}

/// Reads an event's counts: as many words as its read format has.
pub(super) fn read_words(event: &OwnedFd, words: &mut [u64]) -> io::Result<usize> {
    // SAFETY: the buffer is live, writable and as long as stated.
    let bytes = unsafe { libc::read(event.as_raw_fd(), words.as_mut_ptr().cast(), size_of_val(words)) };
    usize::try_from(bytes).map(|bytes| bytes / 8).map_err(|_| io::Error::last_os_error())
}

/// Now, in nanoseconds of CLOCK_MONOTONIC: the clock of every record.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// What CLOCK_BOOTTIME has more: the time that the machine was asleep.
pub(crate) fn asleep_ns() -> u64 {
    clock_ns(libc::CLOCK_BOOTTIME).saturating_sub(monotonic_ns())
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of this process.
pub(crate) fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to a live timespec. These clocks exist on every Linux, so the call cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Lets the calling thread run before all that are not real-time, where the user may ask for that (root,
/// CAP_SYS_NICE). With two CPUs and ten busy threads it waited up to 180 ms for its turn, at the highest niceness 113 ms,
/// so not more than 10 ms (seen).
pub(crate) fn hurry_this_thread() {
    let least = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads a live sched_param; 0 is the calling thread. A refusal changes nothing.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const least) };
}

/// Lets the calling thread have its turn before most others while this lives, where the user may ask for that.
#[derive(Debug)]
pub(crate) struct BeforeOthers {
    /// The niceness that it had.
    before: libc::c_int,
}

impl BeforeOthers {
    /// Between interactive programs and the kernel's own threads; beside ten busy threads that is nine tenths of a CPU.
    const NICENESS: libc::c_int = -10;

    pub(crate) fn new() -> Self {
        // SAFETY: both calls take numbers; 0 is the calling thread. A refusal changes nothing.
        let before = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        // SAFETY: see above.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, Self::NICENESS.min(before)) };
        Self { before }
    }
}

impl Drop for BeforeOthers {
    fn drop(&mut self) {
        // SAFETY: it takes numbers; to be nicer than before is allowed to everybody.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, self.before) };
    }
}

/// The size of a page in bytes.
pub(super) fn page_bytes() -> usize {
    // SAFETY: sysconf reads a constant.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// How many files this process may have open, before and after [`raise_open_files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFiles {
    /// The soft limit that uhr was started with. A child should be given it back before its exec: programs that use
    /// select(2) cannot stand a higher one.
    pub soft_before: u64,
    /// The soft limit now.
    pub soft: u64,
    /// The limit that only root may raise.
    pub hard: u64,
}

/// The soft limit of open files that this process was started with.
static SOFT_BEFORE: OnceLock<u64> = OnceLock::new();

/// Raises the soft limit of open files to the hard one: each event is a descriptor. Calling it again is harmless.
pub fn raise_open_files() -> io::Result<OpenFiles> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes to a live rlimit.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    let soft_before = *SOFT_BEFORE.get_or_init(|| limit.rlim_cur);
    if limit.rlim_cur < limit.rlim_max {
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        // SAFETY: the kernel reads a live rlimit. On refusal the old limit stays, which is what is then reported.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0 {
            limit = raised;
        }
    }
    Ok(OpenFiles { soft_before, soft: limit.rlim_cur, hard: limit.rlim_max })
}

/// The pages that the kernel shares with us for one ring: a control page, then the data.
#[derive(Debug)]
pub(super) struct RingPages {
    start: NonNull<u8>,
    page_bytes: usize,
    data_bytes: usize,
}

// SAFETY: the pages belong to this value alone, stay where they are, and all access goes through its methods.
unsafe impl Send for RingPages {}

impl RingPages {
    /// Maps the ring of `event` with `data_bytes` of data, a power of two of at least one page.
    pub(super) fn map(event: &OwnedFd, data_bytes: usize) -> io::Result<Self> {
        let page_bytes = page_bytes();
        if !data_bytes.is_power_of_two() || data_bytes < page_bytes {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let (access, length) = (libc::PROT_READ | libc::PROT_WRITE, page_bytes + data_bytes);
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, event.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
        Ok(Self { start, page_bytes, data_bytes })
    }

    pub(super) fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    fn counter(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: `offset` is that of an aligned u64 field of the control page, which is mapped as long as `self`
        // lives. The kernel writes the field at any time, hence an atomic.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    /// The position up to which the kernel has written, counted from the ring's beginning of time.
    pub(super) fn head(&self) -> u64 {
        self.counter(std::mem::offset_of!(perf_event_mmap_page, data_head)).load(Ordering::Acquire)
    }

    /// Gives everything before `position` back to the kernel.
    pub(super) fn release(&mut self, position: u64) {
        self.counter(std::mem::offset_of!(perf_event_mmap_page, data_tail))
            .store(position, Ordering::Release);
    }

    /// The bytes from `position` on, `length` of them or as many as there are up to the end of the data. The caller
    /// asks only for what lies between the tail and the head.
    pub(super) fn bytes(&self, position: u64, length: usize) -> &[u8] {
        let at = (position & (self.data_bytes as u64 - 1)) as usize;
        let length = length.min(self.data_bytes - at);
        // SAFETY: `at + length` is at most `data_bytes`, so the slice lies inside the mapping. The kernel does not
        // write between the tail and the head that we loaded with Acquire, and the tail moves only through
        // `release`, which needs `&mut self` and so cannot happen while the slice lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(self.page_bytes + at), length) }
    }
}

impl Drop for RingPages {
    fn drop(&mut self) {
        // SAFETY: this range was mapped by `map`, belongs to this value, and no slice of it outlives the value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.page_bytes + self.data_bytes) };
    }
}

/// Waits for any of many rings. What is watched carries a number.
#[derive(Debug)]
pub(super) struct Watch(OwnedFd);

/// One thing that [`Watch::wait`] saw.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) number: u64,
    /// The thread of the watched event, and all who inherited the event, have ended.
    pub(super) ended: bool,
}

impl Watch {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel has just made this descriptor for us, so nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(super) fn add(&self, event: &OwnedFd, number: u64) -> io::Result<()> {
        let mut entry = libc::epoll_event { events: libc::EPOLLIN as u32, u64: number };
        let (epoll, event) = (self.0.as_raw_fd(), event.as_raw_fd());
        // SAFETY: the kernel reads a live epoll_event.
        check(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, event, &raw mut entry) }).map(drop)
    }

    pub(super) fn remove(&self, event: &OwnedFd) -> io::Result<()> {
        let (epoll, event) = (self.0.as_raw_fd(), event.as_raw_fd());
        // SAFETY: since Linux 2.6.9 the entry of a removal may be null.
        check(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, event, std::ptr::null_mut()) }).map(drop)
    }

    /// Waits at most `timeout`. Nothing seen: the time is over, or a signal came.
    pub(super) fn wait(&self, timeout: Duration) -> io::Result<Vec<Seen>> {
        let mut entries = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let milliseconds =
            libc::c_int::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(libc::c_int::MAX);
        let (room, epoll) = (entries.len() as libc::c_int, self.0.as_raw_fd());
        // SAFETY: the kernel writes at most `room` entries to a live array of that many.
        let found = check(unsafe { libc::epoll_wait(epoll, entries.as_mut_ptr(), room, milliseconds) });
        let found = match found {
            Ok(found) => found as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        let ended = (libc::EPOLLHUP | libc::EPOLLERR) as u32;
        Ok(entries[..found].iter().map(|e| Seen { number: e.u64, ended: e.events & ended != 0 }).collect())
    }
}
