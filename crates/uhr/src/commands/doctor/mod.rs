//! `uhr doctor`: what this host can and cannot record, and the command that changes it. With a pid, the same of one
//! process and of the files that its code is in.
//!
//! What the host grants is found by trying ([`uhr_collect::perf::Access`]); settings only explain a refusal.

mod advice;
mod facts;
mod host;
mod modules;
mod show;
mod target;

use schemars::JsonSchema;
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::output;
use facts::Facts;

/// The name of the answer.
pub(crate) const SCHEMA: &str = "uhr.doctor/1";

/// The answer of `uhr doctor`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct DoctorAnswer {
    /// Always `uhr.doctor/1`.
    #[schemars(extend("const" = "uhr.doctor/1"))]
    schema: &'static str,
    /// Always true: the question was answered.
    #[schemars(extend("const" = true))]
    ok: bool,
    /// What can be recorded, in one word.
    verdict: Verdict,
    /// What can be recorded, in one sentence.
    sentence: String,
    /// The host.
    host: HostSummary,
    /// What was looked at, the most important first.
    checks: Vec<Check>,
    /// The process that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<target::Target>,
    /// What whole stacks, names and lines need, by language.
    languages: Vec<advice::Language>,
    /// Commands that make sense next.
    next: Vec<String>,
}

/// What can be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// Everything that uhr knows.
    All,
    /// Some of it.
    Part,
    /// Nothing.
    Nothing,
}

/// The host and its user.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct HostSummary {
    /// Release of the kernel.
    kernel: String,
    /// Machine architecture.
    architecture: String,
    /// CPUs that are online.
    cpus: u32,
    /// Whether uhr runs as root.
    root: bool,
    /// The kind of container that uhr runs in, where it shows.
    container: Option<String>,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Check {
    /// A stable name.
    name: &'static str,
    /// How it stands.
    status: Status,
    /// What was found.
    finding: String,
    /// The command, or the option of the container's command, that changes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

/// How one thing stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Status {
    /// Nothing is missing.
    Ok,
    /// Something cannot be seen, or only in part.
    Limited,
    /// It does not work.
    Missing,
}

impl Check {
    fn ok(name: &'static str, finding: impl Into<String>) -> Self {
        Self { name, status: Status::Ok, finding: finding.into(), fix: None }
    }

    fn limited(name: &'static str, finding: impl Into<String>) -> Self {
        Self { status: Status::Limited, ..Self::ok(name, finding) }
    }

    fn missing(name: &'static str, finding: impl Into<String>) -> Self {
        Self { status: Status::Missing, ..Self::ok(name, finding) }
    }

    fn fix(mut self, command: impl Into<String>) -> Self {
        self.fix = Some(command.into());
        self
    }
}

/// Answers `uhr doctor`.
///
/// # Errors
/// With `--pid`, if there is no such process.
pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    let facts = Facts::gather();
    let target = args.pid.map(|pid| target::examine(pid, &facts)).transpose()?;
    output::answer(args.form, &diagnose(&facts, target), show::lines)
}

fn diagnose(facts: &Facts, target: Option<target::Target>) -> DoctorAnswer {
    let checks = host::checks(facts);
    let verdict = verdict(&checks);
    let sentence = match verdict {
        Verdict::All => "This host lets this user record everything that uhr knows.",
        Verdict::Part => "This host lets this user record, but not everything; what is limited stands below.",
        Verdict::Nothing => "This host lets this user record nothing.",
    };
    let next = match (verdict, &target) {
        (Verdict::Nothing, _) => Vec::new(),
        (_, Some(target)) => target.next(),
        _ if facts.access.whole_machine => vec!["uhr record -a --duration 10s".to_owned()],
        _ => vec!["uhr record --help".to_owned()],
    };
    DoctorAnswer {
        schema: SCHEMA,
        ok: true,
        verdict,
        sentence: sentence.to_owned(),
        host: HostSummary {
            kernel: facts.kernel.clone(),
            architecture: std::env::consts::ARCH.to_owned(),
            cpus: facts.cpus,
            root: facts.is_root,
            container: facts.container.clone(),
        },
        checks,
        target,
        languages: advice::languages(),
        next,
    }
}

fn verdict(checks: &[Check]) -> Verdict {
    if checks.iter().any(|check| check.status == Status::Missing) {
        Verdict::Nothing
    } else if checks.iter().any(|check| check.status == Status::Limited) {
        Verdict::Part
    } else {
        Verdict::All
    }
}
