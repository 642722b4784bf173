//! Answers as text for people. `clean`, `wrap`, `quantity` and `table` lay out; the others each know one answer.

pub(crate) mod annotate;
pub(crate) mod answer;
pub(crate) mod call_paths;
pub(crate) mod clean;
pub(crate) mod overview;
pub(crate) mod quantity;
pub(crate) mod query;
pub(crate) mod table;
pub(crate) mod waker_chains;
pub(crate) mod wrap;
pub(crate) mod written;
