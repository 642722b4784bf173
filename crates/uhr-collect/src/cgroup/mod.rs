//! Control groups: which one a process is in and which container that is ([`membership`]), and a group as what is recorded
//! ([`target`]). Version 1, version 2, and hosts that have both.

mod hierarchies;
pub(crate) mod membership;
mod target;

pub use target::CgroupTarget;
