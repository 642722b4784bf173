//! The perf events that programs are attached to: one of each kind on every CPU, whoever runs there.

use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;

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
