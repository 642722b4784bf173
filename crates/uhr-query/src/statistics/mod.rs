//! How sure a share is.

mod interval;
mod quantile;

pub(crate) use interval::{Blocks, Interval, ratio};
