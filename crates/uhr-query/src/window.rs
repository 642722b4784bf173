//! Windows of time.

/// The most parts that a window is cut into.
pub(crate) const MAX_BUCKETS: u64 = 10_000;
