//! The ledger where uhr's programs in the kernel took the samples.

use std::collections::BTreeMap;

use uhr_ebpf::{Counters, ProgramCost};
use uhr_model::StackEnding;
use uhr_recording::{CpuTicks, Ledger, SampleLedger};

use super::Recorder;

/// What the programs in the kernel counted and could not do.
#[derive(Debug, Default)]
pub(super) struct KernelSide {
    pub(super) counters: Counters,
    pub(super) costs: Vec<ProgramCost>,
    /// Programs that the kernel did not take, and why.
    pub(super) missing: Vec<(String, String)>,
    /// Why they were not used at all, where they could have been.
    pub(super) refused: Option<String>,
}

impl Recorder {
    pub(super) fn kernel_ledger(&self) -> Ledger {
        let (counted, counters, tasks) =
            (&self.pipeline.counted, &self.kernel_side.counters, &self.pipeline.tasks);
        let period_ns = 1_000_000_000 / u64::from(self.manifest.settings.frequency_hz.max(1));
        let (captured, lost) = (counted.cpu_samples, counters.samples_refused);
        let expected = (tasks.on_cpu_ns / period_ns).max(captured + lost);
        let endings = StackEnding::ALL.iter().zip(counted.cpu_stacks).filter(|(_, count)| *count > 0);
        Ledger {
            cpu: SampleLedger {
                expected,
                captured,
                lost,
                drift: expected - captured - lost,
                ..SampleLedger::default()
            },
            faults: self.fault_ledger(),
            switches: tasks.switches,
            records_lost: counted.lost,
            out_of_order: self.merger.out_of_order(),
            malformed: counted.malformed,
            stacks: endings.map(|(ending, count)| (ending.name().to_owned(), count)).collect(),
            threads_inexact: counters.ends_refused + counters.no_storage,
            misses: self.kernel_misses(),
            cpus: counters
                .ticks
                .iter()
                .map(|&(cpu, expected, captured)| CpuTicks { cpu, expected, captured })
                .collect(),
            ..Ledger::default()
        }
    }

    fn fault_ledger(&self) -> SampleLedger {
        let sampled = self.pipeline.counted.faults;
        let expected = self.pipeline.tasks.page_faults.max(sampled);
        let lost = self.kernel_side.counters.faults_refused.saturating_mul(self.pipeline.fault_period);
        let lost = lost.min(expected - sampled);
        SampleLedger {
            expected,
            captured: sampled,
            lost,
            drift: expected - sampled - lost,
            ..SampleLedger::default()
        }
    }

    fn kernel_misses(&self) -> BTreeMap<String, u64> {
        let (counted, counters) = (&self.pipeline.counted, &self.kernel_side.counters);
        [
            ("events without a task", counted.without_task),
            ("events of threads that had ended", counted.after_exit),
            ("records of an unknown type", counted.unknown),
            ("corrupt ring bytes", self.corrupt_bytes),
            ("times that records were handed on before their turn", self.merger.forced()),
            ("stacks and ends of waits that found the ring full", counters.waits_refused),
            ("sums of threads that found the ring full", counters.times_refused),
            ("threads that the kernel had no memory for", counters.no_storage),
            ("waits that ended while their stack was taken", counters.moved_on),
            ("waits that were left for the next look", counters.postponed),
            ("waits that are in a sum of mixed kinds", self.pipeline.tasks.crowded_waits),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| (name.to_owned(), count))
        .collect()
    }
}
