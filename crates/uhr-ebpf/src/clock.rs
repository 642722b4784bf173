//! The perf events that programs are attached to: one of each kind on every CPU, whoever runs there.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

use perf_event_open_sys::bindings as b;

/// What makes the program run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The CPU's clock.
    Clock { period_ns: u64 },
    /// Page faults that found the page in memory: one in so many.
    MinorFaults { period: u64 },
    /// Page faults that waited for a disk: each.
    MajorFaults,
}

/// Sets the period of an open clock anew.
pub(crate) fn set_period(clock: &File, period_ns: u64) -> io::Result<()> {
    let mut period = period_ns.max(1);
    // The kernel wants the number's address, which the crate takes for the number (include/uapi/linux/perf_event.h).
    let address = (&raw mut period) as u64;
    // SAFETY: the kernel reads a live u64.
    match unsafe { perf_event_open_sys::ioctls::PERIOD(clock.as_raw_fd(), address) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Source {
    /// Opens it on a CPU. It does not count before a program is attached.
    pub(crate) fn open(self, cpu: i32) -> io::Result<File> {
        let (config, period) = match self {
            Self::Clock { period_ns } => (b::PERF_COUNT_SW_CPU_CLOCK, period_ns),
            Self::MinorFaults { period } => (b::PERF_COUNT_SW_PAGE_FAULTS_MIN, period),
            Self::MajorFaults => (b::PERF_COUNT_SW_PAGE_FAULTS_MAJ, 1),
        };
        let mut attr = b::perf_event_attr {
            type_: b::PERF_TYPE_SOFTWARE,
            size: size_of::<b::perf_event_attr>() as u32,
            config: u64::from(config),
            ..b::perf_event_attr::default()
        };
        attr.__bindgen_anon_1.sample_period = period.max(1);
        attr.set_disabled(1);
        // SAFETY: the attributes live for the call, which only reads them.
        let fd = unsafe {
            perf_event_open_sys::perf_event_open(
                &raw mut attr,
                -1,
                cpu,
                -1,
                u64::from(b::PERF_FLAG_FD_CLOEXEC),
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        Ok(unsafe { File::from_raw_fd(fd) })
    }
}
