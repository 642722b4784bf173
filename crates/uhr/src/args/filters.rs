//! What part of a recording is asked about, and how the answer is wanted. The same flags for every question.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use uhr_model::{FrameMode, Metric, WaitKind, syscall_number};
use uhr_query::{DEFAULT_LIMIT, Question};

/// Which recording, and how it is answered.
#[derive(Debug, Args)]
pub(crate) struct About {
    /// The recording; without it, the newest in this folder
    #[arg(value_name = "RECORDING")]
    pub(crate) recording: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) form: Form,
}

/// How an answer is wanted.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Form {
    /// Print one JSON object, errors too (its schema: `uhr schema`)
    #[arg(long)]
    pub(crate) json: bool,
}

/// What part of the recording counts. Repeated filters narrow further.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct Filters {
    /// What is counted
    #[arg(short, long, value_name = "METRIC", default_value = Metric::Cpu.name(), value_parser = metric())]
    pub(crate) metric: Metric,

    /// Only what runs below this function: its outermost call and everything that it calls
    #[arg(long, value_name = "FUNCTION")]
    pub(crate) under: Vec<String>,

    /// Only samples whose leaf is this kind of code
    #[arg(long, value_name = "MODE", value_parser = mode())]
    pub(crate) mode: Vec<FrameMode>,

    /// Only samples whose leaf is in this file, by path or by name
    #[arg(long, value_name = "MODULE")]
    pub(crate) module: Vec<String>,

    /// Only waits of this kind
    #[arg(long, value_name = "KIND", value_parser = wait())]
    pub(crate) wait: Vec<WaitKind>,

    /// Only what happened in this system call, by name or by number
    #[arg(long, value_name = "NAME", value_parser = syscall)]
    pub(crate) syscall: Vec<String>,

    /// Only waits that this thread ended, by tid or by name, or an interrupt (timer, network, block)
    #[arg(long, value_name = "WAKER")]
    pub(crate) waker: Vec<String>,

    /// Show waiting for work too: event loops, pools, servers that accept, threads of the kernel. Grouped by `wait` it
    /// is always shown
    #[arg(long)]
    pub(crate) idle: bool,

    #[command(flatten)]
    pub(crate) part: Part,
}

/// Which processes, threads and time count.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct Part {
    /// Only this process, by pid or by name
    #[arg(long, value_name = "PROCESS")]
    pub(crate) process: Vec<String>,

    /// Only this thread, by tid or by name
    #[arg(long, value_name = "THREAD")]
    pub(crate) thread: Vec<String>,

    /// Only from this moment on: an RFC 3339 stamp, 1.5s after the start, or -2s before the end
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) from: Option<String>,

    /// Only up to this moment, in the same forms
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) to: Option<String>,
}

/// How much of an answer is shown.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Answer")]
pub(crate) struct Shown {
    /// How many rows to show; without it 10, and of a timeline in text 60
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) limit: Option<u32>,

    /// How many rows to skip
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) offset: u32,

    /// `full`: names at any length, and every row's samples and counts
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Detail::Brief)]
    pub(crate) detail: Detail,
}

/// How much is said of each row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Detail {
    /// What fits a line.
    Brief,
    /// Everything.
    Full,
}

impl Part {
    /// As filters of a question.
    pub(crate) fn filters(&self) -> uhr_query::Filters {
        uhr_query::Filters {
            process: self.process.clone(),
            thread: self.thread.clone(),
            from: self.from.clone(),
            to: self.to.clone(),
            ..uhr_query::Filters::default()
        }
    }
}

impl Filters {
    /// The question about this part of a recording. `function` is the leaf's, for the commands that have that filter.
    pub(crate) fn question(&self, function: &[String], shown: Option<&Shown>) -> Question {
        let filters = uhr_query::Filters {
            under: self.under.clone(),
            function: function.to_vec(),
            module: self.module.clone(),
            mode: self.mode.iter().map(|mode| mode.name().to_owned()).collect(),
            wait: self.wait.iter().map(|kind| kind.name().to_owned()).collect(),
            syscall: self.syscall.clone(),
            waker: self.waker.clone(),
            ..self.part.filters()
        };
        let mut question = Question { metric: self.metric, filters, idle: self.idle, ..Question::default() };
        if let Some(shown) = shown {
            question.limit = shown.limit.map_or(DEFAULT_LIMIT, |limit| limit as usize);
            question.offset = shown.offset as usize;
            question.whole_names = shown.detail == Detail::Full;
        }
        question
    }
}

fn metric() -> impl TypedValueParser<Value = Metric> {
    let values = Metric::ALL.iter().map(|&metric| PossibleValue::new(metric.name()).help(about(metric)));
    PossibleValuesParser::new(values).map(|name| Metric::from_name(&name).unwrap_or(Metric::Cpu))
}

fn about(metric: Metric) -> &'static str {
    match metric {
        Metric::Cpu => "Time on a CPU",
        Metric::OffCpu => "Time blocked: it waited for something",
        Metric::Runqueue => "Time that it could have run, while something else had the CPU",
        Metric::Wall => "The three above under one stack",
        Metric::PageFaults => "Page faults of user code",
        Metric::Resident => "Resident memory over time",
        Metric::Syscalls => "System calls that ended, by how they ended",
        Metric::SyscallTime => "Time in system calls, waiting included (record --syscalls)",
    }
}

fn mode() -> impl TypedValueParser<Value = FrameMode> {
    // No stack ends with frames that were left out.
    let modes = FrameMode::ALL.iter().filter(|mode| **mode != FrameMode::LeftOut);
    let names = modes.map(|mode| mode.name());
    PossibleValuesParser::new(names).map(|name| FrameMode::from_name(&name).unwrap_or(FrameMode::User))
}

fn wait() -> impl TypedValueParser<Value = WaitKind> {
    let names = WaitKind::ALL.iter().map(|kind| kind.name());
    PossibleValuesParser::new(names).map(|name| WaitKind::from_name(&name).unwrap_or(WaitKind::Unknown))
}

fn syscall(text: &str) -> Result<String, String> {
    match syscall_number(text).is_some() || text.parse::<u32>().is_ok() {
        true => Ok(text.to_owned()),
        false => Err("there is no such system call: give its name as in man 2, or its number".to_owned()),
    }
}
