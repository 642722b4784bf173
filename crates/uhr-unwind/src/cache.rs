#![forbid(unsafe_code)]
//! Compiled rows, shared by all processes that map the same file.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::module::UnwindModule;
use super::row::Row;
use super::rules::Context;

/// The cache begins anew at this many addresses (some 3 MB). Most stacks are walked in the kernel and need none.
const MAX_ROWS: usize = 16_384;

/// Rows of call frame information that were needed before. One for each thread that unwinds.
#[derive(Default)]
pub struct UnwindCache {
    rows: FxHashMap<(u32, u64), Option<Arc<Row>>>,
    context: Box<Context>,
    misses: u64,
}

impl UnwindCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many rows had to be compiled so far.
    pub fn misses(&self) -> u64 {
        self.misses
    }

    /// The row of a module for the code byte at a stated address, if the module has one.
    pub(super) fn row(&mut self, module: &UnwindModule, address: u64) -> Option<Arc<Row>> {
        let key = (module.id(), address);
        if let Some(row) = self.rows.get(&key) {
            return row.clone();
        }
        if self.rows.len() >= MAX_ROWS {
            self.rows.clear();
        }
        self.misses += 1;
        let row = module.row(address, &mut self.context).map(Arc::new);
        self.rows.insert(key, row.clone());
        row
    }
}

impl std::fmt::Debug for UnwindCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnwindCache").field("rows", &self.rows.len()).field("misses", &self.misses).finish()
    }
}
