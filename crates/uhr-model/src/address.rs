//! Addresses. A number alone does not say which space it lives in, so each space is a type of its own, and the
//! conversions stand beside the thing that knows how to convert ([`crate::object::Segments`]).

use std::fmt;

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u64);

        impl $name {
            /// This address plus `bytes`, or `None` past the end of the space.
            pub fn checked_add(self, bytes: u64) -> Option<Self> {
                self.0.checked_add(bytes).map(Self)
            }
            /// The distance from `start` up to this address, or `None` if it lies below.
            pub fn offset_from(self, start: Self) -> Option<u64> {
                self.0.checked_sub(start.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    };
}

address! {
    /// An actual virtual memory address: where a byte is in a running process (or in the running kernel).
    Avma
}
address! {
    /// A stated virtual memory address: where the ELF file's program headers say the byte would be.
    Svma
}
address! {
    /// A position in a file, in bytes from its start.
    FileOffset
}
address! {
    /// An address in a module counted from its image base (the first loadable segment), so that it is the same in
    /// every process and run. For modules without an ELF file (JIT code, the kernel) it is the AVMA itself.
    RelativeAddress
}

/// An address in code as an unwinder found it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CodeAddress<A> {
    /// The instruction that was about to run.
    Instruction(A),
    /// Where a call returns to: the instruction after the call. After a call that never returns it can lie in the
    /// next function, so names are looked up one byte earlier.
    Return(A),
}

impl CodeAddress<Avma> {
    /// The address to look names up by. This is the only place where uhr subtracts one from a return address.
    pub fn lookup(self) -> Avma {
        match self {
            Self::Instruction(address) => address,
            Self::Return(address) => Avma(address.0.saturating_sub(1)),
        }
    }
}
