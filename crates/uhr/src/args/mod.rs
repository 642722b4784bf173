//! The command line, as `design section 5` fixes it. One definition: parser, help, completions, man pages and
//! `docs/cli.md` come out of it.

mod filters;
mod grouping;
mod quantity;
mod record;
#[cfg(test)]
mod reference;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use filters::{About, Detail, Filters, Form, Part, Shown};
pub(crate) use record::{RecordArgs, Sampler, Unwind};

/// See where a program's time and memory go.
///
/// uhr records a program (any language, release builds too, root or not), keeps what it saw in a folder, and answers
/// questions about it: to people as text, to programs with --json.
#[derive(Debug, Parser)]
#[command(name = "uhr", version, after_long_help = EXAMPLES, max_term_width = 100,
          disable_help_subcommand = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  uhr record -- python3 work.py       record a program until it ends
  uhr record --pid 4711 --duration 10s
  uhr overview                        computing or waiting? on what? can I trust this?
  uhr query --group-by function       where the time goes
  uhr flamegraph -o cpu.svg

Exit status: 0 done; 1 failed; 2 wrong usage; 3 this host cannot (uhr doctor says why).
`uhr record -- COMMAND` passes on the command's own; 125 is a failure of uhr.";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say what this host can and cannot record, and the command that changes it
    Doctor(DoctorArgs),
    /// Record a command, running processes, or the whole machine
    #[command(after_long_help = RECORD_EXAMPLES)]
    Record(Box<RecordArgs>),
    /// Say what a recording holds: computing or waiting, on what, how big, how far to trust it
    #[command(after_long_help = OVERVIEW_EXAMPLES)]
    Overview(OverviewArgs),
    /// Ask what takes the time or the memory, by any grouping
    #[command(after_long_help = QUERY_EXAMPLES)]
    Query(QueryArgs),
    /// Show the call paths through a function, or the tree of its callers or callees
    #[command(after_long_help = CALL_PATHS_EXAMPLES)]
    CallPaths(CallPathsArgs),
    /// Show what the lines or the instructions of a function cost
    #[command(after_long_help = ANNOTATE_EXAMPLES)]
    Annotate(AnnotateArgs),
    /// Draw a flame graph: one SVG file, to be opened in a browser
    #[command(after_long_help = FLAMEGRAPH_EXAMPLES)]
    Flamegraph(FlamegraphArgs),
    /// Write the stacks in the format of another tool
    #[command(after_long_help = EXPORT_EXAMPLES)]
    Export(ExportArgs),
    /// Look up the names of a recording again, and fill in what was missing
    #[command(after_long_help = SYMBOLIZE_EXAMPLES)]
    Symbolize(SymbolizeArgs),
    /// Print the JSON Schema of an answer, or the list of them
    Schema(SchemaArgs),
    /// Print the completions for a shell
    #[command(after_long_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Print a manual page
    #[command(after_long_help = MAN_EXAMPLES)]
    Man(ManArgs),
}

const RECORD_EXAMPLES: &str = "\
Examples:
  uhr record -- ./server --port 8080
  uhr record -o rec --duration 10s --pid 4711,4712
  sudo uhr record --as $USER -- ./app       kernel code too, the program as yourself
  sudo uhr record -a --duration 30s

Ctrl-C ends the recording; a second one ends a command that ignores the first.

Exit status: that of the command (128 + n after signal n); 125 if uhr failed, 126 if the
command cannot be run, 127 if there is none of that name. Without a command: 0, 1, or 3
where this host cannot.";

const OVERVIEW_EXAMPLES: &str = "\
Examples:
  uhr overview
  uhr overview rec --json";

const QUERY_EXAMPLES: &str = "\
Examples:
  uhr query rec --group-by function
  uhr query rec --group-by function,line --under parse_json
  uhr query rec --metric off-cpu --group-by wait
  uhr query rec --metric off-cpu --group-by waker --under lock_slow
  uhr query rec --group-by time:100ms --thread worker --from 2s --to 4s";

const CALL_PATHS_EXAMPLES: &str = "\
Examples:
  uhr call-paths rec --function malloc
  uhr call-paths rec --function malloc --callers
  uhr call-paths rec --function parse_json --callees
  uhr call-paths rec --wakers --thread worker";

const ANNOTATE_EXAMPLES: &str = "\
Examples:
  uhr annotate rec --function parse_json
  uhr annotate rec --function parse_json --asm
  uhr annotate rec --function parse_json --asm --thread worker --limit 40

The disassembly is made from code that the recording holds: the program need not be there.";

const FLAMEGRAPH_EXAMPLES: &str = "\
Examples:
  uhr flamegraph rec -o cpu.svg
  uhr flamegraph rec --metric off-cpu --under main -o waits.svg";

const EXPORT_EXAMPLES: &str = "\
Examples:
  uhr export rec --format collapsed -o stacks.txt
  uhr export rec --format collapsed | grep parse";

const SYMBOLIZE_EXAMPLES: &str = "\
Examples:
  uhr symbolize rec                after debug files were installed
  uhr symbolize rec --debuginfod=https://debuginfod.debian.net
  DEBUGINFOD_URLS= uhr symbolize rec      without asking any server

Nothing that was captured is changed, and no name is taken away. Files are found at their old
path, by build id under /usr/lib/debug, and in the cache of debuginfod; a file of another build
is never used. Recording never asks a server.";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  uhr completions bash > ~/.local/share/bash-completion/completions/uhr
  uhr completions fish > ~/.config/fish/completions/uhr.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  uhr man | man -l -
  uhr man record > uhr-record.1";

/// Arguments of `uhr doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Also say whether this process can be recorded, and what its files lack for whole stacks and names
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    pub(crate) pid: Option<u32>,

    #[command(flatten)]
    pub(crate) form: Form,
}

/// Arguments of `uhr overview`.
#[derive(Debug, Args)]
pub(crate) struct OverviewArgs {
    #[command(flatten)]
    pub(crate) about: About,

    #[command(flatten)]
    pub(crate) part: Part,

    /// `full`: names at any length
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Detail::Brief)]
    pub(crate) detail: Detail,
}

/// Arguments of `uhr query`.
#[derive(Debug, Args)]
pub(crate) struct QueryArgs {
    #[command(flatten)]
    pub(crate) about: About,

    /// What to group by, one or several with commas; without it `function`, and for resident memory `process`.
    /// `time` as the first gives a timeline; `time:100ms` gives parts of that length
    #[arg(short, long, value_name = "DIM[,DIM]", value_delimiter = ',', value_parser = grouping::parser())]
    pub(crate) group_by: Vec<String>,

    /// What the rows are sorted by. `total` ranks the functions of an interpreter, whose own time is its C code's:
    /// `--sort total --group-by function,mode`. Without it: time where that is the first dimension, `total` with
    /// `--under`, else `self`
    #[arg(long, value_enum, value_name = "BY", hide_possible_values = true)]
    pub(crate) sort: Option<SortBy>,

    /// Only samples whose leaf is in this function
    #[arg(long, value_name = "FUNCTION", help_heading = "Filters")]
    pub(crate) function: Vec<String>,

    #[command(flatten)]
    pub(crate) filters: Filters,

    #[command(flatten)]
    pub(crate) shown: Shown,
}

/// What rows can be sorted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum SortBy {
    /// Callees not counted.
    #[value(name = "self")]
    Own,
    /// Callees counted.
    Total,
}

/// Arguments of `uhr call-paths`.
#[derive(Debug, Args)]
pub(crate) struct CallPathsArgs {
    #[command(flatten)]
    pub(crate) about: About,

    /// The function: its exact name, or a part that no other has
    #[arg(short, long, value_name = "FUNCTION", required_unless_present = "wakers")]
    pub(crate) function: Option<String>,

    /// Show the tree of who calls it, instead of whole paths through it
    #[arg(long, conflicts_with = "callees")]
    pub(crate) callers: bool,

    /// Show the tree of what it calls, instead of whole paths through it
    #[arg(long)]
    pub(crate) callees: bool,

    /// Show who ended the waits instead: the thread that waited, what woke it, what had woken that. `--thread` is the one
    /// that waited
    #[arg(long, conflicts_with_all = ["function", "callers", "callees", "metric"])]
    pub(crate) wakers: bool,

    #[command(flatten)]
    pub(crate) filters: Filters,

    #[command(flatten)]
    pub(crate) shown: Shown,
}

/// Arguments of `uhr annotate`.
#[derive(Debug, Args)]
pub(crate) struct AnnotateArgs {
    #[command(flatten)]
    pub(crate) about: About,

    /// The function: its exact name, or a part that no other has
    #[arg(short, long, value_name = "FUNCTION")]
    pub(crate) function: String,

    /// Show its instructions instead of its lines: the costliest, and those beside them; with `--detail full` all
    #[arg(long)]
    pub(crate) asm: bool,

    #[command(flatten)]
    pub(crate) filters: Filters,

    #[command(flatten)]
    pub(crate) shown: Shown,
}

/// Arguments of `uhr flamegraph`.
#[derive(Debug, Args)]
pub(crate) struct FlamegraphArgs {
    #[command(flatten)]
    pub(crate) about: About,

    /// The SVG file to make; it must not exist. Without it the SVG goes to the standard output
    #[arg(short, long, value_name = "FILE", required_if_eq("json", "true"))]
    pub(crate) output: Option<PathBuf>,

    /// Begin with the leaves: who calls what costs most
    #[arg(long)]
    pub(crate) inverted: bool,

    /// Draw callers above callees, as is done anyway where the picture is higher than a window. It can be flipped in the
    /// browser too, with the key i
    #[arg(long, conflicts_with = "flame")]
    pub(crate) icicle: bool,

    /// Draw callees above callers, however high the picture is
    #[arg(long)]
    pub(crate) flame: bool,

    /// Only samples whose leaf is in this function
    #[arg(long, value_name = "FUNCTION", help_heading = "Filters")]
    pub(crate) function: Vec<String>,

    #[command(flatten)]
    pub(crate) filters: Filters,
}

/// Arguments of `uhr export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) about: About,

    /// The format. `collapsed`: a line a call path, `main;parse;lex 42`
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: ExportFormat,

    /// The file to make; it must not exist. Without it the text goes to the standard output
    #[arg(short, long, value_name = "FILE", required_if_eq("json", "true"))]
    pub(crate) output: Option<PathBuf>,

    /// Only samples whose leaf is in this function
    #[arg(long, value_name = "FUNCTION", help_heading = "Filters")]
    pub(crate) function: Vec<String>,

    #[command(flatten)]
    pub(crate) filters: Filters,
}

/// Formats that stacks can be written in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Collapsed stacks, as flame graph tools read them.
    Collapsed,
}

/// Arguments of `uhr symbolize`.
#[derive(Debug, Args)]
pub(crate) struct SymbolizeArgs {
    #[command(flatten)]
    pub(crate) about: About,

    /// Ask debuginfod servers for debug files that are on no disk here: these (several with blanks), or those of
    /// DEBUGINFOD_URLS, which are asked without this option too. They are told the build ids
    #[arg(long, value_name = "URLS", num_args = 0..=1, require_equals = true)]
    pub(crate) debuginfod: Option<Option<String>>,
}

/// Arguments of `uhr schema`.
#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// Which answer; without it, the list of them
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    #[command(flatten)]
    pub(crate) form: Form,
}

/// Arguments of `uhr completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

/// Arguments of `uhr man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Of which command; without it, of uhr
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
}
