//! The records of perf events: what the kernel tells.

use uhr_model::BuildId;

use super::sample::Sample;

/// The pid and tid of a task that had already left the process table when the record was written.
pub const NO_TASK: u32 = u32::MAX;

/// One record: who, when, where; and what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Who, when, where.
    pub stamp: Stamp,
    /// What.
    pub body: Body<'a>,
}

/// What every record carries. pid and tid are those of uhr's own pid namespace: 0 for tasks outside it and for the
/// idle task, [`NO_TASK`] for tasks that are gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The process on whose behalf the kernel wrote the record.
    pub pid: u32,
    /// Its thread.
    pub tid: u32,
    /// The CPU.
    pub cpu: u32,
}

/// What a record says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body<'a> {
    /// A sample.
    Sample(Sample<'a>),
    /// A process mapped a file or memory.
    Mapping(Mapping<'a>),
    /// A thread has a new name.
    Name {
        /// Whose.
        pid: u32,
        /// Whose.
        tid: u32,
        /// The name, at most 15 bytes, any bytes.
        name: &'a [u8],
        /// It comes from executing a program: all earlier mappings of the process are gone.
        is_exec: bool,
    },
    /// A thread or process began.
    Fork(Task),
    /// A thread ended.
    Exit(Task),
    /// The stamp's thread was given a CPU.
    SwitchIn {
        /// Whole machine: the thread that ran before.
        other: Option<(u32, u32)>,
    },
    /// The stamp's thread left its CPU.
    SwitchOut {
        /// It could have run on (run queue), rather than wait.
        is_preempted: bool,
        /// Whole machine: the thread that runs next.
        other: Option<(u32, u32)>,
    },
    /// The ring was full: so many records of all its events are missing before this one.
    Lost {
        /// How many.
        count: u64,
    },
    /// The event itself lost samples (hardware buffers; not among `Lost`).
    LostSamples {
        /// How many.
        count: u64,
    },
    /// The kernel stopped an event that was too fast.
    Throttle,
    /// It lets the event go on.
    Unthrottle,
    /// Code appeared in the kernel, or went away.
    KernelSymbol(KernelSymbol<'a>),
    /// A BPF program was loaded or unloaded.
    BpfProgram(BpfProgram),
    /// A record of a type that this version does not know.
    Unknown {
        /// Its type.
        kind: u32,
    },
}

/// A new mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping<'a> {
    /// The process.
    pub pid: u32,
    /// The thread that mapped it.
    pub tid: u32,
    /// The first address (AVMA).
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// The file offset of the first byte.
    pub file_offset: u64,
    /// Which file it was.
    pub file: FileIdentity,
    /// PROT_READ, PROT_WRITE, PROT_EXEC.
    pub protection: u32,
    /// Others see what is written to it: MAP_SHARED.
    pub is_shared: bool,
    /// The kernel recorded it as data, not as code.
    pub is_data: bool,
    /// The path in the process's own mount namespace, or `//anon`, `[heap]`, `[vdso]`. Any bytes.
    pub path: &'a [u8],
}

/// How a mapped file is told from another of the same name. The kernel gives one or the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileIdentity {
    /// The build id, which the kernel read from the mapped file.
    BuildId(BuildId),
    /// Device and inode, all 0 without a file.
    Inode {
        /// Of the device.
        major: u32,
        /// Of the device.
        minor: u32,
        /// Inode number.
        inode: u64,
        /// Inode generation.
        generation: u64,
    },
}

/// Who began or ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task {
    /// The process that the task belongs to.
    pub pid: u32,
    /// The task. Equal to `pid`: a process's first thread.
    pub tid: u32,
    /// Fork: the process that made it. A new thread has the same here as in `pid`.
    pub parent_pid: u32,
    /// Fork: the thread that made it.
    pub parent_tid: u32,
}

/// Kernel code that came or went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelSymbol<'a> {
    /// Its address.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// It went away.
    pub is_gone: bool,
    /// Its name.
    pub name: &'a [u8],
}

/// A BPF program that came or went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BpfProgram {
    /// PERF_BPF_EVENT_PROG_LOAD (1) or UNLOAD (2).
    pub action: u16,
    /// The program's id.
    pub id: u32,
    /// The hash of its instructions.
    pub tag: [u8; 8],
}
