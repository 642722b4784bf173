//! `uhr query`: one metric, grouped.

use anyhow::Result;
use uhr_query::GroupBy;

use crate::args::QueryArgs;
use crate::{opening, output, text};

/// Answers the question.
///
/// # Errors
/// If there is no such recording, or the question does not fit it.
pub(crate) fn run(args: &QueryArgs) -> Result<()> {
    let group = GroupBy::parse(&args.group_by.join(","))?;
    let profile = opening::profile(args.about.recording.as_deref())?;
    let question = args.filters.question(&args.function, Some(&args.shown));
    let answer = uhr_query::query(&profile, &question, &group)?;
    output::answer(args.about.form, &answer, |answer, terminal| {
        text::query::lines(answer, args.shown.detail, terminal)
    })
}
