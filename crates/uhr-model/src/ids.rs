//! Dense ids: the row number of a thing in its table of the recording.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub u32);

        impl $name {
            /// The row number as an index.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id! {
    /// A process, or the segment of one between two execs: a pid that executes a new program is a new row.
    ProcessId
}
id! {
    /// A thread of one process row.
    ThreadId
}
id! {
    /// A module: one build of one file that code or data was mapped from, the kernel, or the JIT code of a process.
    ModuleId
}
id! {
    /// A frame: one address of one module.
    FrameId
}
id! {
    /// A node of the stack tree: a frame and everything that called it. Row 0 is the empty stack.
    StackId
}
