//! `uhr.annotate/1`: a function line by line, or instruction by instruction.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Coverage, FunctionTotals, MetricTotal, RecordingSummary, Shown};
use crate::filter::Filters;

/// The answer of `uhr annotate`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct AnnotateAnswer {
    /// Always `uhr.annotate/1`.
    #[schemars(extend("const" = "uhr.annotate/1"))]
    pub schema: &'static str,
    /// Always true.
    #[schemars(extend("const" = true))]
    pub ok: bool,
    /// What was asked about.
    pub recording: RecordingSummary,
    /// What was asked.
    pub request: AnnotateRequest,
    /// The sum over the stacks that the function is in, which the shares of the rows are of.
    pub metric: MetricTotal,
    /// The function itself; its shares are of the whole selection.
    pub function: FunctionTotals,
    /// The source files of the rows, and whether their text is here.
    pub sources: Vec<SourceFile>,
    /// The costliest lines or instructions, in the order of the program.
    pub rows: Annotated,
    /// Which of how many lines or instructions with a cost these are.
    pub shown: Shown,
    /// What the answer rests on.
    pub coverage: Coverage,
    /// Commands that make sense next.
    pub next: Vec<String>,
}

/// What was asked, as it was understood.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct AnnotateRequest {
    /// The function, as it was given.
    pub function: String,
    /// Lines or instructions.
    pub view: View,
    /// The metric.
    pub metric: String,
    /// The filters.
    pub filters: Filters,
    /// Whether waits for work were asked for too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub idle: bool,
    /// The most lines or instructions with a cost.
    pub limit: u64,
    /// Rows left out before the first, counted from the costliest.
    pub offset: u64,
}

/// How closely a function is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum View {
    /// Line by line.
    #[default]
    Lines,
    /// Instruction by instruction.
    Instructions,
}

/// A source file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct SourceFile {
    /// Its path, as the compiler wrote it.
    pub file: String,
    /// Why its text is not in the rows; missing where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub absent: Option<&'static str>,
}

/// The rows, by view.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Annotated {
    /// Lines.
    Lines(Vec<LineRow>),
    /// Instructions.
    Instructions(Vec<InstructionRow>),
}

/// A line of the function. What was inlined into it counts in its total.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct LineRow {
    /// Its file; null where that is not known.
    pub file: Option<String>,
    /// Its number; null where that is not known.
    pub line: Option<u64>,
    /// Its text, where the file is here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// What happened in it, callees and inlined functions not counted.
    #[serde(rename = "self")]
    pub own: u64,
    /// What happened in it and in what it called.
    pub total: u64,
    /// `self` as a share of the function's total.
    pub self_share: f64,
    /// `total` as a share of the function's total.
    pub total_share: f64,
    /// Samples behind `self`.
    pub self_samples: u64,
    /// Samples behind `total`.
    pub total_samples: u64,
    /// 95 % interval of `self_share`.
    pub self_share_ci95: [f64; 2],
    /// 95 % interval of `total_share`.
    pub total_share_ci95: [f64; 2],
    /// Why the intervals are [0, 1], or not to be relied on: `few-samples`, `long-phases`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_note: Option<&'static str>,
}

/// An instruction of the function: one with a cost, or one beside it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct InstructionRow {
    /// How many instructions were left out between the row before and this one.
    #[serde(skip_serializing_if = "is_zero")]
    pub omitted_before: u64,
    /// The module, where it is not that of `function`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Its address in the module, in hexadecimal. Without the code: that of the sample, inside of a call.
    pub address: String,
    /// Its bytes in hexadecimal; null where the code is not in the recording.
    pub bytes: Option<String>,
    /// Its disassembly in the syntax of Intel's manuals; null where the code is not in the recording.
    pub text: Option<String>,
    /// Where in the function it may jump to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jump: Option<String>,
    /// Whether a jump of the function leads to it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_target: bool,
    /// Its source file, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Its source line, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The text of that line, where the file is here; only with the first of several rows of a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The function that it was inlined from, where it is not the function's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inlined_from: Option<String>,
    /// What happened at it, callees not counted.
    #[serde(rename = "self")]
    pub own: u64,
    /// What happened at it and in what it called.
    pub total: u64,
    /// `self` as a share of the function's total; this and what follows is missing where the instruction has no cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_share: Option<f64>,
    /// `total` as a share of the function's total.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_share: Option<f64>,
    /// Samples behind `self`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_samples: Option<u64>,
    /// Samples behind `total`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_samples: Option<u64>,
    /// 95 % interval of `self_share`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_share_ci95: Option<[f64; 2]>,
    /// 95 % interval of `total_share`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_share_ci95: Option<[f64; 2]>,
    /// Why the intervals are [0, 1], or not to be relied on: `few-samples`, `long-phases`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_note: Option<&'static str>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}
