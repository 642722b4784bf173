//! `uhr man` and `uhr completions`: both come out of the definition of the command line.

use std::io::{self, Write};

use anyhow::Result;
use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::failure::{Exit, Failure};

/// Prints the manual page of uhr or of one command.
///
/// # Errors
/// If there is no such command.
pub(crate) fn page(args: &ManArgs) -> Result<()> {
    let mut uhr = Cli::command();
    uhr.build();
    let command = match &args.command {
        None => uhr,
        Some(name) => uhr.find_subcommand(name).ok_or_else(|| unknown(name))?.clone(),
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    Ok(io::stdout().lock().write_all(&page)?)
}

/// Prints the completions of a shell.
///
/// # Errors
/// Those of writing.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<()> {
    // Into memory first: the generator panics where it cannot write, as into a pipe that `head` has left.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "uhr", &mut script);
    Ok(io::stdout().lock().write_all(&script)?)
}

fn unknown(name: &str) -> Failure {
    Failure::new(Exit::Usage, "usage", format!("there is no command {name:?}")).next("uhr --help")
}
