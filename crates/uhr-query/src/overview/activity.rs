//! Computing or waiting: how threads spent their lifetimes.

use uhr_model::Dimension;

use crate::answers::{Activity, Key, ProcessActivity, Verdict, rounded, share};
use crate::cells::Cells;
use crate::profile::Profile;
use crate::select::Selection;

/// Times of one process's threads, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    on_cpu: u64,
    off_cpu: u64,
    runqueue: u64,
    lifetime: u64,
    threads: u64,
}

/// Times of every process, within a window.
#[derive(Debug)]
pub(super) struct Times {
    by_process: Vec<Spent>,
    length_ns: u64,
}

impl Times {
    /// Sums up the cells of time on CPU, off CPU and in the run queue. Time without a stack belongs to its thread here.
    pub(super) fn new(
        profile: &Profile,
        selection: &Selection,
        [cpu, off_cpu, runqueue]: [&Cells; 3],
    ) -> Self {
        let owners = &profile.owners;
        let mut by_process = vec![Spent::default(); owners.processes.len()];
        let mut add = |cells: &Cells, field: fn(&mut Spent) -> &mut u64| {
            for cell in (0..cells.len()).filter(|cell| selection.has_thread(cells.thread[*cell])) {
                let process = owners.threads[cells.thread[cell] as usize].process as usize;
                let sum = field(&mut by_process[process]);
                *sum = sum.saturating_add(cells.weight[cell]);
            }
        };
        add(cpu, |spent| &mut spent.on_cpu);
        add(off_cpu, |spent| &mut spent.off_cpu);
        add(runqueue, |spent| &mut spent.runqueue);
        let range = selection.range;
        for (at, thread) in
            owners.threads.iter().enumerate().filter(|(at, _)| selection.has_thread(*at as u32))
        {
            let start = thread.start_ns.max(range.start_ns);
            let end = thread.end_ns.unwrap_or(range.end_ns).min(range.end_ns);
            // A thread as short as its first sample lived nonetheless.
            if start <= end
                && thread.start_ns < range.end_ns
                && thread.end_ns.is_none_or(|end| end >= range.start_ns)
            {
                let spent = &mut by_process[owners.threads[at].process as usize];
                spent.lifetime = spent.lifetime.saturating_add(end - start);
                spent.threads += 1;
            }
        }
        Self { by_process, length_ns: range.length_ns() }
    }

    /// All threads together, of whose waiting so much was for work.
    pub(super) fn activity(&self, profile: &Profile, idle_ns: u64) -> Activity {
        let mut all = Spent::default();
        for spent in &self.by_process {
            all.on_cpu = all.on_cpu.saturating_add(spent.on_cpu);
            all.off_cpu = all.off_cpu.saturating_add(spent.off_cpu);
            all.runqueue = all.runqueue.saturating_add(spent.runqueue);
            all.lifetime = all.lifetime.saturating_add(spent.lifetime);
            all.threads += spent.threads;
        }
        let parallelism = all.on_cpu as f64 / self.length_ns.max(1) as f64;
        let verdict = verdict(profile, &all, parallelism, self.length_ns);
        Activity {
            verdict,
            sentence: sentence(verdict, &all, idle_ns, parallelism),
            on_cpu_ns: all.on_cpu,
            off_cpu_ns: all.off_cpu,
            runqueue_ns: all.runqueue,
            lifetime_ns: all.lifetime,
            on_cpu_share: share(all.on_cpu, all.lifetime),
            off_cpu_share: share(all.off_cpu, all.lifetime),
            runqueue_share: share(all.runqueue, all.lifetime),
            parallelism: rounded(parallelism),
            threads: all.threads,
            processes: self.by_process.iter().filter(|spent| spent.threads > 0).count() as u64,
        }
    }

    /// The processes that computed most; those that only wait come last, by how long. Small ones are left out, but
    /// never all.
    pub(super) fn processes(
        &self,
        profile: &Profile,
        rows: usize,
        whole_names: bool,
    ) -> Vec<ProcessActivity> {
        let mut order: Vec<usize> =
            (0..self.by_process.len()).filter(|at| self.by_process[*at].threads > 0).collect();
        order.sort_by_key(|&at| {
            let spent = &self.by_process[at];
            (std::cmp::Reverse((spent.on_cpu, spent.off_cpu)), at)
        });
        let row = |at: usize| {
            let spent = &self.by_process[at];
            ProcessActivity {
                key: Key(vec![(Dimension::Process, profile.owners.process_key(at, whole_names))]),
                on_cpu_ns: spent.on_cpu,
                on_cpu_share: share(spent.on_cpu, spent.lifetime),
                off_cpu_share: share(spent.off_cpu, spent.lifetime),
                runqueue_share: share(spent.runqueue, spent.lifetime),
                threads: spent.threads,
            }
        };
        let largest = order.first().map_or(0, |at| self.by_process[*at].on_cpu);
        let least = (largest as f64 * super::LEAST_SHARE) as u64;
        order.into_iter().take(rows).filter(|at| self.by_process[*at].on_cpu >= least).map(row).collect()
    }
}

/// Of the time that threads could run, the part they waited for a CPU that counts as starved.
const STARVED: f64 = 0.25;
/// CPUs in use from which on a program computes, however many of its threads wait; and below which it does not.
const COMPUTING: f64 = 0.8;
const IDLE: f64 = 0.2;

/// Of the waiting, the part that was for work and is worth a word.
const IDLE_SAID: f64 = 0.01;

fn verdict(profile: &Profile, all: &Spent, parallelism: f64, window_ns: u64) -> Verdict {
    let runnable = all.on_cpu.saturating_add(all.runqueue);
    let throttled = profile.manifest.load.cgroup_throttled_ns.unwrap_or(0);
    let length = profile.end_ns - profile.start_ns();
    if all.lifetime == 0 && runnable == 0 {
        Verdict::Nothing
    } else if (share(all.runqueue, runnable) >= STARVED || share(throttled, length) >= STARVED)
        && share(runnable, all.lifetime) >= 0.05
        && window_ns >= super::machine::SHORTEST_NS
    {
        Verdict::Starved
    } else if parallelism >= COMPUTING || share(all.on_cpu, all.lifetime) >= 0.5 {
        Verdict::Computing
    } else if parallelism <= IDLE && share(all.off_cpu, all.lifetime) >= 0.5 {
        Verdict::Waiting
    } else {
        Verdict::Mixed
    }
}

fn sentence(verdict: Verdict, all: &Spent, idle_ns: u64, parallelism: f64) -> String {
    let percent = |part: u64| format!("{:.0} %", share(part, all.lifetime) * 100.0);
    let (on, ready) = (percent(all.on_cpu), percent(all.runqueue));
    let idle = match share(idle_ns, all.off_cpu) {
        share if share >= IDLE_SAID => format!(" ({:.0} % of that idle)", share * 100.0),
        _ => String::new(),
    };
    let off = percent(all.off_cpu);
    let cpus = format!("{parallelism:.2} CPUs on average");
    match verdict {
        Verdict::Computing => format!("It computes: {cpus}; its threads ran for {on} of their lifetime."),
        Verdict::Waiting => {
            format!("It waits: its threads were blocked for {off} of their lifetime{idle}, and used {cpus}.")
        }
        Verdict::Starved => {
            format!(
                "It wants to run but cannot: its threads waited for a CPU for {ready} of their lifetime; {cpus}."
            )
        }
        Verdict::Mixed => {
            format!(
                "It computes and waits: {cpus}; its threads ran for {on} and were blocked for {off}{idle}."
            )
        }
        Verdict::Nothing => "Nothing was recorded.".to_owned(),
    }
}
