//! Records a program: Linux perf events, unwinding, the comings and goings of processes, and the evidence that names
//! are made from later.
//!
//! One sample's way: the kernel writes it into a ring ([`perf`]); a reader thread copies it out; records of all rings are
//! put in order of time; the pipeline unwinds its stack ([`uhr_unwind`]), turns addresses into frames of modules, and hands
//! rows to the recording. [`Recorder`] is the whole of it.

mod address_space;
mod anonymous_names;
mod call_sums;
mod call_windows;
mod cgroup;
pub mod child;
mod error;
mod evidence;
mod generated_code;
mod host;
mod intern;
mod interrupt;
mod jitter;
mod kernel_programs;
mod kernel_tables;
mod look_clock;
mod mapping_names;
mod memory_use;
mod modules;
mod overhead;
mod page_size;
pub mod perf;
mod pipeline;
mod pools;
pub mod procfs;
mod reader;
mod recorder;
mod resident;
mod sums;
mod tasks;
mod unwind_choice;
mod waits;
mod walk_check;

pub use cgroup::CgroupTarget;
pub use error::CollectError;
pub use evidence::{EVIDENCE_LIMIT, jitdump_name, kernel_program_name, perf_map_name};
pub use host::{clock, host};
pub use interrupt::{Interrupt, Interrupts};
pub use modules::{HeldFile, vdso_image};
pub use recorder::{Captured, Options, Recorder, SETCAP, SamplerChoice, Target};
pub use uhr_ebpf::{Feature, LoadError, Refused, effective_capabilities, features};
pub use unwind_choice::UnwindChoice;
