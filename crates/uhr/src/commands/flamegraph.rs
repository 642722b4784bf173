//! `uhr flamegraph`: the stacks as one picture.

use anyhow::Result;
use uhr_query::flame_tree;
use uhr_query::flamegraph::{self, FlameGraph};

use crate::args::FlamegraphArgs;
use crate::{new_file, opening, output, text};

/// Draws the picture, and says what it holds where the standard output is free for it.
///
/// # Errors
/// If there is no such recording, or the file cannot be made.
pub(crate) fn run(args: &FlamegraphArgs) -> Result<()> {
    let profile = opening::profile(args.about.recording.as_deref())?;
    let question = args.filters.question(&args.function, None);
    let picture = flame_tree(&profile, &question, args.inverted)?;
    let graph = FlameGraph {
        title: &picture.title,
        subtitle: &picture.subtitle,
        unit: picture.unit,
        tree: &picture.tree,
        notes: &picture.notes,
        icicle: (args.icicle || args.flame).then_some(args.icicle),
        min_share: FlameGraph::MIN_SHARE,
    };
    let drawn = new_file::fill(args.output.as_deref(), |mut out| flamegraph::write(&graph, &mut out))?;
    let Some(path) = text::written::shown_path(args.output.as_deref()) else { return Ok(()) };
    let answer = picture.into_answer(&path, &drawn);
    output::answer(args.about.form, &answer, text::written::flamegraph)
}
