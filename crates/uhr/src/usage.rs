//! Wrong usage: what clap found becomes a failure like any other, with exit status 2 and as JSON where that is asked.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::Cli;
use crate::failure::{Exit, Failure};

/// Whether `--json` is among uhr's own arguments. Asked before they are parsed, because wrong ones are answered in
/// JSON too; what stands behind `--` belongs to the recorded command.
pub(crate) fn asks_for_json(args: impl Iterator<Item = OsString>) -> bool {
    args.skip(1).take_while(|arg| arg != "--").any(|arg| arg == "--json")
}

/// Prints help and version, which clap also reports as errors; everything else is wrong usage.
pub(crate) fn answer(error: clap::Error) -> anyhow::Result<ExitCode> {
    if !error.use_stderr() {
        error.print()?;
        return Ok(ExitCode::SUCCESS);
    }
    // A bare `uhr` shows the way in, and is still no question.
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        error.print()?;
        return Ok(ExitCode::from(Exit::Usage.status()));
    }
    Err(failure(&error).into())
}

/// A flag of `record` that is designed and not there yet.
const LATER: &str = "--with";

fn failure(error: &clap::Error) -> Failure {
    if let (ErrorKind::UnknownArgument, Some(ContextValue::String(flag))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
        && flag == LATER
    {
        return Failure::new(Exit::Usage, "usage", format!("{flag} is not in this version"))
            .hint("README lists what is")
            .next("uhr record --help");
    }
    let text = error.render().to_string();
    // clap's message, then blank lines between what it suggests.
    let mut parts = text.trim().split("\n\n");
    let first = parts.next().unwrap_or_default();
    let message = first.strip_prefix("error: ").unwrap_or(first);
    let message = message.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let advice: Vec<&str> = parts
        .flat_map(str::lines)
        .map(|line| line.trim().trim_start_matches("tip: "))
        .filter(|line| !line.is_empty() && !line.starts_with("For more information"))
        .collect();
    let failure = Failure::new(Exit::Usage, code(error), message).next(help_command(std::env::args_os()));
    if advice.is_empty() { failure } else { failure.hint(advice.join("; ")) }
}

/// The help of the command that was meant, as far as that can be told.
fn help_command(args: impl Iterator<Item = OsString>) -> String {
    let uhr = Cli::command();
    let named = args.skip(1).find_map(|arg| Some(uhr.find_subcommand(arg)?.get_name().to_owned()));
    named.map_or_else(|| "uhr --help".to_owned(), |name| format!("uhr {name} --help"))
}

/// The words that `uhr-query` has for the same mistakes.
fn code(error: &clap::Error) -> &'static str {
    let of_value = matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation);
    let Some(ContextValue::String(arg)) = error.get(ContextKind::InvalidArg).filter(|_| of_value) else {
        return "usage";
    };
    match arg.split_whitespace().find_map(|word| word.strip_prefix("--")) {
        Some("group-by") => "unknown-dimension",
        Some("metric") => "unknown-metric",
        Some("mode") => "unknown-mode",
        _ => "usage",
    }
}
