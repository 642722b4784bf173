//! `uhr flamegraph` and `uhr export` for people: what was written where.

use std::path::Path;

use uhr_query::answers::{ExportAnswer, FlamegraphAnswer};

use super::clean::clean;
use super::{answer, quantity};
use crate::terminal::Terminal;

/// The path of a file that was written; nothing where the standard output took it, which is then no place for an answer.
pub(crate) fn shown_path(path: Option<&Path>) -> Option<String> {
    path.filter(|path| *path != Path::new("-")).map(|path| path.to_string_lossy().into_owned())
}

/// Lines about a picture.
pub(crate) fn flamegraph(picture: &FlamegraphAnswer, terminal: Terminal) -> Vec<String> {
    let written = &picture.written;
    let mut lines =
        answer::head(&picture.recording, Some(&picture.metric), &picture.request.filters, terminal);
    let hidden = match written.hidden {
        0 => String::new(),
        hidden => format!(
            "; {} too narrow to see hold {} of the total",
            quantity::count(hidden as f64),
            quantity::share(written.hidden_share)
        ),
    };
    lines.push(
        clean(&format!("wrote {}: {}{hidden}", written.path, answer::plural(written.frames, "frame")))
            .into_owned(),
    );
    lines.extend(answer::coverage_in_short(&picture.coverage, &picture.metric.name, terminal));
    lines.extend(answer::next(&picture.next, terminal));
    lines
}

/// Lines about exported stacks.
pub(crate) fn export(export: &ExportAnswer, terminal: Terminal) -> Vec<String> {
    let written = &export.written;
    let mut lines = answer::head(&export.recording, Some(&export.metric), &export.request.filters, terminal);
    lines.push(
        clean(&format!("wrote {}: {}", written.path, answer::plural(written.frames, "stack"))).into_owned(),
    );
    lines.extend(answer::coverage_in_short(&export.coverage, &export.metric.name, terminal));
    lines.extend(answer::next(&export.next, terminal));
    lines
}
