use crate::codes::codes;

codes! {
    /// What is counted. Each metric has one unit.
    Metric {
        /// Time on a CPU.
        Cpu = 0 "cpu",
        /// Time blocked: neither running nor able to run.
        OffCpu = 1 "off-cpu",
        /// Time able to run but not running, because something else had the CPU.
        Runqueue = 2 "runqueue",
        /// The three above under one stack.
        Wall = 3 "wall",
        /// User page faults.
        PageFaults = 4 "page-faults",
        /// Resident memory over time.
        Resident = 5 "resident",
        /// System calls that ended.
        Syscalls = 6 "syscalls",
        /// Time in system calls, waiting included.
        SyscallTime = 7 "syscall-time",
    }
}

impl Metric {
    /// Whether its observations have stacks.
    pub fn has_stacks(self) -> bool {
        !matches!(self, Self::Resident | Self::Syscalls | Self::SyscallTime)
    }

    /// The unit of its values, as answers write it.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Cpu | Self::OffCpu | Self::Runqueue | Self::Wall | Self::SyscallTime => "ns",
            Self::PageFaults | Self::Syscalls => "count",
            Self::Resident => "bytes",
        }
    }
}
