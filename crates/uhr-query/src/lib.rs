//! The profile in memory, and the questions over it.
//!
//! A recording becomes columns ([`Profile`]); a question becomes one counting pass over its observations and a roll-up
//! of the stack tree; the answer is a typed value ([`answers`]) that serialises to the contract of the command line.
//! Nothing here needs the recorded machine, privileges, or Linux.

#![forbid(unsafe_code)]

mod annotate;
pub mod answers;
mod call_paths;
mod call_tree;
mod call_windows;
mod caption;
mod cells;
mod circumstances;
pub mod collapsed;
mod command;
mod coverage;
mod disassembly;
mod error;
mod filter;
pub mod flamegraph;
mod function_totals;
mod group;
mod membership;
mod most_names;
mod names;
mod overview;
mod picture;
mod profile;
mod query;
mod question;
mod resident;
mod resolve;
mod rollup;
mod select;
mod statistics;
mod waker_chains;
mod window;
mod words;

pub use annotate::{Source, annotate};
pub use call_paths::call_paths;
pub use command::quoted;
pub use error::QueryError;
pub use filter::Filters;
pub use group::GroupBy;
pub use overview::overview;
pub use picture::{CollapsedStacks, Picture, collapsed, flame_tree};
pub use profile::Profile;
pub use query::query;
pub use question::{DEFAULT_LIMIT, Question, Sort, TIMELINE_LIMIT};
pub use waker_chains::waker_chains;
