//! Waits when the capture has ended. They are read twice: what each stands for, and what the stacks of interrupts are,
//! is known only when all were seen.

use rustc_hash::FxHashMap;

use super::stack_order::StackOrder;
use super::switch_cost::SwitchCost;
use crate::RecordingError;
use crate::columns::Table;
use crate::reader::Recording;
use crate::tables::{OffCpu, WakerRow};
use crate::wait_kinds::WaitKinds;
use crate::wait_shares::WaitShares;
use crate::waker_tree::WakerTree;

/// What the first reading finds.
#[derive(Debug)]
pub(super) struct EarlierWaits {
    pub(super) cost: SwitchCost,
    /// Stored stacks of wakers, and whether an interrupt surely ran there.
    pub(super) waker_stacks: FxHashMap<u32, bool>,
    shares: WaitShares,
    wakers: WakerTree,
}

impl EarlierWaits {
    /// Reads all waits.
    pub(super) fn read(recording: &Recording, threads: usize) -> Result<Self, RecordingError> {
        let mut seen = Self {
            cost: SwitchCost::new(recording.manifest.ledger.switch_cost_ns, threads),
            waker_stacks: FxHashMap::default(),
            shares: WaitShares::of(&recording.manifest),
            wakers: WakerTree::new(&recording.table()?)?,
        };
        recording.read_batches::<OffCpu>(|mut rows| {
            seen.cost.take_from(&mut rows);
            seen.shares.learn(&rows);
            for (&waker, &stack) in rows.waker.iter().zip(&rows.waker_stack) {
                if stack != 0 {
                    let is_sure = seen.wakers.is_surely_interrupt(seen.wakers.of(waker));
                    *seen.waker_stacks.entry(stack).or_default() |= is_sure;
                }
            }
            Ok(())
        })?;
        seen.shares.settle();
        Ok(seen)
    }
}

/// Gives waits their final form at the second reading.
#[derive(Debug)]
pub(super) struct Waits<'a> {
    seen: EarlierWaits,
    remap: &'a StackOrder,
    kinds: WaitKinds,
}

impl<'a> Waits<'a> {
    /// After the first reading, with the final order of stacks.
    pub(super) fn new(seen: EarlierWaits, remap: &'a StackOrder, kinds: WaitKinds) -> Self {
        Self { seen, remap, kinds }
    }

    /// Finishes the next rows, in the order of the first reading.
    pub(super) fn finish(&mut self, rows: &mut OffCpu) {
        self.seen.cost.take_from(rows);
        self.seen.shares.apply(rows);
        for row in 0..rows.len() {
            rows.stack[row] = self.remap.of(rows.stack[row]);
            rows.waker[row] = self.seen.wakers.of(rows.waker[row]);
            rows.waker_stack[row] = self.remap.of(rows.waker_stack[row]);
        }
        self.kinds.tell(rows, &mut self.seen.wakers);
    }

    /// Every waker, once all rows are finished.
    pub(super) fn wakers(&mut self) -> Vec<WakerRow> {
        self.seen.wakers.settle();
        self.seen.wakers.rows().to_vec()
    }
}
