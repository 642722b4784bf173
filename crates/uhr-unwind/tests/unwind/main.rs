//! Whole stacks of real programs: compiled here, stopped with ptrace at a known place, unwound by what a sample holds
//! (registers and a copy of the stack), and compared with the exact chain of function names. Names come from nm.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "all of this is test code")]

mod aarch64;
mod blocked;
mod hostile;
mod native;
mod readelf;
mod runtimes;
mod target;
