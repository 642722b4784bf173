//! What `uhr record` is asked to do.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};

use super::quantity;

const USAGE: &str = "uhr record [OPTIONS] [--] COMMAND [ARGS]...
       uhr record [OPTIONS] --pid PID[,PID]
       uhr record [OPTIONS] --cgroup PATH
       uhr record [OPTIONS] --all";

/// Arguments of `uhr record`: exactly one of a command, pids, a cgroup, or the whole machine.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("target").required(true).args(["command", "pid", "cgroup", "all"]), override_usage = USAGE)]
pub(crate) struct RecordArgs {
    /// The folder to make for the recording; it must not exist. Without it uhr names it after the program, and says so
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,

    /// Samples a second and CPU
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 999,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) frequency: u32,

    /// What takes the samples. `ebpf`: uhr's own programs in the kernel, with root or CAP_BPF and CAP_PERFMON. `perf`:
    /// Linux perf events, also without. `auto`: `ebpf` where it may be used
    #[arg(long, value_name = "SAMPLER", default_value_t = Sampler::Auto, value_enum,
          hide_possible_values = true)]
    pub(crate) sampler: Sampler,

    /// How the callers of user code are found. `fp`: by frame pointers, which the code must have. `dwarf`: by its unwind
    /// tables, with `ebpf` in the kernel, with `perf` over a copy of the stack. `auto`: `dwarf`; with `perf` only where the
    /// binaries need it
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Unwind::Auto, hide_possible_values = true)]
    pub(crate) unwind: Unwind,

    /// Hold each walk of the kernel against one of user space, and tell how they differ
    #[arg(long, hide = true)]
    pub(crate) check_walks: bool,

    /// How much of the stack to copy with each sample, for `--unwind dwarf`
    #[arg(long, value_name = "SIZE", default_value = "16k", value_parser = quantity::stack_size)]
    pub(crate) stack_size: u32,

    /// Count and measure every system call, with the sampler `ebpf`. Each call of every program then takes some 0.5 us
    /// longer. Without it they are counted in short windows that stand for the rest
    #[arg(long)]
    pub(crate) syscalls: bool,

    /// Keep what recording costs below this part of the time of all CPUs (1%, 0.5%), by taking fewer samples and looking
    /// at fewer waits; with the sampler `ebpf`. What was done is told
    #[arg(long, value_name = "SHARE", value_parser = quantity::percentage)]
    pub(crate) max_overhead: Option<f64>,

    /// Stop after this long (10s, 250ms). A command is then ended with SIGTERM, and after 5 s more with SIGKILL
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    pub(crate) duration: Option<Duration>,

    /// Record running processes, with all their threads and children, those that they start later too
    #[arg(short, long, value_name = "PID", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    pub(crate) pid: Vec<u32>,

    /// Record a control group and those below it: a container, a service. A path below /sys/fs/cgroup
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<String>,

    /// Record everything that runs on this machine
    #[arg(short, long)]
    pub(crate) all: bool,

    /// Run the command as this user (needs root)
    #[arg(long = "as", value_name = "USER", conflicts_with_all = ["pid", "cgroup", "all"])]
    pub(crate) as_user: Option<String>,

    /// Write what was recorded, as JSON, to this file (the command owns the standard output)
    #[arg(long, value_name = "FILE")]
    pub(crate) summary: Option<PathBuf>,

    /// The program to run and record, and its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

/// What takes the samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Sampler {
    /// uhr chooses.
    Auto,
    /// Linux perf events.
    Perf,
    /// uhr's own programs in the kernel.
    Ebpf,
}

/// How the callers of user code are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Unwind {
    /// uhr looks at the binaries and chooses.
    Auto,
    /// Frame pointers.
    Fp,
    /// Call frame information.
    Dwarf,
}
