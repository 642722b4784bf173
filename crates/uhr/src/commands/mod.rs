//! One file a command: it turns arguments into a question, and the answer into output.
//!
//! A command succeeds with an exit status of its own only where the contract has one (`record` passes on that of the
//! recorded command); everything that goes wrong is an error, and `main` makes words and a status of it.

mod annotate;
mod call_paths;
mod doctor;
mod export;
mod flamegraph;
mod man;
mod overview;
mod query;
mod record;
mod schema;
mod symbolize;

use std::process::ExitCode;

use anyhow::Result;

use crate::args::Command;

/// Runs a command.
///
/// # Errors
/// Whatever kept it from an answer; see [`crate::failure::Failure::of`].
pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Record(args) => return record::run(&args),
        Command::Doctor(args) => doctor::run(&args)?,
        Command::Overview(args) => overview::run(&args)?,
        Command::Query(args) => query::run(&args)?,
        Command::CallPaths(args) => call_paths::run(&args)?,
        Command::Annotate(args) => annotate::run(&args)?,
        Command::Flamegraph(args) => flamegraph::run(&args)?,
        Command::Export(args) => export::run(&args)?,
        Command::Symbolize(args) => symbolize::run(&args)?,
        Command::Schema(args) => schema::run(&args)?,
        Command::Completions(args) => man::completions(&args)?,
        Command::Man(args) => man::page(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}
