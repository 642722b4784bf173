//! `uhr call-paths`: the paths through a function, or the tree of its callers or callees.

use anyhow::Result;
use uhr_query::answers::Direction;

use crate::args::CallPathsArgs;
use crate::{opening, output, text};

/// Answers the question.
///
/// # Errors
/// If there is no such recording or function.
pub(crate) fn run(args: &CallPathsArgs) -> Result<()> {
    let direction = match (args.callers, args.callees) {
        (true, _) => Direction::Callers,
        (_, true) => Direction::Callees,
        _ => Direction::Paths,
    };
    let profile = opening::profile(args.about.recording.as_deref())?;
    let question = args.filters.question(&[], Some(&args.shown));
    let answer = uhr_query::call_paths(&profile, &question, &args.function, direction)?;
    output::answer(args.about.form, &answer, text::call_paths::lines)
}
