use crate::codes::codes;

codes! {
    /// What kind of code a frame is in.
    FrameMode {
        /// Native code of the process.
        User = 0 "user",
        /// The kernel.
        Kernel = 1 "kernel",
        /// Code that a runtime generated.
        Jit = 2 "jit",
        /// A function of an interpreted language.
        Interpreter = 3 "interpreter",
        /// No code: it stands in a stack of very many frames for those in the middle, which were left out.
        LeftOut = 4 "left-out",
    }
}

codes! {
    /// What a module is, which decides how its addresses get names.
    ModuleKind {
        /// An ELF file; addresses are relative to its image base.
        Elf = 0 "elf",
        /// An ELF file that could not be opened when it was first seen; addresses are file offsets.
        UnreadElf = 1 "unread-elf",
        /// The running kernel; addresses are AVMAs.
        Kernel = 2 "kernel",
        /// The vDSO that the kernel maps into each process; addresses are relative to its image base.
        Vdso = 3 "vdso",
        /// Executable memory of one process without a file, as JIT compilers make it; addresses are AVMAs.
        Jit = 4 "jit",
        /// A file that is not ELF but was mapped; addresses are file offsets.
        File = 5 "file",
        /// An eBPF program that the kernel has compiled, one each time that one is loaded; addresses are AVMAs.
        Bpf = 6 "bpf",
    }
}
