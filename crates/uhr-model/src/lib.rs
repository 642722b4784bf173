//! The vocabulary of uhr, and what an ELF file says about itself.
//!
//! Every other crate speaks in these words: addresses that say which space they live in, ids of a recording's rows,
//! metrics with their units, dimensions, why a stack ended, what a thread waited for. There is no I/O here beyond
//! reading bytes that a caller hands in, and no unsafe code.

#![forbid(unsafe_code)]

mod address;
mod build_id;
mod codes;
mod dimension;
mod ending;
mod errno;
mod frame;
mod ids;
mod interrupt;
mod metric;
mod no_code;
pub mod object;
mod page_size;
mod pool;
mod region;
mod syscall;
mod unsymbolized;
mod wait;

pub use address::{Avma, CodeAddress, FileOffset, RelativeAddress, Svma};
pub use build_id::BuildId;
pub use dimension::{Dimension, DimensionKind};
pub use ending::StackEnding;
pub use errno::errno_name;
pub use frame::{FrameMode, ModuleKind};
pub use ids::{FrameId, ModuleId, ProcessId, StackId, ThreadId};
pub use interrupt::Interrupt;
pub use metric::Metric;
pub use no_code::NoCode;
pub use page_size::PageSize;
pub use pool::PoolPart;
pub use region::Region;
pub use syscall::{syscall_name, syscall_number, syscall_of_kernel_function};
pub use unsymbolized::Unsymbolized;
pub use wait::WaitKind;
