//! The profile in memory, and the questions over it.
//!
//! A recording becomes columns ([`Profile`]); a question becomes one counting pass over them and a roll-up of the stack
//! tree; the answer is a typed value ([`answers`]) that serialises to the contract of the command line. Nothing here
//! needs the recorded machine, privileges, or Linux.

#![forbid(unsafe_code)]

pub mod answers;
pub mod collapsed;
mod command;
mod error;
mod filter;
pub mod flamegraph;
mod window;

pub use error::QueryError;
pub use filter::Filters;
