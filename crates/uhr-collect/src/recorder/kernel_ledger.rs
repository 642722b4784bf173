//! The ledger where uhr's programs in the kernel took the samples.

use std::collections::BTreeMap;
use std::time::Duration;

use uhr_ebpf::{Counters, ProgramCost, WALKS};
use uhr_model::StackEnding;
use uhr_recording::{CpuTicks, Ledger, SampleLedger, UhrCost};

use super::Recorder;
use super::ledger::with_remedy;
use crate::overhead::Kept;
use crate::perf::Limitation;
use crate::procfs;

/// What the programs in the kernel counted and could not do.
#[derive(Debug, Default)]
pub(super) struct KernelSide {
    pub(super) counters: Counters,
    /// How often programs were not run though they should have been.
    pub(super) left_out: Vec<(String, u64)>,
    /// What the programs cost while they were measured, and how long that was.
    pub(super) costs: Option<(Vec<ProgramCost>, Duration)>,
    /// Waits whose stack was read from outside too late, and those whose stack may not be read.
    pub(super) unread: (u64, u64),
    /// Programs that the kernel did not take, and why.
    pub(super) missing: Vec<(String, String)>,
    /// How a limit of what recording may cost was kept.
    pub(super) kept: Option<Kept>,
    /// Why system calls could no longer be counted.
    pub(super) calls_refused: Option<String>,
    /// Why they were not used at all, where they could have been.
    pub(super) refused: Option<String>,
}

impl KernelSide {
    /// What is done in another way than this kernel's programs would, were it newer.
    fn replaced(&self) -> Option<String> {
        let (mut told, mut because) = (Vec::new(), None);
        for (part, reason) in &self.missing {
            let Some(instead) = uhr_ebpf::instead(part) else { continue };
            told.push(format!("no {}, but {instead}", uhr_ebpf::purpose(part)));
            because = Some(reason);
        }
        let because = because?;
        Some(format!("there are {}: this kernel does not take what is for it ({because})", told.join("; ")))
    }

    /// System calls that the program which counts them was not run for.
    fn calls_left_out(&self) -> u64 {
        self.left_out.iter().find(|(program, _)| program == "on_exit").map_or(0, |(_, count)| *count)
    }
}

impl Recorder {
    pub(super) fn kernel_ledger(&self) -> Ledger {
        let (counted, counters, tasks) =
            (&self.pipeline.counted, &self.kernel_side.counters, &self.pipeline.tasks);
        let period_ns = 1_000_000_000 / u64::from(self.manifest.settings.frequency_hz.max(1));
        let (captured, lost) = (counted.cpu_samples, counters.samples_refused);
        let expected = (tasks.on_cpu_ns / period_ns).max(captured + lost);
        // Rates were lowered on purpose.
        let is_lowered = self.kernel_side.kept.is_some_and(|kept| kept.level > 0);
        let rest = expected - captured - lost;
        let (throttled, drift) = if is_lowered { (rest, 0) } else { (0, rest) };
        let endings = StackEnding::ALL.iter().zip(counted.cpu_stacks).filter(|(_, count)| *count > 0);
        Ledger {
            cpu: SampleLedger { expected, captured, lost, throttled, drift, ..SampleLedger::default() },
            faults: self.fault_ledger(),
            switches: tasks.switches,
            records_lost: counted.lost,
            out_of_order: self.merger.out_of_order(),
            malformed: counted.malformed,
            stacks: endings.map(|(ending, count)| (ending.name().to_owned(), count)).collect(),
            threads_inexact: counters.ends_refused + counters.no_storage,
            syscalls_lost: self.kernel_side.calls_left_out(),
            walked: self.walks(false),
            copied: self.walks(true),
            misses: self.kernel_misses(),
            cpus: counters
                .ticks
                .iter()
                .map(|&(cpu, expected, captured)| CpuTicks { cpu, expected, captured })
                .collect(),
            ..Ledger::default()
        }
    }

    /// What became of walks in the kernel: of those whose stack was copied instead, or of the others.
    fn walks(&self, copied: bool) -> BTreeMap<String, u64> {
        let walks = WALKS.iter().zip(self.kernel_side.counters.walks);
        let walks = walks.filter(|((is_copied, _), count)| *is_copied == copied && *count > 0);
        walks.map(|((_, words), count)| ((*words).to_owned(), count)).collect()
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
            ("sums of system calls that found the ring full", counters.calls_refused),
            (
                "system calls of threads with more kinds of them than are told apart",
                self.pipeline.calls.crowded,
            ),
            ("threads that are recorded late, for the kernel had no memory for them", counters.no_storage),
            ("wakers whose stack was not taken, for they were too many at once", counters.unseen_wakers),
            ("waits that ended while their stack was taken", counters.moved_on),
            ("waits whose stack was read from outside too late", self.kernel_side.unread.0),
            ("waits whose stack may not be read from outside", self.kernel_side.unread.1),
            ("looks that left some waiting threads for the next", counters.postponed),
            ("ends of waits whose stack did not come", self.pipeline.waits.without_stack),
            ("sums that changed while they were read", counters.torn),
            ("files and processes whose unwind rows found no room in the kernel", self.without_room()),
            ("waits that are in a sum of mixed kinds", self.pipeline.tasks.crowded_waits),
        ]
        .into_iter()
        .chain(self.pipeline.mapping_names.misses())
        .chain(self.pipeline.kernel_programs.misses())
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| (name.to_owned(), count))
        .chain(self.kernel_side.left_out.iter().map(|(program, count)| {
            (format!("runs of {program} that the kernel left out, for it ran on that CPU already"), *count)
        }))
        .collect()
    }

    fn without_room(&self) -> u64 {
        self.pipeline.kernel_tables.as_ref().map_or(0, |tables| tables.without_room)
    }

    /// What changes what answers mean, in sentences.
    pub(super) fn kernel_notes(&self) -> Vec<String> {
        let (counted, side) = (&self.pipeline.counted, &self.kernel_side);
        let counters = &side.counters;
        let programs = side.missing.iter().filter(|(program, _)| uhr_ebpf::instead(program).is_none()).map(
            |(program, reason)| {
                let purpose = uhr_ebpf::purpose(program);
                format!("{purpose} are not recorded: this kernel does not take the program for it ({reason})")
            },
        );
        let waits = counters.waits_refused + counters.times_refused;
        let misses = [
            (counters.samples_refused, "samples were lost, because the ring buffer was full"),
            (counters.faults_refused, "page-fault samples were lost, because the ring buffer was full"),
            (waits, "events of waits were lost, because the ring buffer was full: their stacks are missing"),
            (counters.ends_refused, "threads ended without their last sums: the ring buffer was full"),
            (
                counters.no_storage,
                "threads are recorded late or not at all: the kernel had no memory for their sums",
            ),
            (counted.lost, "records of mappings and names were lost, because a ring buffer was full"),
            (counted.malformed, "records could not be understood"),
        ];
        let misses = misses.iter().filter(|(count, _)| *count > 0);
        let calls_left_out = (side.calls_left_out() > 0).then(|| {
            format!(
                "{} system calls were not counted: the kernel left out the program that counts them, because it was at work \
                 on the same CPU already",
                side.calls_left_out()
            )
        });
        let calls = side.calls_refused.iter().map(|reason| {
            format!("system calls were not counted to the end, because the kernel did not take the program for it ({reason})")
        });
        let check = &self.pipeline.walk_check;
        let walks = (check.same + check.longer + check.different > 0).then(|| {
            format!(
                "of walks of the kernel {} were as those of user space, {} went on behind the copy, {} differed",
                check.same, check.longer, check.different
            )
        });
        let kept = side.kept.and_then(|kept| self.kept_to(kept));
        let limits = self.granted.limitations.iter().filter(|limitation| {
            matches!(limitation, Limitation::FrequencyLowered { .. } | Limitation::RingsShrunk { .. })
        });
        programs
            .chain(side.replaced())
            .chain(limits.map(with_remedy))
            .chain(calls)
            .chain(calls_left_out)
            .chain(kept)
            .chain(walks)
            .chain(check.told.clone())
            .chain(misses.map(|(count, words)| format!("{count} {words}")))
            .collect()
    }

    /// How a limit of what recording may cost was kept, if anything had to be done for it.
    fn kept_to(&self, kept: Kept) -> Option<String> {
        let limit = self.manifest.settings.max_overhead? * 100.0;
        if kept.level == 0 {
            return None;
        }
        let hertz = (self.manifest.settings.frequency_hz >> kept.level).max(1);
        let spent = kept.spent.as_secs_f64() / kept.watched.as_secs_f64().max(1e-9) * 100.0;
        let lowered = kept.lowered.as_secs_f64();
        let mut sentence = format!(
            "to keep to {limit} % of the CPUs, rates were lowered for {lowered:.0} s, down to {hertz} samples a second and \
             CPU, with as much fewer looks at waits and without counting system calls; recording cost {spent:.2} % on \
             average"
        );
        if let Some(share) = kept.still_too_much {
            sentence += &format!(
                ", and {:.2} % in the end: switches and new threads cost what they cost",
                share * 100.0
            );
        }
        Some(sentence)
    }

    /// What recording cost: uhr's own CPU time, that of ended threads included, its largest memory so far, and the time
    /// of its programs in the kernel.
    pub(super) fn cost(&self) -> UhrCost {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let peak_kb = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        let mut cost = UhrCost {
            cpu_ns: procfs::own_cpu_ns(),
            peak_memory_bytes: peak_kb.unwrap_or(0) * 1024,
            ..UhrCost::default()
        };
        if let Some((programs, measured)) = &self.kernel_side.costs {
            // The windows in which they were measured stand for the rest.
            let whole = self.manifest.duration_ns() as f64 / measured.as_nanos().max(1) as f64;
            let scaled = |count: u64| (count as f64 * whole.max(1.0)) as u64;
            cost.kernel_ns = Some(programs.iter().map(|program| scaled(program.ns)).sum());
            for program in programs.iter().filter(|program| program.runs > 0) {
                let of = uhr_recording::ProgramCost { runs: scaled(program.runs), ns: scaled(program.ns) };
                cost.programs.insert(program.name.clone(), of);
            }
        }
        cost
    }
}
