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
/// stacks a program has; the end of the recording merges what was written twice. About 48 bytes a node: 24 MB.
const NODES_PER_EPOCH: usize = 1 << 19;

/// The stacks of the last samples, by where they came from. Two samples of a thread have most of their outer frames in
/// common: to compare them is a walk along two lists, where each number would be a look into a table of megabytes.
const PATHS: usize = 256;

/// Gives numbers to frames and stacks, and writes each when it is first seen.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    frames: FxHashMap<FrameKey, FrameId>,
    frame_count: u32,
    nodes: FxHashMap<(StackId, FrameId), StackId>,
    node_count: u32,
    /// From the outermost frame to the leaf, with the number of the stack that ends there.
    paths: Vec<Vec<(FrameKey, StackId)>>,
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
        if self.node_count == 0 {
            writer.push_stack(StackRow { id: 0, parent: None, frame: None });
            self.node_count = 1;
        }
        if self.nodes.len() >= NODES_PER_EPOCH {
            self.nodes.clear();
            self.frames.clear();
            self.paths.clear();
        }
        self.paths.resize_with(PATHS, Vec::new);
        let mut path = std::mem::take(&mut self.paths[near as usize % PATHS]);
        let (mut caller, mut is_known) = (StackId(0), true);
        for (depth, key) in frames_from_root.enumerate() {
            match path.get(depth) {
                Some((known, id)) if is_known && *known == key => caller = *id,
                _ => {
                    is_known = false;
                    path.truncate(depth);
                    caller = self.node(caller, key, writer);
                    path.push((key, caller));
                }
            }
        }
        self.paths[near as usize % PATHS] = path;
        caller
    }

    /// The number of a stack that ends with a frame, called by another.
    fn node(&mut self, caller: StackId, key: FrameKey, writer: &mut RecordingWriter) -> StackId {
        let frame = self.frame(key, writer);
        let next = &mut self.node_count;
        *self.nodes.entry((caller, frame)).or_insert_with(|| {
            let id = StackId(*next);
            *next += 1;
            writer.push_stack(StackRow { id: id.0, parent: Some(caller.0), frame: Some(frame.0) });
            id
        })
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
        writer.finish(&manifest).unwrap();
        let written: tables::Stacks = Recording::open(&path).unwrap().table().unwrap();
        assert_eq!(written.id.len(), 1 + 8, "each node once");
    }
}
