//! `uhr call-paths`: the paths through a function, the tree of its callers or callees, or the chains of wakers.

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
    // The definition of the arguments asks for one of the two.
    let Some(function) = &args.function else {
        let answer = uhr_query::waker_chains(&profile, &question)?;
        return output::answer(args.about.form, &answer, text::waker_chains::lines);
    };
    let answer = uhr_query::call_paths(&profile, &question, function, direction)?;
    output::answer(args.about.form, &answer, text::call_paths::lines)
}
