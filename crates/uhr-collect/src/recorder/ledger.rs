//! What was expected, what was captured, and what became of the difference.

use uhr_model::StackEnding;
use uhr_recording::{Ledger, SampleLedger};

use super::Recorder;
use crate::perf::{EventCounts, EventKind, Limitation, THINNED_TO, Thinned};
use crate::pipeline::Counted;

impl Recorder {
    pub(super) fn ledger(&self, counts: &[EventCounts]) -> Ledger {
        let granted = &self.granted;
        let counted = &self.pipeline.counted;
        let of = |kind| counts.iter().find(|row| row.kind == kind);
        let lost_of = |kind| of(kind).and_then(|row| row.lost).unwrap_or(0);
        let period_ns = 1_000_000_000 / u64::from(granted.frequency.max(1));
        // Of the whole machine the clock counts idle time too: there, what threads ran is what could be sampled.
        let running_ns = match self.manifest.settings.target.as_str() {
            "machine" => self.pipeline.tasks.on_cpu_ns,
            _ => {
                let counted_ns =
                    of(EventKind::Cpu).map_or(0, |row| row.value).saturating_sub(counted.early_cpu_ns);
                counted_ns + self.pipeline.tasks.without_events_ns
            }
        };
        let mut cpu = SampleLedger {
            expected: (running_ns / period_ns).max(counted.cpu_samples),
            captured: counted.cpu_samples,
            lost: lost_of(EventKind::Cpu),
            ..SampleLedger::default()
        };
        let rest = cpu.expected.saturating_sub(cpu.captured + cpu.lost);
        let without_sample_ns = self.pipeline.tasks.too_short_ns + self.pipeline.tasks.without_events_ns;
        cpu.too_short = rest.min(without_sample_ns / period_ns);
        // The same nanoseconds as those of the rows `[kernel, not visible]`.
        let rest = rest - cpu.too_short;
        cpu.not_visible = rest.min(self.pipeline.tasks.not_visible_ns / period_ns);
        cpu.drift = rest - cpu.not_visible;
        let endings = StackEnding::ALL.iter().zip(counted.cpu_stacks).filter(|(_, count)| *count > 0);
        let mut misses: std::collections::BTreeMap<String, u64> = [
            ("records without a task", counted.without_task),
            ("records of threads that had ended", counted.after_exit),
            ("records of an unknown type", counted.unknown),
            ("corrupt ring bytes", self.corrupt_bytes),
            ("throttled events", counted.throttles),
            ("samples that another profiler's event filled", counted.second_hand),
            ("stacks of waits that may not be read", self.outside_refused),
            ("times that records were handed on before their turn", self.merger.forced()),
            ("threads gone before they were attached", self.gone),
            ("threads that could not be attached", granted.unattached.len() as u64),
        ]
        .into_iter()
        .chain(self.pipeline.mapping_names.misses())
        .chain(self.pipeline.kernel_programs.misses())
        .map(|(name, count)| (name.to_owned(), count))
        .collect();
        misses.retain(|_, count| *count > 0);
        Ledger {
            cpu,
            faults: fault_ledger(of(EventKind::PageFault), counted, granted.faults_a_sample),
            switches: counted.switches,
            switch_cost_ns: self.switch_cost_ns(of(EventKind::Cpu)),
            records_lost: counted.lost,
            out_of_order: self.merger.out_of_order(),
            malformed: counted.malformed,
            stacks: endings.map(|(ending, count)| (ending.name().to_owned(), count)).collect(),
            threads_inexact: self.pipeline.tasks.inexact,
            misses,
            ..Ledger::default()
        }
    }

    /// What a switch took on average: what the clock counted and no thread's records cover. Of the whole machine the
    /// clock counts idle time too, so there it is not known.
    fn switch_cost_ns(&self, clock: Option<&EventCounts>) -> u64 {
        /// More than a switch can take: then something else is wrong, such as lost records.
        const MOST_NS: u64 = 100_000;
        let tasks = &self.pipeline.tasks;
        // Where records were lost the difference is something else.
        let is_known = self.manifest.settings.target != "machine" && self.pipeline.counted.lost == 0;
        let Some(clock) = clock.filter(|_| is_known) else { return 0 };
        let clock_ns = clock.value.saturating_sub(self.pipeline.counted.early_cpu_ns);
        let cost_ns = clock_ns.saturating_sub(tasks.on_cpu_ns) / tasks.switches.max(1);
        if cost_ns > MOST_NS { 0 } else { cost_ns }
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.granted.limitations.iter().map(with_remedy).collect();
        if let Some(reason) = &self.kernel_side.refused {
            notes.push(format!(
                "recorded by perf events, for uhr's own programs could not be loaded into the kernel: {reason}"
            ));
        }
        let Thinned { times, total_ns } = self.thinned;
        if times > 0 {
            notes.push(format!(
                "stacks of one switch in {THINNED_TO} were taken for {:.1} s, because the program switches too often; \
                 they stand for the others",
                total_ns as f64 / 1e9
            ));
        }
        if self.outside_refused > 0 && self.outside_taken == 0 {
            notes.push(
                "stacks of waiting threads could not be read from outside: that takes the rights of ptrace \
                 (the same user, and kernel.yama.ptrace_scope at most 1)"
                    .to_owned(),
            );
        }
        notes.extend(self.misses_in_words());
        notes
    }

    /// Misses that change what answers mean, each in a sentence. The rest is in the ledger.
    fn misses_in_words(&self) -> Vec<String> {
        let counted = &self.pipeline.counted;
        let inexact = self.pipeline.tasks.inexact;
        let misses = [
            (
                inexact,
                format!(
                    "the times of {inexact} threads are not exact: records of their switches are missing"
                ),
            ),
            (counted.lost, format!("{} records were lost, because a ring buffer was full", counted.lost)),
            (counted.malformed, format!("{} records could not be understood", counted.malformed)),
            (
                counted.second_hand,
                format!(
                    "{} samples were filled by another profiler of the same program",
                    counted.second_hand
                ),
            ),
            (counted.throttles, format!("the kernel throttled the events {} times", counted.throttles)),
            (self.gone, format!("{} threads had ended before they could be attached to", self.gone)),
        ];
        misses.into_iter().filter(|(count, _)| *count > 0).map(|(_, words)| words).collect()
    }
}

/// The kernel counts every fault, and samples one in so many of each thread and CPU. Those after the last sample are in
/// none (`drift`), so the finish step scales what samples stand for to the count.
fn fault_ledger(counts: Option<&EventCounts>, counted: &Counted, a_sample: u64) -> SampleLedger {
    let sampled = counted.faults;
    let expected = counts.map_or(sampled, |row| row.value.saturating_sub(counted.early_faults));
    let captured = sampled.min(expected);
    let lost = counts.and_then(|row| row.lost).unwrap_or(0).saturating_mul(a_sample).min(expected - captured);
    SampleLedger { expected, captured, lost, drift: expected - captured - lost, ..SampleLedger::default() }
}

/// What cannot be seen, and the command that allows it.
pub(super) fn with_remedy(limitation: &Limitation) -> String {
    match limitation.hint() {
        Some(command) => format!("{limitation}; to allow it: {command}"),
        None => limitation.to_string(),
    }
}
