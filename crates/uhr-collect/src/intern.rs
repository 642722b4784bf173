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

/// Nodes known at once. Past it the tree is begun anew (an epoch), so that memory stays bounded however many different
/// stacks a program has; the end of the recording merges what was written twice. About 48 bytes a node: 48 MB.
const NODES_PER_EPOCH: usize = 1 << 20;

/// Gives numbers to frames and stacks, and writes each when it is first seen.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    frames: FxHashMap<FrameKey, FrameId>,
    frame_count: u32,
    nodes: FxHashMap<(StackId, FrameId), StackId>,
    node_count: u32,
}

impl Interner {
    /// The number of a stack, given its frames from the outermost to the leaf.
    pub(crate) fn stack(
        &mut self,
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
        }
        frames_from_root.fold(StackId(0), |caller, key| {
            let frame = self.frame(key, writer);
            let next = &mut self.node_count;
            *self.nodes.entry((caller, frame)).or_insert_with(|| {
                let id = StackId(*next);
                *next += 1;
                writer.push_stack(StackRow { id: id.0, parent: Some(caller.0), frame: Some(frame.0) });
                id
            })
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
