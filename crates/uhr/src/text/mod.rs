//! Answers as text for people: one module for each kind of thing that is written.

pub(crate) mod clean;
pub(crate) mod quantity;
pub(crate) mod table;
pub(crate) mod wrap;
