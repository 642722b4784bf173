//! Where answers leave uhr: an answer to the standard output, as one JSON object or as text; everything else to the
//! standard error.

use std::io::{self, Write};

use serde::Serialize;

use crate::args::Form;
use crate::failure::Failure;
use crate::terminal::Terminal;
use crate::text::clean::clean;

/// Prints an answer: with `--json` as one object, else as `text` lays it out for this terminal.
///
/// # Errors
/// Those of writing; a reader that went away is none (see [`is_broken_pipe`]).
pub(crate) fn answer<A: Serialize>(
    form: Form,
    answer: &A,
    text: impl FnOnce(&A, Terminal) -> Vec<String>,
) -> anyhow::Result<()> {
    if form.json {
        return json(answer);
    }
    let mut out = io::BufWriter::new(io::stdout().lock());
    for line in text(answer, Terminal::of_stdout()) {
        writeln!(out, "{line}")?;
    }
    Ok(out.flush()?)
}

/// Prints one JSON object.
///
/// # Errors
/// Those of writing.
pub(crate) fn json<A: Serialize>(answer: &A) -> anyhow::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    // The I/O error is taken out of serde's, so that a broken pipe is known as one.
    serde_json::to_writer(&mut out, answer).map_err(io::Error::from)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Says something on the standard error. Nobody is left to tell if that fails.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{}", clean(line));
}

/// Prints why a command failed, as JSON to the standard output or as lines to the standard error.
pub(crate) fn failure(form: Form, failure: &Failure) {
    // What cannot be written to where it belongs is at least said.
    if form.json && json(&failure.answer).is_ok() {
        return;
    }
    let error = &failure.answer.error;
    say(&format!("uhr: {}", error.message));
    if !failure.candidates().is_empty() {
        say("         total  name");
    }
    for candidate in failure.candidates() {
        let module = candidate.module.as_ref().map(|module| format!("  ({module})")).unwrap_or_default();
        say(&format!("       {:5.1} %  {}{module}", candidate.total_share * 100.0, candidate.name));
    }
    if let Some(hint) = &error.hint {
        say(&format!("hint: {hint}"));
    }
    for command in &error.next {
        say(&format!("next: {command}"));
    }
}

/// Whether the reader of our output has gone, as `head` does: that is no failure.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
