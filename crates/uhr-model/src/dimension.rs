use crate::codes::codes;

codes! {
    /// What an answer can be grouped by.
    Dimension {
        /// The program's name, all its processes together.
        Command = 0 "command",
        /// One process (one exec of one pid).
        Process = 1 "process",
        /// The thread's name, all such threads together.
        ThreadName = 2 "thread-name",
        /// One thread.
        Thread = 3 "thread",
        /// Kind of code of the leaf: user, kernel, jit, interpreter.
        Mode = 4 "mode",
        /// The file that the code is in.
        Module = 5 "module",
        /// The function.
        Function = 6 "function",
        /// The source file.
        File = 7 "file",
        /// The source line.
        Line = 8 "line",
        /// The kind of memory that faulted.
        Region = 9 "region",
        /// When: 60 equal parts of the window, or parts of a given length.
        Time = 10 "time",
        /// The system call that a thread was in.
        Syscall = 11 "syscall",
        /// What kind of thing a thread waited for.
        Wait = 12 "wait",
        /// What ended a wait: a thread, or an interrupt.
        Waker = 13 "waker",
        /// The cgroup of the process, as a path.
        Cgroup = 14 "cgroup",
        /// The container of the process, by its id.
        Container = 15 "container",
        /// The pod of the process, by its uid.
        Pod = 16 "pod",
        /// The CPU that ran the thread.
        Cpu = 17 "cpu",
        /// How a system call ended: `ok`, or the name of its error.
        Errno = 18 "errno",
        /// Whether a page fault waited for a disk: `major` or `minor`.
        Fault = 19 "fault",
        /// The address in the module: of the instruction where its code is known, otherwise as it was seen.
        Address = 20 "address",
        /// The instruction, as its disassembly says it.
        Instruction = 21 "instruction",
        /// How large the page is that a fault brought: `base` (4 KiB) or `huge`.
        PageSize = 22 "page-size",
        /// The name of the mapping that faulted: the path of a file, or what a program calls its memory.
        Mapping = 23 "mapping",
    }
}

/// What a dimension is a property of: a whole sample, or one frame of its stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DimensionKind {
    /// A property of the sample as a whole; self and total are the same.
    Sample,
    /// A property of each frame.
    Frame,
}

impl Dimension {
    /// Whether it belongs to the sample or to each frame.
    pub fn kind(self) -> DimensionKind {
        match self {
            Self::Mode
            | Self::Module
            | Self::Function
            | Self::File
            | Self::Line
            | Self::Address
            | Self::Instruction => DimensionKind::Frame,
            _ => DimensionKind::Sample,
        }
    }
}
