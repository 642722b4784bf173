//! `uhr export`: the stacks in the format of another tool.

use anyhow::Result;
use uhr_query::collapsed;

use crate::args::{ExportArgs, ExportFormat};
use crate::{new_file, opening, output, text};

/// Writes the stacks, and says what was written where the standard output is free for it.
///
/// # Errors
/// If there is no such recording, or the file cannot be made.
pub(crate) fn run(args: &ExportArgs) -> Result<()> {
    let profile = opening::profile(args.about.recording.as_deref())?;
    let question = args.filters.question(&args.function, None);
    let stacks = match args.format {
        ExportFormat::Collapsed => collapsed(&profile, &question)?,
    };
    new_file::fill(args.output.as_deref(), |mut out| stacks.stacks.write(&mut out))?;
    let Some(path) = text::written::shown_path(args.output.as_deref()) else { return Ok(()) };
    let answer = stacks.into_answer(&path);
    output::answer(args.about.form, &answer, text::written::export)
}
