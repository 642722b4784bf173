//! Whole user stacks of x86-64 processes, from outside.
//!
//! Two questions are answered. [`ProcessUnwinder::unwind`]: registers and a copy of the stack were taken at one moment
//! (a perf sample); the thread has moved on since, so nothing but code may be read from the process now.
//! [`ProcessUnwinder::unwind_blocked`]: a thread is blocked, its `ip` and `sp` are known from `/proc`, its other
//! registers are not, and its stack can be read as long as it stays blocked.
//!
//! Mechanism: the row of the call frame information (`.eh_frame`, `.debug_frame`) for each address is compiled once
//! into a [`row::Row`] and kept in an [`UnwindCache`] for all processes. A register is a known value or unknown, never
//! a guess, so a row that needs an unknown register fails instead of lying. Where there is no such information the
//! instructions around the address say how the frame ends, or the frame pointer is followed if what it leads to can be
//! a return address (see [`derived`]). Every stack says why it ended.
//!
//! Of aarch64 there are rows of a simple form ([`aarch64`]), for a walker that finds its callers by them, and no walk here.
//!
//! gimli evaluates the rows. framehop, which stands on it too, does not serve here: its expressions cannot read
//! memory, which every signal frame of glibc needs; where information is missing it follows `rbp` without saying so;
//! and it cannot hold a register whose value is unknown.

mod aarch64;
mod blocked;
mod cache;
mod chain;
mod code;
mod derived;
mod entries;
mod evidence;
mod exits;
mod frame_pointers;
mod known_code;
mod mappings;
mod memory;
mod module;
mod process;
mod registers;
mod row;
mod row_table;
mod rules;
mod sections;
mod simple_row;
mod stack;
mod tables;
mod walk;

pub use aarch64::{Aarch64Frame, Aarch64Saved};
pub use blocked::BlockedStack;
pub use cache::UnwindCache;
pub use frame_pointers::FramePointers;
pub use mappings::CodeMapping;
pub use memory::{MemoryError, ProcessMemory, TargetMemory};
pub use module::UnwindModule;
pub use process::ProcessUnwinder;
pub use registers::Registers;
pub use simple_row::{SavedBp, SimpleRow};
pub use stack::StackCopy;
pub use walk::MAX_FRAMES;
