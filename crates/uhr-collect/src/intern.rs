//! Frames and stacks under numbers, so that a sample is one number.

use rustc_hash::FxHashMap;
use uhr_model::{FrameId, FrameMode, ModuleId, StackId};
use uhr_recording::RecordingWriter;
use uhr_recording::tables::{FrameRow, StackRow};

/// One address of one module: what makes two frames the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FrameKey {
    pub(crate) mode: FrameMode,
    /// `None`: in no known mapping.
    pub(crate) module: Option<ModuleId>,
    /// The lookup address in the module.
    pub(crate) address: u64,
    pub(crate) is_return: bool,
}

impl FrameKey {
    /// Stands for the frames in the middle of a very deep stack.
    pub(crate) const LEFT_OUT: Self =
        Self { mode: FrameMode::LeftOut, module: None, address: 0, is_return: false };
}

/// Nodes known at once. Past it the tree is begun anew (an epoch), so that memory stays bounded however many different
/// stacks a program has; the end of the recording merges what was written twice. 12 bytes a node: 6 MB, for a power of two that holds
/// one more stack too.
const NODES_PER_EPOCH: usize = (1 << 19) - 4096;

/// Children of a node that are found by looking at one after the other. Nearly all nodes have fewer, and those of one stack,
/// made together, lie together in memory; in a table each would be a look into another of its megabytes.
const FEW: usize = 8;

/// The stacks of the last samples, by where they came from. Two samples of a thread have most of their outer frames in
/// common: to compare them is a walk along two lists, where each number would be a look into a table of megabytes.
const PATHS: usize = 256;

/// A stack that ends with a frame, called by its parent in the tree.
#[derive(Clone, Copy, Default, Debug)]
struct Node {
    frame: FrameId,
    /// The first of the few children that are looked at in turn, and the next one of its own parent's. 0: none.
    first_child: u32,
    next: u32,
}

/// Gives numbers to frames and stacks, and writes each when it is first seen.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    frames: FxHashMap<FrameKey, FrameId>,
    frame_count: u32,
    /// Of this epoch. The first is the root, of which all stacks come.
    nodes: Vec<Node>,
    /// Children beyond the few.
    crowded: FxHashMap<(u32, FrameId), u32>,
    /// What the numbers of this epoch's stacks are above their places in `nodes`.
    base: u32,
    /// From the outermost frame to the leaf, with the place of the stack that ends there.
    paths: Vec<Vec<(FrameKey, u32)>>,
}

impl Interner {
    /// The number of a stack, given its frames from the outermost to the leaf. `near`: a number that stacks which are
    /// probably alike have in common, such as the thread's.
    pub(crate) fn stack(
        &mut self,
        near: u32,
        frames_from_root: impl Iterator<Item = FrameKey>,
        writer: &mut RecordingWriter,
    ) -> StackId {
        self.begin_epoch(writer);
        let mut path = std::mem::take(&mut self.paths[near as usize % PATHS]);
        let (mut caller, mut is_known) = (0, true);
        for (depth, key) in frames_from_root.enumerate() {
            match path.get(depth) {
                Some((known, node)) if is_known && *known == key => caller = *node,
                _ => {
                    is_known = false;
                    path.truncate(depth);
                    caller = self.node(caller, key, writer);
                    path.push((key, caller));
                }
            }
        }
        self.paths[near as usize % PATHS] = path;
        self.number(caller)
    }

    /// Begins the first epoch, and the next one when this is full.
    fn begin_epoch(&mut self, writer: &mut RecordingWriter) {
        if self.nodes.is_empty() {
            writer.push_stack(StackRow { id: 0, parent: None, frame: None });
            self.nodes.push(Node::default());
        }
        if self.nodes.len() > NODES_PER_EPOCH {
            self.base += self.nodes.len() as u32 - 1;
            self.nodes.truncate(1);
            self.nodes[0] = Node::default();
            self.crowded.clear();
            self.frames.clear();
            self.paths.clear();
        }
        self.paths.resize_with(PATHS, Vec::new);
    }

    /// The root is the same in all epochs.
    fn number(&self, node: u32) -> StackId {
        StackId(if node == 0 { 0 } else { self.base + node })
    }

    /// The place of a stack that ends with a frame, called by another.
    fn node(&mut self, caller: u32, key: FrameKey, writer: &mut RecordingWriter) -> u32 {
        let frame = self.frame(key, writer);
        let (mut child, mut seen) = (self.nodes[caller as usize].first_child, 0);
        while child != 0 {
            let node = self.nodes[child as usize];
            if node.frame == frame {
                return child;
            }
            (child, seen) = (node.next, seen + 1);
        }
        let new = self.nodes.len() as u32;
        let mut node = Node { frame, ..Node::default() };
        if seen < FEW {
            node.next = std::mem::replace(&mut self.nodes[caller as usize].first_child, new);
        } else {
            let known = *self.crowded.entry((caller, frame)).or_insert(new);
            if known != new {
                return known;
            }
        }
        self.nodes.push(node);
        let (id, parent) = (self.number(new).0, self.number(caller).0);
        writer.push_stack(StackRow { id, parent: Some(parent), frame: Some(frame.0) });
        new
    }

    fn frame(&mut self, key: FrameKey, writer: &mut RecordingWriter) -> FrameId {
        let next = &mut self.frame_count;
        *self.frames.entry(key).or_insert_with(|| {
            let id = FrameId(*next);
            *next += 1;
            writer.push_frame(FrameRow {
                id: id.0,
                mode: key.mode.code(),
                module: key.module.map(|module| module.0),
                address: key.address,
                is_return: key.is_return,
            });
            id
        })
    }
}

#[cfg(test)]
mod tests {
    use uhr_recording::{Clock, Host, Manifest, Recording, Settings, tables};

    use super::*;

    fn frames(addresses: &[u64]) -> impl Iterator<Item = FrameKey> {
        let key = |&address| FrameKey { mode: FrameMode::User, module: None, address, is_return: false };
        addresses.iter().map(key)
    }

    #[test]
    fn equal_stacks_have_one_number_wherever_they_come_from() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rec");
        let manifest = Manifest::new(Settings::default(), Host::default(), Clock::default());
        let mut writer = RecordingWriter::create(&path, &manifest).unwrap();
        let mut interner = Interner::default();
        let stacks: [&[u64]; 6] = [&[1, 2, 3], &[1, 2], &[1, 2, 4], &[1, 5, 3], &[], &[2, 3]];
        let mut number = |near, stack: &[u64]| interner.stack(near, frames(stack), &mut writer);
        let first: Vec<StackId> = stacks.iter().map(|stack| number(7, stack)).collect();
        for near in [7, 7 + PATHS as u32, 8] {
            for at in [0, 4, 3, 2, 1, 5, 0] {
                assert_eq!(number(near, stacks[at]), first[at], "{:?} near {near}", stacks[at]);
            }
        }
        // More children than are looked at in turn.
        let many: Vec<StackId> = (0..50).map(|leaf| number(9, &[1, 2, 100 + leaf])).collect();
        for near in [9, 10] {
            let again = (0..50).rev().map(|leaf| number(near, &[1, 2, 100 + leaf]));
            assert!(again.eq(many.iter().rev().copied()));
        }
        writer.finish(&manifest).unwrap();
        let written: tables::Stacks = Recording::open(&path).unwrap().table().unwrap();
        assert_eq!(written.id.len(), 1 + 8 + 50, "each node once");
        assert!(written.id.iter().copied().eq(0..59), "numbered as they come");
    }

    #[test]
    fn a_new_epoch_begins_where_the_last_one_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rec");
        let manifest = Manifest::new(Settings::default(), Host::default(), Clock::default());
        let mut writer = RecordingWriter::create(&path, &manifest).unwrap();
        let mut interner = Interner::default();
        let stack = |at: u64| [at % 100, at / 100 % 100, at];
        let count = NODES_PER_EPOCH as u64 + 1000;
        let numbers: Vec<StackId> =
            (0..count).map(|at| interner.stack(at as u32, frames(&stack(at)), &mut writer)).collect();
        writer.finish(&manifest).unwrap();
        let written: tables::Stacks = Recording::open(&path).unwrap().table().unwrap();
        let frame_rows: tables::Frames = Recording::open(&path).unwrap().table().unwrap();
        assert!(written.id.iter().copied().eq(0..written.id.len() as u32));
        for (at, number) in
            numbers.iter().enumerate().step_by(997).chain(numbers.iter().enumerate().skip(count as usize - 3))
        {
            let mut path = Vec::new();
            let mut node = number.0 as usize;
            while let Some(frame) = written.frame[node] {
                path.push(frame_rows.address[frame as usize]);
                node = written.parent[node].unwrap() as usize;
            }
            path.reverse();
            assert_eq!(path, stack(at as u64), "stack {at}");
        }
    }
}
