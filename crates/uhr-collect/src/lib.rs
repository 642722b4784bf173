//! uhr-collect

pub mod perf;
pub mod unwind;
