//! `uhr schema`: the JSON Schema of an answer.

use std::io::Write;

use anyhow::Result;
use serde_json::Value;
use uhr_query::answers;

use super::doctor::{DoctorAnswer, SCHEMA as DOCTOR};
use super::record::RecordAnswer;
use crate::args::SchemaArgs;
use crate::failure::{Exit, Failure};

/// Prints the schema of one answer, or the names of all.
///
/// # Errors
/// If there is no answer of that name.
pub(crate) fn run(args: &SchemaArgs) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match &args.name {
        None if args.form.json => serde_json::to_writer(&mut out, &names()).map_err(std::io::Error::from)?,
        None => return Ok(writeln!(out, "{}", names().join("\n"))?),
        Some(name) => {
            let schema = find(name).ok_or_else(|| unknown(name))?;
            serde_json::to_writer_pretty(&mut out, &schema).map_err(std::io::Error::from)?;
        }
    }
    Ok(writeln!(out)?)
}

fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = answers::NAMES.iter().copied().chain([DOCTOR, RecordAnswer::SCHEMA]).collect();
    names.sort_unstable();
    names
}

fn find(name: &str) -> Option<Value> {
    match name {
        DOCTOR | "doctor" => Some(answers::schema_of::<DoctorAnswer>(DOCTOR)),
        RecordAnswer::SCHEMA | "record" => Some(answers::schema_of::<RecordAnswer>(RecordAnswer::SCHEMA)),
        _ => answers::schema(name),
    }
}

/// Wrong whatever any recording holds, hence usage.
fn unknown(name: &str) -> Failure {
    Failure::new(Exit::Usage, "unknown-schema", format!("there is no answer called {name:?}"))
        .hint(format!("one of: {}", names().join(", ")))
        .next("uhr schema")
}
