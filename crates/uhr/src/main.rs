//! `uhr`: record a program, ask where its time and memory went.
//!
//! The way of a command: [`args`] says what is asked; one file of [`commands`] answers it, with `uhr-query` for
//! recordings; `output` prints the answer. Errors come back here and nowhere else become words and an exit status.

mod args;
mod commands;
mod debug_servers;
mod failure;
mod finish;
mod kept_code;
mod kernel_names;
mod new_file;
mod opening;
mod output;
mod running_kernel;
mod source_text;
mod terminal;
mod text;
mod usage;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command, Form};
use failure::Failure;

fn main() -> ExitCode {
    let mut form = Form { json: usage::asks_for_json(std::env::args_os()) };
    let result = match Cli::try_parse() {
        Ok(cli) => {
            // The standard output of `record` is the recorded command's, and so may be a `--json` in its line.
            form.json &= !matches!(cli.command, Command::Record(_));
            commands::run(cli.command)
        }
        Err(error) => usage::answer(error),
    };
    match result {
        Ok(code) => code,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let failure = Failure::of(&error);
            output::failure(form, &failure);
            ExitCode::from(failure.exit.status())
        }
    }
}
