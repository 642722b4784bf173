//! The words after `--group-by`. They are checked here, so that a word that no recording can answer is wrong usage.

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use uhr_model::Dimension;
use uhr_query::GroupBy;

/// The parser of one word: a dimension, `region:kind`, or `time:100ms`.
pub(super) fn parser() -> impl TypedValueParser<Value = String> {
    Grouping
}

#[derive(Clone, Copy)]
struct Grouping;

impl TypedValueParser for Grouping {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        let word = StringValueParser::new().parse_ref(command, arg, value)?;
        if GroupBy::parse(&word).is_ok() {
            return Ok(word);
        }
        let mut error = clap::Error::new(ErrorKind::InvalidValue).with_cmd(command);
        if let Some(arg) = arg {
            error.insert(ContextKind::InvalidArg, ContextValue::String(arg.to_string()));
        }
        error.insert(ContextKind::InvalidValue, ContextValue::String(word));
        error.insert(
            ContextKind::ValidValue,
            ContextValue::Strings(
                dimensions()
                    .map(str::to_owned)
                    .chain(["region:kind", "time:100ms"].map(str::to_owned))
                    .collect(),
            ),
        );
        Err(error)
    }

    /// For help and completions.
    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Dimension::ALL.iter().map(|&one| PossibleValue::new(one.name()).help(about(one)))))
    }
}

fn dimensions() -> impl Iterator<Item = &'static str> {
    Dimension::ALL.iter().map(|dimension| dimension.name())
}

fn about(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Command => "The program's name, all its processes together",
        Dimension::Process => "One process",
        Dimension::ThreadName => "The thread's name, all such threads together",
        Dimension::Thread => "One thread",
        Dimension::Mode => "The kind of code: user, kernel, jit, interpreter",
        Dimension::Module => "The file that the code is in",
        Dimension::Function => "The function, with its module",
        Dimension::File => "The source file",
        Dimension::Line => "The source line",
        Dimension::Region => {
            "The memory that faulted, by kind and name; region:kind: by kind alone (page-faults)"
        }
        Dimension::Mapping => "The name of the mapping that faulted (page-faults)",
        Dimension::Time => "60 equal parts of the window",
        Dimension::Syscall => "The system call that a thread was in",
        Dimension::Wait => "What a thread waited for: lock, sleep, poll, pipe, ... (off-cpu, runqueue, wall)",
        Dimension::Waker => "What ended the wait: a thread, or an interrupt (off-cpu)",
        Dimension::Cgroup => "The cgroup of the process, as a path",
        Dimension::Container => "The container of the process, by its id",
        Dimension::Pod => "The pod of the process, by its uid",
        Dimension::Cpu => "The CPU that ran the thread (cpu)",
        Dimension::PageSize => {
            "How large the page is that a page fault brought: base (4 KiB) or huge (page-faults)"
        }
        Dimension::Fault => "Whether a page fault waited for a disk: major or minor (page-faults)",
        Dimension::Address => "The address in the module, with its module",
        Dimension::Instruction => "The instruction, with its address",
        Dimension::Errno => "How a system call ended: ok, or its error (syscalls)",
    }
}
