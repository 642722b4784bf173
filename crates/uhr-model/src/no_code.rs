use crate::codes::codes;

codes! {
    /// Why the bytes of a function's code are not in a recording.
    NoCode {
        /// The file was gone, was another than the one that ran, or does not hold all of the function.
        NotInFile = 1 "not-in-file",
        /// The runtime that generated the code did not write it into a jitdump.
        NotInJitdump = 2 "not-in-jitdump",
        /// The kernel's code is not read.
        KernelNotRead = 3 "kernel-not-read",
        /// Nothing says where the function ends.
        UnknownEnd = 4 "unknown-end",
        /// The function is longer than is kept of one.
        TooLong = 5 "too-long",
        /// So much code of busier functions was kept that this one had no room.
        NoRoom = 6 "no-room",
    }
}
