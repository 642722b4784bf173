//! `uhr overview`: computing or waiting, on what, how big, how far to trust it.

use anyhow::Result;

use crate::args::{Detail, OverviewArgs};
use crate::{opening, output, text};

/// Answers the question.
///
/// # Errors
/// If there is no such recording.
pub(crate) fn run(args: &OverviewArgs) -> Result<()> {
    let profile = opening::profile(args.about.recording.as_deref())?;
    let answer = uhr_query::overview(&profile, &args.part.filters(), args.detail == Detail::Full)?;
    output::answer(args.about.form, &answer, text::overview::lines)
}
