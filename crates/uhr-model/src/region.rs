use crate::codes::codes;

codes! {
    /// What kind of memory an address of a process is in.
    Region {
        /// The program break's area.
        Heap = 0 "heap",
        /// The main thread's stack.
        Stack = 1 "stack",
        /// Anonymous private memory: large allocations, arenas, stacks of other threads.
        Anonymous = 2 "anonymous",
        /// A private or shared mapping of a file.
        File = 3 "file",
        /// Shared memory: shm, memfd, shared anonymous mappings.
        Shared = 4 "shared-memory",
        /// The vDSO and its data pages.
        Vdso = 5 "vdso",
        /// No mapping is known at this address.
        Unknown = 6 "unknown",
    }
}
