use crate::codes::codes;

codes! {
    /// Why the bytes of a function's code are not in a recording.
    NoCode {
        /// The file was gone, was another than the one that ran, or does not hold all of the function.
        NotInFile = 1 "not-in-file",
        /// The runtime that generated the code did not write it into a jitdump.
        NotInJitdump = 2 "not-in-jitdump",
        /// The kernel's code was not read.
        KernelNotRead = 3 "kernel-not-read",
        /// Nothing says where the function ends.
        UnknownEnd = 4 "unknown-end",
        /// The function is longer than is kept of one.
        TooLong = 5 "too-long",
        /// So much code of busier functions was kept that this one had no room.
        NoRoom = 6 "no-room",
        /// The eBPF program was gone before its code was read, or it may not be read.
        ProgramNotRead = 7 "program-not-read",
        /// The kernel shows its memory nowhere: there is no `/proc/kcore`.
        NoKcore = 8 "no-kcore",
        /// `/proc/kcore` may not be read.
        KcoreForbidden = 9 "kcore-forbidden",
    }
}
