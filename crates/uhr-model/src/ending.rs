use crate::codes::codes;

codes! {
    /// Why a stack ended where it did. Everything but [`StackEnding::Complete`] means that callers are missing.
    StackEnding {
        /// The unwinder reached the thread's first function.
        Complete = 0 "complete",
        /// The code has no unwind information for this address and none could be derived.
        NoUnwindInfo = 1 "no-unwind-info",
        /// The frame chain left the part of the stack that was copied.
        CopyTooShort = 2 "stack-copy-too-short",
        /// More frames than the limit: those in the middle were left out, and the outermost may be missing too.
        TooDeep = 3 "too-deep",
        /// Memory of the target that the unwinder needed could not be read.
        MemoryUnreadable = 4 "memory-unreadable",
        /// The address lies in no mapping that is known.
        UnknownMapping = 5 "unknown-mapping",
        /// The frame-pointer chain broke off: code on the way was built without frame pointers.
        BrokenFramePointers = 6 "broken-frame-pointers",
        /// The stack pointer did not move towards the stack's base.
        NoProgress = 7 "no-progress",
        /// There was no user stack: the thread was in the middle of an exec or an exit.
        NoUserStack = 8 "no-user-stack",
        /// The host does not let uhr see the stack, and it could not be read from outside either.
        NotPermitted = 9 "not-permitted",
        /// This wait or thread was counted exactly, but no stack of it was taken.
        NotSampled = 10 "not-sampled",
        /// Callers beyond this point were found by a scan of the stack, not proven.
        Heuristic = 11 "heuristic",
        /// The thread was too short for a sample; its exact CPU time stands without a stack.
        TooShortToSample = 12 "too-short-to-sample",
        /// Kernel time that an ordinary user may not look into, counted without a stack.
        KernelNotVisible = 13 "kernel-not-visible",
    }
}

impl StackEnding {
    /// Whether the row counts time that no stack was taken for, instead of a sample.
    pub fn is_without_sample(self) -> bool {
        matches!(self, Self::NotSampled | Self::TooShortToSample | Self::KernelNotVisible)
    }

    /// The key under which rows without a stack stand in every grouping, such as `[too short to sample]`.
    pub fn row_key(self) -> Option<&'static str> {
        match self {
            Self::TooShortToSample => Some("[too short to sample]"),
            Self::KernelNotVisible => Some("[kernel, not visible]"),
            Self::NotSampled => Some("[stack not sampled]"),
            _ => None,
        }
    }
}
