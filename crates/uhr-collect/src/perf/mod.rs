//! Linux perf events, opened by uhr itself: no `perf` binary, with root or without.
//!
//! One record's way: [`Session::open`] finds out what this user may see and opens the events; the kernel writes records
//! into rings; [`Session::drain`] copies them out as bytes; a [`Merger`] puts the rings' records into the order of
//! time; a [`Decoder`] (which may live on another thread) makes a [`Record`] of the bytes.
//!
//! What an ordinary user is refused is left out and stated in [`Granted`]; where nothing is possible, [`OpenError`]
//! says what was refused, by what, and which command would allow it. All times are nanoseconds of CLOCK_MONOTONIC.

mod access;
mod attr;
mod decoder;
mod error;
mod event;
mod fields;
mod granted;
mod ladder;
mod lane;
mod merge;
mod opening;
mod plan;
mod record;
mod ring;
mod sample;
mod session;
mod sys;

pub(crate) use access::online_cpus;
pub use access::{Access, Refusal};
pub use attr::THINNED_TO;
pub use decoder::{Decoder, Malformed};
pub use error::OpenError;
pub use event::{EventCounts, EventKind};
pub use granted::{Granted, Limitation, RingLayout};
pub(crate) use ladder::Ladder;
pub use merge::Merger;
pub use record::{Body, BpfProgram, FileIdentity, KernelSymbol, Mapping, NO_TASK, Record, Stamp, Task};
pub use sample::{Addresses, Sample, UserRegisters};
pub use session::{Attached, Drained, Session, Settings, Targets, Thinned, UserStack};
pub(crate) use sys::asleep_ns;
pub(crate) use sys::{BeforeOthers, hurry_this_thread, process_cpu_ns, thread_cpu_ns};
pub use sys::{OpenFiles, monotonic_ns, raise_open_files};
