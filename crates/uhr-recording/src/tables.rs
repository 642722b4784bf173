//! The tables of a recording. Times are nanoseconds of CLOCK_MONOTONIC; ids are row numbers of the table they name.

use crate::columns::table;

table! {
    /// Where a thread was on a CPU: one row a sample, in the order of time within a thread.
    Samples, SampleRow, "samples" {
        /// When.
        time_ns: u64,
        /// Row of `threads`.
        thread: u32,
        /// The CPU it ran on.
        cpu: u16,
        /// Row of `stacks`: the leaf of the stack.
        stack: u32,
        /// CPU time that the sample stands for; a thread's rows add up to its exact time on CPU.
        weight_ns: u64,
        /// Code of `StackEnding`: why the stack ends where it does, or why there is none.
        ending: u8,
        /// Number of the system call that it was in, where that was seen.
        syscall: Option<u32>,
    }
}

table! {
    /// Where a thread was not running. Short waits of one thread, stack and kind that begin within 100 ms are one row.
    OffCpu, OffCpuRow, "offcpu" {
        /// When the thread (first) stopped running.
        start_ns: u64,
        /// When it ran again (for the last time in this row), or when the recording ended.
        end_ns: u64,
        /// How long it did not run, in all: `end_ns - start_ns` where `count` is 1.
        duration_ns: u64,
        /// Time that the row stands for. Where only some waits had their stack taken, those stand for all of the same
        /// thread and length; what has no stack and no such likeness stands for itself.
        weight_ns: u64,
        /// How many waits the row is made of.
        count: u32,
        /// Row of `threads`.
        thread: u32,
        /// Row of `stacks`: where it stopped running.
        stack: u32,
        /// Code of `StackEnding`.
        ending: u8,
        /// True if it could have run but something else had the CPU (metric `runqueue`), false if it waited (`off-cpu`).
        runnable: bool,
        /// Code of `WaitKind`.
        wait: u8,
        /// Number of the system call that it waited in, where that was seen.
        syscall: Option<u32>,
        /// Row of `wakers`: what ended the wait; 0 where that was not seen.
        waker: u32,
        /// Row of `stacks`: what the waker was doing; 0 where that was not seen.
        waker_stack: u32,
    }
}

table! {
    /// What ended waits, as a tree: the waker of a wait, and who had ended the waker's own last wait. Row 0: not known.
    /// Rows come before the rows that use them.
    Wakers, WakerRow, "wakers" {
        /// This row's number.
        id: u32,
        /// Row of `wakers`: who had ended the last wait of this waker; missing where that is not known.
        woken_by: Option<u32>,
        /// Row of `threads`, if the waker was recorded.
        thread: Option<u32>,
        /// The waker's pid, in the namespace that uhr ran in.
        pid: Option<u32>,
        /// Its tid, in the namespace that uhr ran in.
        tid: Option<u32>,
        /// Its name (`comm`).
        name: Option<String>,
        /// Code of `Interrupt`, where an interrupt and no thread ended the wait. In a recording that is not finished a row
        /// can have both, the thread being that which ran: *finish* tells them apart by the stack.
        interrupt: Option<u8>,
    }
}

table! {
    /// User page faults: one row a sample.
    Faults, FaultRow, "faults" {
        /// When.
        time_ns: u64,
        /// Row of `threads`.
        thread: u32,
        /// Row of `stacks`.
        stack: u32,
        /// Code of `StackEnding`.
        ending: u8,
        /// The address that was touched.
        address: u64,
        /// Code of `Region`: what kind of memory it is in.
        region: u8,
        /// Row of `mapping_names`: what that memory is called, if it has a name.
        mapping: Option<u32>,
        /// How many faults the row stands for.
        weight: u64,
        /// Whether it had to wait for a disk.
        major: bool,
        /// Code of `PageSize`: how large the page is that it brought.
        page: u8,
    }
}

table! {
    /// What mappings are called that page faults fell on: the path of a file, of memory that is shared through one, or what
    /// the program calls its anonymous memory (`[anon:NAME]`), as `/proc/PID/maps` writes it without ` (deleted)`.
    MappingNames, MappingNameRow, "mapping_names" {
        /// This row's number.
        id: u32,
        /// The name; one that is longer than 512 bytes is cut.
        name: String,
    }
}

table! {
    /// System calls that ended: of one thread, kind and outcome, since such a row was last written. Where they are counted in
    /// windows only, a row stands for no more than its window (`syscall_windows`).
    Syscalls, SyscallRow, "syscalls" {
        /// When they were counted up; in the window that they were counted in.
        time_ns: u64,
        /// Row of `threads`.
        thread: u32,
        /// Number of the system call; missing for those of threads with more kinds of call than are told apart.
        syscall: Option<u32>,
        /// errno; 0: success. 512: a signal interrupted it, and it may begin again.
        error: u16,
        /// How many ended.
        count: u64,
        /// How many would have ended if counting had not slowed them down: in windows more than `count`, by a model of
        /// threads that do nothing but run.
        weight: u64,
        /// How long they took in all, waiting included, where they are measured. A call that lasts beyond the recording is
        /// in it with a count of 0.
        duration_ns: u64,
    }
}

table! {
    /// Windows in which system calls were counted. Empty: all the time, or never (the manifest tells).
    SyscallWindows, SyscallWindowRow, "syscall_windows" {
        /// When it opened.
        start_ns: u64,
        /// When it closed.
        end_ns: u64,
    }
}

table! {
    /// Resident memory of each process over time, polled.
    Resident, ResidentRow, "resident" {
        /// When.
        time_ns: u64,
        /// Row of `processes`.
        process: u32,
        /// Anonymous memory, in bytes.
        anonymous_bytes: u64,
        /// Memory of mapped files, in bytes.
        file_bytes: u64,
        /// Shared memory, in bytes.
        shared_bytes: u64,
    }
}

table! {
    /// The stack tree. A node is a frame and the node that called it; parents come before children. Row 0 is the empty
    /// stack: the parent of every outermost frame.
    Stacks, StackRow, "stacks" {
        /// This row's number.
        id: u32,
        /// The caller's node; missing in row 0.
        parent: Option<u32>,
        /// Row of `frames`; missing in row 0.
        frame: Option<u32>,
    }
}

table! {
    /// One address of one module, seen in a stack.
    Frames, FrameRow, "frames" {
        /// This row's number.
        id: u32,
        /// Code of `FrameMode`.
        mode: u8,
        /// Row of `modules`; missing where the address lay in no known mapping.
        module: Option<u32>,
        /// The lookup address in the module: of a return address already minus one. Relative to the image base, or as
        /// the module's kind says; the AVMA where the module is missing.
        address: u64,
        /// Whether it came from a return address (the instruction itself is then the call before it).
        is_return: bool,
    }
}

table! {
    /// The names of each frame, innermost inlined function first. Every frame has at least one row.
    Locations, LocationRow, "locations" {
        /// Row of `frames`.
        frame: u32,
        /// 0 for the innermost function; the last row of a frame is the physical function.
        depth: u32,
        /// Demangled name.
        function: Option<String>,
        /// Source file.
        file: Option<String>,
        /// Source line.
        line: Option<u32>,
        /// Where the physical function starts in its module (or the unwind entry, where the function has no name).
        function_start: Option<u64>,
        /// Code of `FrameMode`, where the name says more than the address did (a Python function in generated code).
        mode: Option<u8>,
        /// Code of `Unsymbolized`: why there is no name.
        reason: Option<u8>,
    }
}

table! {
    /// Files that code was mapped from, the kernel, and the generated code of each process.
    Modules, ModuleRow, "modules" {
        /// This row's number.
        id: u32,
        /// Code of `ModuleKind`.
        kind: u8,
        /// Path as the process saw it, or a name in brackets.
        path: String,
        /// Build id in hexadecimal.
        build_id: Option<String>,
        /// For generated code: row of `processes`.
        process: Option<u32>,
        /// Where its names came from.
        symbols: Option<String>,
    }
}

table! {
    /// The code of functions that are in stacks, for their disassembly: as long as there is room, the busiest first. Each
    /// function (or each part of one that the compiler split) is one row; what has no row had no room for one.
    MachineCode, MachineCodeRow, "code" {
        /// Row of `modules`.
        module: u32,
        /// Where the function begins, counted as `address` in `frames` is.
        start: u64,
        /// The address behind its last byte; equal to `start` where it is not known.
        end: u64,
        /// All its bytes; none where `missing` says why.
        bytes: Vec<u8>,
        /// Code of `NoCode`: why there are no bytes.
        missing: Option<u8>,
    }
}

table! {
    /// The source of each instruction in the code of busy functions, also of those that no sample fell on, by module and
    /// address. A row is of its address and of all behind it, up to the next one. Inline chains are told as in `locations`.
    CodeLines, CodeLineRow, "code_lines" {
        /// Row of `modules`.
        module: u32,
        /// From where on the code is of this source, counted as `address` in `frames` is.
        address: u64,
        /// 0 for the innermost function; the last row of an address is the physical function.
        depth: u32,
        /// Demangled name; missing, as file and line are, behind the end of a function.
        function: Option<String>,
        /// Source file.
        file: Option<String>,
        /// Source line.
        line: Option<u32>,
    }
}

table! {
    /// Lines of source that came with the code which was made from them, as those of eBPF programs do.
    SourceLines, SourceLineRow, "source_lines" {
        /// Source file, as in `locations`.
        file: String,
        /// Source line.
        line: u32,
        /// Its text.
        text: String,
    }
}

table! {
    /// Executable mappings of each process.
    Mappings, MappingRow, "mappings" {
        /// When it was made (or first seen).
        time_ns: u64,
        /// Row of `processes`.
        process: u32,
        /// First address.
        start: u64,
        /// Address behind the last.
        end: u64,
        /// Offset in the file of the byte at `start`.
        file_offset: u64,
        /// Row of `modules`.
        module: u32,
    }
}

table! {
    /// Processes. A pid that executes a new program is a new row.
    Processes, ProcessRow, "processes" {
        /// This row's number.
        id: u32,
        /// Its pid, in the namespace that uhr ran in.
        pid: u32,
        /// Its pid in its own namespace, where that differs.
        inner_pid: Option<u32>,
        /// Row of the process that started it, if that was recorded.
        parent: Option<u32>,
        /// Its name (`comm`).
        name: String,
        /// Path of its program.
        executable: Option<String>,
        /// When it began, or when the recording did.
        start_ns: u64,
        /// When it ended; missing if it outlived the recording.
        end_ns: Option<u64>,
        /// Path of its cgroup, as the host sees it.
        cgroup: Option<String>,
        /// Id of the container that its cgroup belongs to.
        container: Option<String>,
        /// Uid of the pod that its cgroup belongs to.
        pod: Option<String>,
    }
}

table! {
    /// Threads.
    Threads, ThreadRow, "threads" {
        /// This row's number.
        id: u32,
        /// Row of `processes`.
        process: u32,
        /// Its tid, in the namespace that uhr ran in.
        tid: u32,
        /// Its last name (`comm`).
        name: String,
        /// When it began, or when the recording did.
        start_ns: u64,
        /// When it ended; missing if it outlived the recording.
        end_ns: Option<u64>,
        /// Exact time on CPU while recorded.
        on_cpu_ns: u64,
        /// Samples of it that were captured.
        samples: u64,
        /// Threads too short for samples of their own share the time of all among the samples of all: row of the first of
        /// them. Otherwise this row's number.
        pool: u32,
        /// How often it left its CPU.
        switches: u64,
        /// Time it spent runnable but not running while recorded, by the scheduler's own count.
        run_delay_ns: Option<u64>,
    }
}

impl WakerRow {
    /// Row 0: of nobody it is known.
    pub const NOBODY: Self =
        Self { id: 0, woken_by: None, thread: None, pid: None, tid: None, name: None, interrupt: None };
}
