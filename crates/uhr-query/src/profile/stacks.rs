//! The stack tree in preorder: a node's descendants are the rows that follow it, up to its `end`. Every question walks
//! it in one loop, so a stack as deep as a target likes cannot exhaust ours.

use rustc_hash::FxHashMap;
use uhr_recording::tables::Stacks;

use crate::QueryError;

/// Stacks as a tree. Node 0 is the empty stack.
#[derive(Debug)]
pub(crate) struct StackTree {
    /// The caller's node; of node 0, itself.
    pub(crate) parent: Vec<u32>,
    /// Row of `frames`; meaningless in node 0.
    pub(crate) frame: Vec<u32>,
    /// The node behind the last descendant.
    pub(crate) end: Vec<u32>,
    /// Node of each stored row, where the stored order is another one.
    node_of_row: Option<Vec<u32>>,
}

impl StackTree {
    /// Takes the stored table; `frames` is the number of frames.
    pub(super) fn new(rows: Stacks, frames: usize) -> Result<Self, QueryError> {
        let damaged = |row: usize, why: &str| Err(QueryError::Damaged(format!("stack {row} {why}")));
        if rows.id.len() != rows.parent.len() || rows.id.len() != rows.frame.len() {
            return damaged(0, "lacks a column");
        }
        let (mut parent, mut frame) = (vec![0], vec![0]);
        for row in 0..rows.id.len() {
            if rows.id[row] as usize != row {
                return damaged(row, "is not where its number says");
            }
            match (rows.parent[row], rows.frame[row]) {
                (None, None) if row == 0 => (),
                (Some(_), Some(_)) if row == 0 => return damaged(row, "is not the empty stack"),
                (Some(caller), _) if caller as usize >= row => {
                    return damaged(row, "comes before its caller");
                }
                (Some(caller), Some(of)) if (of as usize) < frames => {
                    parent.push(caller);
                    frame.push(of);
                }
                _ => return damaged(row, "has no frame"),
            }
        }
        let node_of_row = (!is_preorder(&parent)).then(|| preorder(&mut parent, &mut frame));
        let end = ends(&parent);
        Ok(Self { parent, frame, end, node_of_row })
    }

    /// The number of nodes, node 0 among them.
    pub(crate) fn len(&self) -> usize {
        self.parent.len()
    }

    /// The node of a stored row, or `None` if there is no such row.
    #[inline]
    pub(crate) fn node(&self, row: u32) -> Option<u32> {
        match &self.node_of_row {
            Some(nodes) => nodes.get(row as usize).copied(),
            None => ((row as usize) < self.parent.len()).then_some(row),
        }
    }
}

fn is_preorder(parent: &[u32]) -> bool {
    let mut path = vec![0u32];
    (1..parent.len()).all(|node| {
        while path.last().is_some_and(|&top| top != parent[node]) {
            path.pop();
        }
        let found = !path.is_empty();
        path.push(node as u32);
        found
    })
}

/// Merges equal nodes and puts the tree in preorder; returns the new node of each old one.
fn preorder(parent: &mut Vec<u32>, frame: &mut Vec<u32>) -> Vec<u32> {
    let mut known: FxHashMap<(u32, u32), u32> = FxHashMap::default();
    let mut merged = vec![(0u32, 0u32)];
    let mut merged_of_old = vec![0u32];
    for old in 1..parent.len() {
        let key = (merged_of_old[parent[old] as usize], frame[old]);
        let node = *known.entry(key).or_insert_with(|| {
            merged.push(key);
            merged.len() as u32 - 1
        });
        merged_of_old.push(node);
    }
    // Children as linked lists, in the order of discovery; 0 ends a list.
    let (mut first, mut next) = (vec![0u32; merged.len()], vec![0u32; merged.len()]);
    for node in (1..merged.len()).rev() {
        next[node] = std::mem::replace(&mut first[merged[node].0 as usize], node as u32);
    }
    let mut new_of_merged = vec![0u32; merged.len()];
    parent.clear();
    frame.clear();
    parent.push(0);
    frame.push(0);
    let mut todo = vec![first[0]];
    while let Some(node) = todo.pop() {
        if node == 0 {
            continue;
        }
        let (caller, of) = merged[node as usize];
        new_of_merged[node as usize] = parent.len() as u32;
        parent.push(new_of_merged[caller as usize]);
        frame.push(of);
        todo.push(next[node as usize]);
        todo.push(first[node as usize]);
    }
    merged_of_old.into_iter().map(|node| new_of_merged[node as usize]).collect()
}

fn ends(parent: &[u32]) -> Vec<u32> {
    let mut end: Vec<u32> = (1..=parent.len() as u32).collect();
    for node in (1..parent.len()).rev() {
        let caller = parent[node] as usize;
        end[caller] = end[caller].max(end[node]);
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(nodes: &[(u32, u32)]) -> Result<StackTree, QueryError> {
        let mut rows = Stacks { id: vec![0], parent: vec![None], frame: vec![None] };
        for (at, &(parent, frame)) in nodes.iter().enumerate() {
            rows.id.push(at as u32 + 1);
            rows.parent.push(Some(parent));
            rows.frame.push(Some(frame));
        }
        StackTree::new(rows, 10)
    }

    #[test]
    fn a_tree_in_preorder_stays_as_it_is() {
        let tree = tree(&[(0, 0), (1, 1), (1, 2), (0, 3)]).unwrap();
        assert_eq!(tree.parent, [0, 0, 1, 1, 0]);
        assert_eq!(tree.end, [5, 4, 3, 4, 5]);
        assert_eq!((tree.node(4), tree.node(5)), (Some(4), None));
    }

    #[test]
    fn epochs_are_merged_and_put_in_order() {
        // main; main c; main a; then main again with a b below; then another callee of the first main.
        let tree = tree(&[(0, 0), (1, 3), (1, 1), (0, 0), (4, 1), (5, 2), (1, 4)]).unwrap();
        assert_eq!(tree.parent, [0, 0, 1, 1, 3, 1]);
        assert_eq!(tree.frame, [0, 0, 3, 1, 2, 4]);
        let nodes: Vec<_> = (0..8).map(|row| tree.node(row).unwrap()).collect();
        assert_eq!(nodes, [0, 1, 2, 3, 1, 3, 4, 5]);
    }

    #[test]
    fn a_forged_tree_is_refused() {
        assert!(tree(&[(1, 0)]).is_err(), "its own caller");
        assert!(tree(&[(0, 0), (3, 0), (0, 0)]).is_err(), "a caller that comes later");
        assert!(tree(&[(0, 10)]).is_err(), "no such frame");
    }
}
