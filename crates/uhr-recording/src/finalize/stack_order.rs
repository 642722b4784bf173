//! The stack tree in its final order. It was written in the order of discovery, and anew after every epoch; here equal
//! nodes become one and the order becomes depth-first, which compresses better and lets a query roll it up in one pass.
//!
//! The stack of an interrupt that ended a wait loses what was interrupted: that was anything, and is not its cause.

use rustc_hash::FxHashMap;

use super::frame_order::FrameOrder;
use crate::RecordingError;
use crate::columns::Table;
use crate::reader::Recording;
use crate::tables::{StackRow, Stacks};
use crate::wait_hints::FrameHint;

/// Equal nodes merged, in depth-first order.
#[derive(Debug)]
pub(super) struct StackOrder {
    /// For each stored node, its new number.
    new_of_old: Vec<u32>,
    /// For new numbers of stacks that an interrupt is on, that of the interrupt's part alone.
    of_interrupt: FxHashMap<u32, u32>,
    /// Parent and frame of each new node but the first.
    nodes: Vec<(u32, u32)>,
}

/// Equal nodes being merged, in the order of discovery.
#[derive(Default)]
struct Merged {
    of_old: Vec<u32>,
    /// Parent and frame of each node but the first.
    nodes: Vec<(u32, u32)>,
    known: FxHashMap<(u32, u32), u32>,
}

impl Merged {
    fn node(&mut self, parent: u32, frame: u32) -> u32 {
        *self.known.entry((parent, frame)).or_insert_with(|| {
            self.nodes.push((parent, frame));
            self.nodes.len() as u32
        })
    }

    /// Takes rows in. False if a caller is missing.
    fn take(&mut self, rows: &Stacks, frames: &FrameOrder) -> bool {
        for row in 0..rows.len() {
            let id = match (rows.parent[row], rows.frame[row]) {
                (Some(parent), Some(frame)) => {
                    let Some(&parent) = self.of_old.get(parent as usize) else { return false };
                    self.node(parent, frames.of(frame))
                }
                _ => 0,
            };
            self.of_old.push(id);
        }
        true
    }

    /// The stack of an interrupt alone: from its leaf to where the interrupt began, and never beyond the kernel. Of a
    /// waker that was not taken for an interrupt (`is_sure`), only if it is one by its stack.
    fn interrupt(&mut self, node: u32, is_sure: bool, of_frame: &[FrameHint]) -> Option<u32> {
        let mut frames = Vec::new();
        let mut at = node;
        let mut begins = false;
        while let Some(&(parent, frame)) = (at as usize).checked_sub(1).and_then(|at| self.nodes.get(at)) {
            let hint = of_frame.get(frame as usize).copied().unwrap_or_default();
            if !hint.is_kernel {
                break;
            }
            frames.push(frame);
            begins = hint.interrupt_part.has_own_cause();
            if begins {
                break;
            }
            at = parent;
        }
        (begins || is_sure)
            .then(|| frames.into_iter().rev().fold(0, |parent, frame| self.node(parent, frame)))
    }
}

impl StackOrder {
    /// Reads the stacks. Of the stored nodes in `wakers`, with whether an interrupt surely ran there,
    /// [`StackOrder::of_interrupt`] will know the part of the interrupt; `of_frame` says what each frame tells, in the
    /// final order of frames.
    pub(super) fn read(
        recording: &Recording,
        frames: &FrameOrder,
        wakers: &FxHashMap<u32, bool>,
        of_frame: &[FrameHint],
    ) -> Result<Self, RecordingError> {
        let mut merged = Merged::default();
        let mut damaged = false;
        recording.read_batches::<Stacks>(|rows| {
            damaged |= !merged.take(&rows, frames);
            Ok(())
        })?;
        if damaged {
            return Err(RecordingError::damaged(
                recording.folder().join("stacks.arrows"),
                "a caller is missing",
            ));
        }
        // In the order of the rows, so that the same recording gives the same bytes.
        let mut wakers: Vec<(u32, bool)> = wakers.iter().map(|(stack, is_sure)| (*stack, *is_sure)).collect();
        wakers.sort_unstable();
        let part = |(old, is_sure): (u32, bool)| {
            let node = merged.of_old.get(old as usize).copied().unwrap_or(0);
            merged.interrupt(node, is_sure, of_frame).map(|part| (node, part))
        };
        let parts: Vec<(u32, u32)> = wakers.into_iter().filter_map(part).collect();
        let Merged { of_old, nodes, known } = merged;
        drop(known);
        let (new_of_merged, nodes) = depth_first(&nodes);
        let new = |merged: u32| new_of_merged[merged as usize];
        Ok(Self {
            new_of_old: of_old.into_iter().map(new).collect(),
            of_interrupt: parts.into_iter().map(|(whole, part)| (new(whole), new(part))).collect(),
            nodes,
        })
    }

    /// Parent and frame of each node but the first.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (u32, u32)> {
        self.nodes.iter().copied()
    }

    pub(super) fn of(&self, old: u32) -> u32 {
        self.new_of_old.get(old as usize).copied().unwrap_or(0)
    }

    /// For the final numbers of stacks that an interrupt is on, that of the interrupt's part alone.
    pub(super) fn of_interrupt(&self) -> FxHashMap<u32, u32> {
        self.of_interrupt.clone()
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = StackRow> {
        let root = StackRow { id: 0, parent: None, frame: None };
        let rest = self.nodes.iter().enumerate().map(|(index, &(parent, frame))| StackRow {
            id: index as u32 + 1,
            parent: Some(parent),
            frame: Some(frame),
        });
        std::iter::once(root).chain(rest)
    }
}

/// The new number of each node, the first included, and parent and frame of the new nodes.
fn depth_first(merged: &[(u32, u32)]) -> (Vec<u32>, Vec<(u32, u32)>) {
    // Children of each node as linked lists, in the order of discovery.
    let mut first_child = vec![0u32; merged.len() + 1];
    let mut next_sibling = vec![0u32; merged.len() + 1];
    for (index, &(parent, _)) in merged.iter().enumerate().rev() {
        next_sibling[index + 1] = std::mem::replace(&mut first_child[parent as usize], index as u32 + 1);
    }
    let mut new_of_merged = vec![0u32; merged.len() + 1];
    let mut nodes = Vec::with_capacity(merged.len());
    let mut todo = Vec::new();
    let follow = |todo: &mut Vec<u32>, node: u32| todo.extend((node != 0).then_some(node));
    follow(&mut todo, first_child[0]);
    while let Some(node) = todo.pop() {
        let (parent, frame) = merged[node as usize - 1];
        nodes.push((new_of_merged[parent as usize], frame));
        new_of_merged[node as usize] = nodes.len() as u32;
        follow(&mut todo, next_sibling[node as usize]);
        follow(&mut todo, first_child[node as usize]);
    }
    (new_of_merged, nodes)
}
