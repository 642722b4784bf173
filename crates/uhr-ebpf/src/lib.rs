//! uhr's sampler inside the kernel: eBPF programs in C (`bpf/`), compiled by the build and loaded by [`Sampler`], and the
//! events that they send, as Rust sees them ([`Event`]).
//!
//! The programs decide in the kernel what is worth telling: a tick of the clock is one event with its stack; of the
//! hundred thousands of waits a second only sums grow, and the few whose stacks were taken are told one by one.
//! The layouts that both sides share are in `bpf/abi.h` and `abi.rs`, and nowhere else.

mod abi;
mod calls;
mod chance;
mod clock;
mod cost;
mod counters;
mod error;
mod event;
#[cfg(test)]
mod hosted;
mod loaded_programs;
mod loading;
mod log;
mod mapped;
mod options;
mod outside;
mod probe;
mod programs;
mod ring;
mod sampler;
mod stack_sample;
mod tables;

pub use abi::MAX_COPY_BYTES;
pub use calls::{Call, CallWindow, Calls, Counting};
pub use chance::Chance;
pub use cost::ProgramCost;
pub use counters::{Counters, WALKS};
pub use error::LoadError;
pub use event::{Event, File, Head, How, Occasion, State, Task, Times, WaitEnd, Waker, Why, Woken};
pub use loaded_programs::{
    ProgramCode, ProgramFunction, ProgramLine, ProgramOutline, next_program, program_code, program_outline,
};
pub use options::{Options, Scope};
pub use probe::{Feature, Refused, check_rights, effective_capabilities, features};
pub use programs::{instead, purpose};
pub use sampler::{RINGS, Sampler};
pub use stack_sample::{KEPT_FRAMES, Registers, Sample, SampleKind, WalkEnd, WalkedFrame};
pub use tables::{Code, PackedRows, TableId, Tables, WalkBy};
