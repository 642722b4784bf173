//! What part of the recording a question is about. The same for every question; several filters are all to hold.

use schemars::JsonSchema;
use serde::Serialize;

use crate::cells::{Details, WakerDetail};
use crate::command::Command;

/// Filters as the user wrote them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(default)]
pub struct Filters {
    /// Functions: only samples that are in them or below them, and of those only the part of the stack from the
    /// function on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub under: Vec<String>,
    /// Function of the leaf.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub function: Vec<String>,
    /// Module of the leaf.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub module: Vec<String>,
    /// Mode of the leaf.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mode: Vec<String>,
    /// Process, by pid or name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub process: Vec<String>,
    /// Thread, by tid or name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub thread: Vec<String>,
    /// Kind of wait.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wait: Vec<String>,
    /// System call, by name or number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub syscall: Vec<String>,
    /// What ended the wait: a thread by tid or name, or the kind of an interrupt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waker: Vec<String>,
    /// Start of the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// End of the window, which is not part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

impl Filters {
    /// Repeats every filter in a command.
    pub(crate) fn repeat_in(&self, mut command: Command) -> Command {
        let lists = [
            ("under", &self.under),
            ("function", &self.function),
            ("module", &self.module),
            ("mode", &self.mode),
            ("process", &self.process),
            ("thread", &self.thread),
            ("wait", &self.wait),
            ("syscall", &self.syscall),
            ("waker", &self.waker),
        ];
        for (flag, values) in lists {
            command = values.iter().fold(command, |command, value| command.with(flag, value));
        }
        for (flag, value) in [("from", &self.from), ("to", &self.to)] {
            command = value.iter().fold(command, |command, value| command.with(flag, value));
        }
        command
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The circumstances that it looks at.
    pub(crate) fn details(&self) -> Details {
        Details {
            syscall: !self.syscall.is_empty(),
            mapping: false,
            cpu: false,
            waker: if self.waker.is_empty() { WakerDetail::None } else { WakerDetail::Who },
        }
    }

    /// The filters that look at the circumstances of single samples and waits.
    pub(crate) fn circumstance_filters(&self) -> impl Iterator<Item = &'static str> {
        [("wait", &self.wait), ("syscall", &self.syscall), ("waker", &self.waker)]
            .into_iter()
            .filter_map(|(flag, values)| (!values.is_empty()).then_some(flag))
    }

    /// Whether a filter looks at stacks: the first that does.
    pub(crate) fn stack_filter(&self) -> Option<&'static str> {
        [("under", &self.under), ("function", &self.function), ("module", &self.module), ("mode", &self.mode)]
            .into_iter()
            .find_map(|(flag, values)| (!values.is_empty()).then_some(flag))
    }
}
