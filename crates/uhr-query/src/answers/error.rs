//! `uhr.error/1`: why there is no answer.

use schemars::JsonSchema;
use serde::Serialize;

use crate::QueryError;

/// What is printed instead of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ErrorAnswer {
    /// Always `uhr.error/1`.
    #[schemars(extend("const" = "uhr.error/1"))]
    pub schema: &'static str,
    /// Always false.
    #[schemars(extend("const" = false))]
    pub ok: bool,
    /// What is wrong.
    pub error: ErrorBody,
}

/// What is wrong, and what to do.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ErrorBody {
    /// A stable word for programs.
    pub code: String,
    /// What happened, in one sentence.
    pub message: String,
    /// What would help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Names that could have been meant, largest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Candidate>,
    /// Commands that make sense next.
    pub next: Vec<String>,
}

/// Something that could have been meant.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Candidate {
    /// Its name: a function, a module, a process.
    pub name: String,
    /// The module of a function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Its total as a share of the recording.
    pub total_share: f64,
}

impl ErrorAnswer {
    /// An error of any crate in the form of an answer.
    pub fn new(code: &str, message: String, hint: Option<String>, next: Vec<String>) -> Self {
        let error = ErrorBody { code: code.to_owned(), message, hint, candidates: Vec::new(), next };
        Self { schema: "uhr.error/1", ok: false, error }
    }
}

impl From<&QueryError> for ErrorAnswer {
    fn from(error: &QueryError) -> Self {
        let mut answer = Self::new(error.code(), error.to_string(), error.hint(), error.next());
        answer.error.candidates = error.candidates().to_vec();
        answer
    }
}
