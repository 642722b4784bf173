//! The answers: one type each, serialised exactly as design section 7 shows, with a JSON Schema derived from the type.
//!
//! Numbers are in the unit of the metric; shares are of `metric.total` and rounded to five places; lists are in their
//! final order. Names in an answer are already made safe ([`crate::names`]); nothing here needs escaping but what the
//! output format itself asks for.

mod annotate;
mod call_paths;
mod coverage;
mod error;
mod key;
mod overview;
mod query;
mod waker_chains;
mod written;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;

pub use annotate::{AnnotateAnswer, AnnotateRequest, Annotated, InstructionRow, LineRow, SourceFile, View};
pub use call_paths::{
    CallPathsAnswer, CallPathsRequest, Direction, FunctionTotals, Omitted, PathRow, Paths, TreeRow,
};
pub use coverage::Coverage;
pub use error::{Candidate, ErrorAnswer, ErrorBody};
pub use key::{Key, KeyValue};
pub use overview::{
    Activity, Calls, Faults, Machine, Memory, OverviewAnswer, OverviewRequest, OverviewRow, ProcessActivity,
    Top, Trust, Verdict, Waits,
};
pub use query::{CountedRow, QueryAnswer, QueryRequest, ResidentBytes, Rows};
pub use waker_chains::{WakerChain, WakerChainsAnswer, WakerChainsRequest};
pub use written::{ExportAnswer, ExportRequest, FlamegraphAnswer, FlamegraphRequest, Written};

/// What the answer is about.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RecordingSummary {
    /// Where it is, as it was given.
    pub path: String,
    /// Its random id.
    pub id: String,
    /// When it began: RFC 3339, in UTC, to the millisecond.
    pub start: String,
    /// How long it is, in seconds.
    pub duration_s: f64,
    /// The sampler that made it.
    pub sampler: String,
    /// How far it has come: recording, captured, complete, recovered.
    pub state: String,
}

/// What was counted, and how much of it is in the selection.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct MetricTotal {
    /// The metric.
    pub name: String,
    /// Its unit: `ns`, `count` or `bytes`.
    pub unit: String,
    /// The sum over the selection, which shares are of; missing for memory, which does not add up over time.
    pub total: Option<u64>,
    /// How many samples (or waits) the sum is made of.
    pub samples: u64,
    /// Of waits: time of those for work, which are in no row and not in `total`; `--idle` shows them. Missing where
    /// nothing is hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_hidden: Option<u64>,
}

/// Which rows of how many are in the answer.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Shown {
    /// Rows in the answer.
    pub rows: u64,
    /// Rows that there are.
    pub of: u64,
    /// Share of the total that the rows stand for by their self values.
    pub self_share: f64,
    /// The command that shows the next rows, if there are any.
    pub more: Option<String>,
}

/// An answer of this crate.
pub trait Answer: Serialize {
    /// The name in the field `schema`, such as `uhr.query/1`.
    const SCHEMA: &'static str;
}

macro_rules! answers {
    ($($name:literal $answer:ident,)*) => {
        $(impl Answer for $answer { const SCHEMA: &'static str = $name; })*

        /// The names of all answers of this crate.
        pub const NAMES: &[&str] = &[$($name,)*];

        /// The JSON Schema of the answer `name` (`uhr.query/1`, or in short `query`), or `None` if there is none.
        pub fn schema(name: &str) -> Option<serde_json::Value> {
            $(if is_called(name, $name) { return Some(schema_of::<$answer>($name)); })*
            None
        }
    };
}
answers! {
    "uhr.query/1" QueryAnswer,
    "uhr.call-paths/1" CallPathsAnswer,
    "uhr.annotate/1" AnnotateAnswer,
    "uhr.waker-chains/1" WakerChainsAnswer,
    "uhr.overview/1" OverviewAnswer,
    "uhr.flamegraph/1" FlamegraphAnswer,
    "uhr.export/1" ExportAnswer,
    "uhr.error/1" ErrorAnswer,
}

fn is_called(asked: &str, name: &str) -> bool {
    asked == name || name.strip_prefix("uhr.").and_then(|rest| rest.strip_suffix("/1")) == Some(asked)
}

/// The schema of any answer type, in the form that [`schema`] returns it; for answers that other crates define.
pub fn schema_of<T: JsonSchema>(name: &str) -> serde_json::Value {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema: Schema = generator.into_root_schema_for::<T>();
    schema.insert("title".to_owned(), name.into());
    schema.to_value()
}

/// A share as answers write it: five places.
pub(crate) fn rounded(share: f64) -> f64 {
    (share * 1e5).round() / 1e5
}

/// `part` of `whole` as a share; 0 where there is nothing.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { rounded(part as f64 / whole as f64) }
}
