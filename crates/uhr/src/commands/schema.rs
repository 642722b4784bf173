//! `uhr schema`: the JSON Schema of an answer.

use std::io::Write;

use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use uhr_query::answers;

use super::doctor::{DoctorAnswer, SCHEMA as DOCTOR};
use super::record::RecordAnswer;
use super::symbolize::SymbolizeAnswer;
use crate::args::SchemaArgs;
use crate::failure::{Exit, Failure};
use crate::output;

/// The name of the list of answers.
const LIST: &str = "uhr.schema-list/1";

/// The answers that there are.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct SchemaList {
    /// Always `uhr.schema-list/1`.
    #[schemars(extend("const" = "uhr.schema-list/1"))]
    schema: &'static str,
    /// Always true.
    #[schemars(extend("const" = true))]
    ok: bool,
    /// Their names, for `uhr schema NAME`.
    names: Vec<&'static str>,
}

/// Prints the schema of one answer, or the names of all.
///
/// # Errors
/// If there is no answer of that name.
pub(crate) fn run(args: &SchemaArgs) -> Result<()> {
    if let Some(name) = &args.name {
        let mut out = std::io::stdout().lock();
        let schema = find(name).ok_or_else(|| unknown(name))?;
        serde_json::to_writer_pretty(&mut out, &schema).map_err(std::io::Error::from)?;
        return Ok(writeln!(out)?);
    }
    let list = SchemaList { schema: LIST, ok: true, names: names() };
    output::answer(args.form, &list, |list, _| list.names.iter().map(|name| (*name).to_owned()).collect())
}

fn names() -> Vec<&'static str> {
    let own = [DOCTOR, RecordAnswer::SCHEMA, SymbolizeAnswer::SCHEMA, LIST];
    let mut names: Vec<_> = answers::NAMES.iter().copied().chain(own).collect();
    names.sort_unstable();
    names
}

fn find(name: &str) -> Option<Value> {
    match name {
        DOCTOR | "doctor" => Some(answers::schema_of::<DoctorAnswer>(DOCTOR)),
        RecordAnswer::SCHEMA | "record" => Some(answers::schema_of::<RecordAnswer>(RecordAnswer::SCHEMA)),
        SymbolizeAnswer::SCHEMA | "symbolize" => {
            Some(answers::schema_of::<SymbolizeAnswer>(SymbolizeAnswer::SCHEMA))
        }
        LIST | "schema-list" => Some(answers::schema_of::<SchemaList>(LIST)),
        _ => answers::schema(name),
    }
}

/// Wrong whatever any recording holds, hence usage.
fn unknown(name: &str) -> Failure {
    Failure::new(Exit::Usage, "unknown-schema", format!("there is no answer called {name:?}"))
        .hint(format!("one of: {}", names().join(", ")))
        .next("uhr schema")
}
