//! What `record` says at the end: three lines for people, and the same for programs with `--summary`.

use std::path::Path;
use std::process::ExitStatus;

use anyhow::{Context, Result};
use schemars::JsonSchema;
use serde::Serialize;
use uhr_recording::tables::{Processes, Threads};
use uhr_recording::{Manifest, Recording, SampleLedger};

use crate::args::RecordArgs;
use crate::output;
use crate::text::quantity;

/// `uhr.record/1`: what was recorded.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct RecordAnswer {
    /// Always `uhr.record/1`.
    schema: &'static str,
    ok: bool,
    /// The recording's folder.
    path: String,
    /// Its random id.
    id: String,
    /// Its state: `complete`.
    state: &'static str,
    /// Recorded time in seconds.
    duration_s: f64,
    /// Processes and threads that were seen.
    processes: u64,
    threads: u64,
    /// Exact time on CPU of all threads, in nanoseconds.
    cpu_ns: u64,
    /// CPU samples: what became of those that were expected.
    expected: u64,
    captured: u64,
    lost: u64,
    not_visible: u64,
    /// Share of captured CPU samples whose stack is whole.
    stacks_complete_share: f64,
    /// Bytes of the finished tables.
    bytes: u64,
    /// The command's exit status, or 128 and the signal that ended it.
    exit_status: Option<u8>,
    /// What could not be seen.
    notes: Vec<String>,
    /// Commands that go on from here.
    next: Vec<String>,
}

impl RecordAnswer {
    /// The answer's schema name.
    pub(crate) const SCHEMA: &'static str = "uhr.record/1";

    fn of(folder: &Path, manifest: &Manifest, status: Option<ExitStatus>) -> Result<Self> {
        let recording = Recording::open(folder)?;
        let threads: Threads = recording.table()?;
        let processes: Processes = recording.table()?;
        let SampleLedger { expected, captured, lost, not_visible, .. } = manifest.ledger.cpu;
        let whole = manifest.ledger.stacks.get("complete").copied().unwrap_or(0);
        Ok(Self {
            schema: Self::SCHEMA,
            ok: true,
            path: folder.display().to_string(),
            id: manifest.id.clone(),
            state: manifest.state.name(),
            duration_s: manifest.duration_ns() as f64 / 1e9,
            processes: processes.id.len() as u64,
            threads: threads.id.len() as u64,
            cpu_ns: threads.on_cpu_ns.iter().sum(),
            expected,
            captured,
            lost,
            not_visible,
            stacks_complete_share: if captured == 0 { 1.0 } else { whole as f64 / captured as f64 },
            bytes: manifest.table_bytes.values().sum(),
            exit_status: status.map(super::exit_status),
            notes: manifest.notes.clone(),
            next: vec![super::overview_of(folder)],
        })
    }

    /// What it holds, how far to trust it, where to go on.
    fn lines(&self, manifest: &Manifest) -> [String; 3] {
        let plural =
            |count: u64, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
        let holds = format!(
            "recorded {} of {}, {} on CPU, {}: {} ({})",
            quantity::time(self.duration_s * 1e9),
            plural(self.processes, "process", "processes"),
            quantity::time(self.cpu_ns as f64),
            plural(self.captured, "sample", "samples"),
            self.path,
            quantity::bytes(self.bytes as f64),
        );
        (holds, self.trust(manifest), format!("next: {}", self.next.join("; "))).into()
    }

    fn trust(&self, manifest: &Manifest) -> String {
        if self.captured == 0 {
            let (cpu, duration) = (quantity::time(self.cpu_ns as f64), quantity::time(self.duration_s * 1e9));
            return match (self.cpu_ns, self.not_visible) {
                (0, _) => {
                    format!("trust: no CPU samples: it did not run in these {duration}; its waits are exact")
                }
                (_, 1..) => format!(
                    "trust: no CPU samples: its {cpu} on CPU were in the kernel, which is not visible"
                ),
                _ => format!(
                    "trust: no CPU samples: it ran for {cpu} of {duration}, each time too shortly; times are exact"
                ),
            };
        }
        let mut parts = vec![format!(
            "{} of stacks whole ({})",
            quantity::share(self.stacks_complete_share),
            manifest.settings.unwind
        )];
        parts.push(if self.lost == 0 {
            "none lost".to_owned()
        } else {
            format!("{} samples lost", self.lost)
        });
        let drift = manifest.ledger.cpu.drift;
        if drift * 10 > self.expected && drift >= 50 {
            let share = quantity::share(drift as f64 / self.expected as f64);
            parts.push(format!("{share} of the expected samples did not come"));
        }
        let of_time = |ticks: u64| quantity::share(ticks as f64 / self.expected.max(1) as f64);
        if !manifest.settings.kernel_visible {
            parts.push(format!(
                "{} of the time is in the kernel, which is not visible",
                of_time(self.not_visible)
            ));
        }
        let too_short = manifest.ledger.cpu.too_short;
        if too_short * 100 > self.expected {
            parts.insert(0, format!("{} of the time is in threads too short to sample", of_time(too_short)));
        }
        let cut =
            manifest.ledger.stacks.iter().filter(|(ending, _)| *ending != "complete").max_by_key(|row| row.1);
        if let Some((ending, count)) = cut.filter(|(_, count)| **count * 100 > self.captured) {
            parts.push(format!(
                "{} cut at: {ending}",
                if *count == 1 { "1 is".to_owned() } else { format!("{count} are") }
            ));
        }
        format!("trust: {}", parts.join(", "))
    }
}

/// Says what was recorded, and writes the summary if one was asked for.
///
/// # Errors
/// If the summary cannot be written.
pub(super) fn report(
    args: &RecordArgs,
    folder: &Path,
    manifest: &Manifest,
    status: Option<ExitStatus>,
) -> Result<()> {
    let answer = RecordAnswer::of(folder, manifest, status)?;
    answer.lines(manifest).iter().for_each(|line| output::say(&format!("uhr: {line}")));
    if let Some(path) = &args.summary {
        let text = serde_json::to_string_pretty(&answer)? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write the summary {}", path.display()))?;
    }
    Ok(())
}
