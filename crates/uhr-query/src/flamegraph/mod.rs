//! Flame graphs: a tree of stacks becomes one SVG file that explains itself.
//!
//! Contract. The file needs nothing outside itself: no network, no fonts, no library. Without scripts it is a complete
//! picture with a tooltip on each frame; with scripts one can zoom, search, flip it and walk it by keyboard. Names
//! come from the profiled programs and are hostile: they stand in text nodes only, escaped, with control characters
//! made visible, and never reach script or style text. Frames too narrow to see are left out, and the page says how
//! many and what share of the whole they are. The same tree gives the same bytes on every machine: positions are
//! integer arithmetic, colours come from a fixed hash of the names.

mod colour;
mod layout;
mod page;
mod quantity;
mod text;
mod tree;

use std::io;

pub(crate) use quantity::quantity;
pub use tree::{FlameTree, FunctionId, NodeId};

/// What to draw.
#[derive(Debug, Clone, Copy)]
pub struct FlameGraph<'a> {
    /// The heading, such as `CPU time of python3`.
    pub title: &'a str,
    /// What was recorded and how: command, sampler, duration. Wrapped over a few lines.
    pub subtitle: &'a str,
    /// Unit of the tree's values: `ns`, `bytes` or `count`; another word is printed after the number.
    pub unit: &'a str,
    /// The stacks.
    pub tree: &'a FlameTree,
    /// Lines about how far the picture can be trusted; all of them are printed in the page.
    pub notes: &'a [String],
    /// Callers above callees (an icicle) instead of below them. `None`: above them where the picture is higher than
    /// [`FlameGraph::TALL`], whose lower end a window does not show at first. The reader can flip it with `i`.
    pub icicle: Option<bool>,
    /// Frames with a smaller share of the total than this are left out and counted. [`FlameGraph::MIN_SHARE`] is a
    /// little over one pixel of the picture.
    pub min_share: f64,
}

impl FlameGraph<'_> {
    /// The share below which a frame is too narrow to see or to point at: 1.2 of 1,200 pixels.
    pub const MIN_SHARE: f64 = 0.001;

    /// The height from which on callers stand above callees, in pixels: about what a browser's window shows.
    pub const TALL: u64 = 900;
}

/// What became of the tree's frames.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drawn {
    /// Frames in the picture, the root among them.
    pub frames: usize,
    /// Frames that were too narrow, with everything above them.
    pub hidden: usize,
    /// Share of the total that lies in hidden frames, from 0 to 1. Their callers are drawn and include it.
    pub hidden_share: f64,
}

/// Writes the graph as one SVG document.
///
/// # Errors
/// Those of `out`.
pub fn write(graph: &FlameGraph<'_>, out: &mut impl io::Write) -> io::Result<Drawn> {
    let layout = layout::Layout::of(graph.tree, graph.min_share);
    let mut buffered = io::BufWriter::new(out);
    page::write(graph, &layout, &mut buffered)?;
    io::Write::flush(&mut buffered)?;
    Ok(layout.drawn(graph.tree))
}
