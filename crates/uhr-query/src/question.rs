use uhr_model::{Metric, WaitKind};

use crate::QueryError;
use crate::answers::MetricTotal;
use crate::command::Command;
use crate::filter::Filters;
use crate::profile::Profile;
use crate::rollup::Amount;

/// What every question has: of what, of which part, and how much of the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// What is counted.
    pub metric: Metric,
    /// Which part of the recording.
    pub filters: Filters,
    /// The most rows of the answer.
    pub limit: usize,
    /// Rows to leave out before the first.
    pub offset: usize,
    /// What the rows are sorted by, largest first; `None` is the order of the contract: time where that is the first
    /// dimension, total below a function (`--under`), else self.
    pub sort: Option<Sort>,
    /// Whether waits for work are shown too (`--idle`); where rows are kinds of wait they always are.
    pub idle: bool,
    /// Whether names are given whole, however long (`--detail full`).
    pub whole_names: bool,
}

/// What rows can be sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// What happened in the row itself.
    Own,
    /// What happened in it and in what it called.
    Total,
}

impl Sort {
    /// The word that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "self",
            Self::Total => "total",
        }
    }
}

/// Rows of an answer, unless more or fewer are asked for.
pub const DEFAULT_LIMIT: usize = 10;

/// Rows of a timeline for people: the parts that `--group-by time` makes.
pub const TIMELINE_LIMIT: usize = crate::window::TIME_PARTS as usize;

impl Default for Question {
    fn default() -> Self {
        Self {
            metric: Metric::Cpu,
            filters: Filters::default(),
            limit: DEFAULT_LIMIT,
            offset: 0,
            sort: None,
            idle: false,
            whole_names: false,
        }
    }
}

impl Question {
    /// The metric of a word.
    ///
    /// # Errors
    /// [`QueryError::UnknownMetric`].
    pub fn metric(word: &str) -> Result<Metric, QueryError> {
        Metric::from_name(word).ok_or_else(|| QueryError::UnknownMetric(word.to_owned()))
    }

    /// Whether waits for work are left out; `by_wait` says that rows are kinds of wait.
    pub(crate) fn hides_idle(&self, by_wait: bool) -> bool {
        let has_waits = matches!(self.metric, Metric::OffCpu | Metric::Wall);
        has_waits
            && !self.idle
            && !by_wait
            && !self.filters.wait.iter().any(|kind| kind == WaitKind::Idle.name())
    }

    /// A command about the same part and metric.
    pub(crate) fn command(&self, verb: &str, profile: &Profile) -> Command {
        let mut command = self.with_metric(Command::new(verb, &profile.path));
        if self.idle && self.metric != Metric::Cpu {
            command = command.flag("idle");
        }
        if !matches!(verb, "call-paths" | "annotate") {
            return self.filters.repeat_in(command);
        }
        // There, `--function` is what is asked about, not a filter.
        Filters { function: Vec::new(), ..self.filters.clone() }.repeat_in(command)
    }

    /// Adds the metric, if it is not the usual one.
    pub(crate) fn with_metric(&self, command: Command) -> Command {
        if self.metric == Metric::Cpu { command } else { command.with("metric", self.metric.name()) }
    }

    /// The command that shows the rows behind the first `shown` ones of `of`.
    pub(crate) fn more(&self, command: Command, shown: usize, of: usize) -> Option<String> {
        let next = self.offset.saturating_add(shown);
        if next >= of || shown == 0 {
            return None;
        }
        let mut command = command;
        if let Some(sort) = self.sort {
            command = command.with("sort", sort.name());
        }
        if self.limit != DEFAULT_LIMIT {
            command = command.with("limit", &self.limit.to_string());
        }
        command = command.with("offset", &next.to_string());
        Some(if self.whole_names { command.with("detail", "full") } else { command }.text())
    }

    /// The sum over a selection, as answers show it.
    pub(crate) fn total(&self, total: Amount, hidden: Amount) -> MetricTotal {
        MetricTotal {
            name: self.metric.name().to_owned(),
            unit: self.metric.unit().to_owned(),
            total: Some(total.weight),
            samples: total.samples,
            idle_hidden: (hidden.weight > 0).then_some(hidden.weight),
        }
    }
}
