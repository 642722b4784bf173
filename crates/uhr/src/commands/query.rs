//! `uhr query`: one metric, grouped.

use anyhow::Result;
use uhr_model::Metric;
use uhr_query::{GroupBy, Sort, TIMELINE_LIMIT};

use crate::args::{QueryArgs, SortBy};
use crate::{opening, output, text};

/// Answers the question.
///
/// # Errors
/// If there is no such recording, or the question does not fit it.
pub(crate) fn run(args: &QueryArgs) -> Result<()> {
    let group = match (args.group_by.as_slice(), args.filters.metric) {
        // Memory belongs to processes, not to functions.
        ([], Metric::Resident) => GroupBy::parse("process")?,
        ([], Metric::Syscalls | Metric::SyscallTime) => GroupBy::parse("syscall")?,
        ([], _) => GroupBy::parse("function")?,
        (words, _) => GroupBy::parse(&words.join(","))?,
    };
    let profile = opening::profile(args.about.recording.as_deref())?;
    let mut question = args.filters.question(&args.function, Some(&args.shown));
    question.sort = args.sort.map(|sort| match sort {
        SortBy::Own => Sort::Own,
        SortBy::Total => Sort::Total,
    });
    // A timeline is seen as a whole by people; programs ask for as much as they want.
    if args.shown.limit.is_none() && !args.about.form.json && question.sort.is_none() && group.is_timeline() {
        question.limit = TIMELINE_LIMIT;
    }
    let answer = uhr_query::query(&profile, &question, &group)?;
    output::answer(args.about.form, &answer, |answer, terminal| {
        text::query::lines(answer, args.shown.detail, terminal)
    })
}
