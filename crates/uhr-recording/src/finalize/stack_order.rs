//! The stack tree in its final order. It was written in the order of discovery, and anew after every epoch; here equal
//! nodes become one and the order becomes depth-first, which compresses better and lets a query roll it up in one pass.

use rustc_hash::FxHashMap;

use super::frame_order::FrameOrder;
use crate::RecordingError;
use crate::columns::Table;
use crate::reader::Recording;
use crate::tables::{StackRow, Stacks};

/// Equal nodes merged, in depth-first order.
#[derive(Debug)]
pub(super) struct StackOrder {
    /// For each stored node, its new number.
    new_of_old: Vec<u32>,
    /// Parent and frame of each new node but the first.
    nodes: Vec<(u32, u32)>,
}

impl StackOrder {
    pub(super) fn read(recording: &Recording, frames: &FrameOrder) -> Result<Self, RecordingError> {
        let mut merged_of_old = Vec::new();
        let mut merged: Vec<(u32, u32)> = Vec::new();
        let mut known: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        let mut damaged = false;
        recording.read_batches::<Stacks>(|rows| {
            for row in 0..rows.len() {
                let id = match (rows.parent[row], rows.frame[row]) {
                    (Some(parent), Some(frame)) => {
                        let Some(&parent) = merged_of_old.get(parent as usize) else {
                            damaged = true;
                            continue;
                        };
                        let frame = frames.of(frame);
                        *known.entry((parent, frame)).or_insert_with(|| {
                            merged.push((parent, frame));
                            merged.len() as u32
                        })
                    }
                    _ => 0,
                };
                merged_of_old.push(id);
            }
            Ok(())
        })?;
        if damaged {
            return Err(RecordingError::damaged(
                recording.folder().join("stacks.arrows"),
                "a caller is missing",
            ));
        }
        drop(known);
        Ok(Self::depth_first(&merged_of_old, &merged))
    }

    fn depth_first(merged_of_old: &[u32], merged: &[(u32, u32)]) -> Self {
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
        let new_of_old = merged_of_old.iter().map(|&merged| new_of_merged[merged as usize]).collect();
        Self { new_of_old, nodes }
    }

    /// Parent and frame of each node but the first.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (u32, u32)> {
        self.nodes.iter().copied()
    }

    pub(super) fn of(&self, old: u32) -> u32 {
        self.new_of_old.get(old as usize).copied().unwrap_or(0)
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
