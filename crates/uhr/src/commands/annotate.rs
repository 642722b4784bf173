//! `uhr annotate`: what the lines or the instructions of a function cost.

use anyhow::Result;
use uhr_query::answers::View;

use crate::args::AnnotateArgs;
use crate::source_text::source_text;
use crate::{opening, output, text};

/// Answers the question.
///
/// # Errors
/// If there is no such recording or function.
pub(crate) fn run(args: &AnnotateArgs) -> Result<()> {
    let profile = opening::profile(args.about.recording.as_deref())?;
    let question = args.filters.question(&[], Some(&args.shown));
    let view = if args.asm { View::Instructions } else { View::Lines };
    let recorded_ns = profile.ended_realtime_ns();
    let read = |file: &str| source_text(file, recorded_ns);
    let answer = uhr_query::annotate(&profile, &question, &args.function, view, &read)?;
    output::answer(args.about.form, &answer, text::annotate::lines)
}
