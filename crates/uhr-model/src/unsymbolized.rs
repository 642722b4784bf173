use crate::codes::codes;

codes! {
    /// Why a frame has no function name.
    Unsymbolized {
        /// The module's file was not there, or could not be opened, when names were looked up.
        FileMissing = 1 "file-missing",
        /// The file on disk is another build than the one that ran.
        FileChanged = 2 "file-changed",
        /// The module has no symbol at this address: it is stripped, or the address lies in a gap between symbols.
        NoSymbol = 3 "no-symbol",
        /// Generated code for which the runtime wrote no perf map or jitdump.
        NoJitMap = 4 "no-jit-map",
        /// The kernel hides its symbols from this user (`kernel.kptr_restrict`).
        KernelRestricted = 5 "kernel-restricted",
        /// The address lay in no known mapping.
        UnknownMapping = 6 "unknown-mapping",
        /// The file is damaged, or not what it says it is.
        Malformed = 7 "malformed",
    }
}
