//! `uhr overview` for people: computing or waiting, on what, how big, and how far to trust it.

use uhr_query::answers::{
    Activity, Calls, Memory, OverviewAnswer, OverviewRow, ProcessActivity, Trust, Waits,
};

use super::query::key_text;
use super::table::{Column, Table};
use super::wrap::{hang, wrap};
use super::{answer, quantity};
use crate::terminal::Terminal;

/// The answer's lines.
pub(crate) fn lines(overview: &OverviewAnswer, terminal: Terminal) -> Vec<String> {
    let mut lines = answer::head(&overview.recording, None, &overview.request.filters, terminal);
    lines.push(String::new());
    lines.extend(activity(&overview.activity, &overview.processes, terminal));
    let cpu = &overview.cpu;
    let groups = [
        ("process", several(&cpu.processes)),
        ("thread", several(&cpu.threads)),
        ("mode", &cpu.modes),
        ("module", &cpu.modules),
        ("function", &cpu.functions),
        ("syscall", &cpu.syscalls),
        ("container", &cpu.containers),
        ("pod", &cpu.pods),
    ];
    lines.extend(section(
        &format!("CPU time: {}", quantity::time(cpu.total_ns as f64)),
        &groups,
        "ns",
        terminal,
    ));
    lines.extend(waits(&overview.waits, terminal));
    lines.extend(overview.syscalls.iter().flat_map(|calls| syscalls(calls, terminal)));
    lines.extend(memory(&overview.memory, terminal));
    let faults = &overview.faults;
    let groups = [("region", &faults.regions[..]), ("function", &faults.functions)];
    // One in so many is looked at: of few it is chance where they were.
    let samples = answer::plural(faults.samples, "sample");
    let heading = format!("Page faults: {}, from {samples}", quantity::count(faults.total as f64));
    lines.extend(section(&heading, &groups, "count", terminal));
    lines.extend(machine(overview, terminal));
    lines.extend(trust(&overview.trust, cpu.total_ns, terminal));
    lines.push(String::new());
    lines.extend(answer::next(&overview.next, terminal));
    lines
}

/// Waiting for work is in none of the lists but that of the kinds.
fn waits(waits: &Waits, terminal: Terminal) -> Vec<String> {
    let time = |ns: u64| quantity::time(ns as f64);
    let heading = format!("Waits: {} in {}", time(waits.total_ns), answer::plural(waits.count, "wait"));
    let kinds = ("kind", &waits.kinds[..]);
    let others =
        [("syscall", &waits.syscalls[..]), ("called in", &waits.functions), ("ended by", &waits.wakers)];
    if waits.idle_ns == 0 {
        let [syscalls, functions, wakers] = others;
        return section(&heading, &[kinds, syscalls, functions, wakers], "ns", terminal);
    }
    let busy = format!("Of the {} that were not idle", time(waits.total_ns.saturating_sub(waits.idle_ns)));
    let mut lines = section(&heading, &[kinds], "ns", terminal);
    lines.extend(section(&busy, &others, "ns", terminal));
    lines
}

fn syscalls(calls: &Calls, terminal: Terminal) -> Vec<String> {
    let about = if calls.counted == "windows" { "about " } else { "" };
    let heading = format!(
        "System calls: {about}{}, {} a second",
        quantity::count(calls.total as f64),
        quantity::count(calls.a_second.round())
    );
    section(&heading, &[("syscall", &calls.calls), ("failed", &calls.errors)], "count", terminal)
}

fn activity(activity: &Activity, processes: &[ProcessActivity], terminal: Terminal) -> Vec<String> {
    let mut lines = wrap(&activity.sentence, terminal.width);
    // The sentence begins with the verdict.
    if let Some(line) = lines.first_mut()
        && let Some((verdict, rest)) = line.split_once(':')
    {
        *line = format!("{}:{rest}", terminal.bold(verdict));
    }
    let mut table = Table::new([
        (Column::Number, "on CPU"),
        (Column::Number, "waiting"),
        (Column::Number, "run queue"),
        (Column::Number, "threads"),
        (Column::Name, ""),
    ]);
    let count = |value: u64| quantity::count(value as f64);
    table.row([
        quantity::share(activity.on_cpu_share),
        quantity::share(activity.off_cpu_share),
        quantity::share(activity.runqueue_share),
        count(activity.threads),
        format!(
            "all {}, {:.2} CPUs used",
            answer::plural(activity.processes, "process"),
            activity.parallelism
        ),
    ]);
    for process in processes.iter().filter(|_| processes.len() > 1) {
        table.row([
            quantity::share(process.on_cpu_share),
            quantity::share(process.off_cpu_share),
            quantity::share(process.runqueue_share),
            count(process.threads),
            key_text(&process.key),
        ]);
    }
    lines.extend(table.lines(terminal, 2));
    lines
}

/// Of a single process or thread there is nothing to compare.
fn several(rows: &[OverviewRow]) -> &[OverviewRow] {
    if rows.len() > 1 { rows } else { &[] }
}

/// A heading and the rows of several groupings, each named once.
fn section(heading: &str, groups: &[(&str, &[OverviewRow])], unit: &str, terminal: Terminal) -> Vec<String> {
    let mut table =
        Table::new([(Column::Name, ""), (Column::Number, ""), (Column::Number, ""), (Column::Name, "")]);
    for (name, rows) in groups {
        for (at, row) in rows.iter().enumerate() {
            let name = if at == 0 { *name } else { "" };
            table.row([
                name.to_owned(),
                quantity::share(row.self_share),
                quantity::value(row.own as f64, unit),
                key_text(&row.key),
            ]);
        }
    }
    if table.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), terminal.bold(heading)];
    lines.extend(table.lines(terminal, 2));
    lines
}

fn memory(memory: &[Memory], terminal: Terminal) -> Vec<String> {
    if memory.is_empty() {
        return Vec::new();
    }
    let numbers = ["first", "peak", "last", "growth"].map(|heading| (Column::Extra, heading));
    let mut table = Table::new(numbers.into_iter().chain([(Column::Name, "process")]));
    for row in memory {
        let bytes = |value: u64| quantity::bytes(value as f64);
        let sign = if row.growth > 0 { "+" } else { "" };
        let growth = format!("{sign}{}", quantity::bytes(row.growth as f64));
        table.row([bytes(row.first), bytes(row.peak), bytes(row.last), growth, key_text(&row.key)]);
    }
    let mut lines = vec![String::new(), terminal.bold("Resident memory")];
    lines.extend(table.lines(terminal, 2));
    lines
}

fn machine(overview: &OverviewAnswer, terminal: Terminal) -> Vec<String> {
    let machine = &overview.machine;
    let cpus = answer::plural(machine.cpus, "CPU");
    let size = format!("{cpus}, {} of memory", quantity::bytes(machine.memory_bytes as f64));
    let mut lines = vec![String::new()];
    let sentence = match machine.starved {
        Some(true) => format!("The machine was short of something ({size}):"),
        Some(false) => format!("The machine ({size}) was not short of anything that the kernel tells."),
        None => format!("The machine ({size}): too short a time to say whether it was short of anything."),
    };
    lines.extend(wrap(&sentence, terminal.width));
    if machine.starved == Some(true) {
        lines.iter_mut().skip(1).for_each(|line| *line = terminal.warning(line));
    }
    for reason in &machine.reasons {
        lines.extend(hang("  - ", reason, terminal.width));
    }
    lines
}

/// What uhr's programs took in the kernel, the dearest first.
fn in_kernel(trust: &Trust) -> String {
    let Some(share) = trust.uhr_kernel_share else { return String::new() };
    let mut programs: Vec<(&String, &f64)> = trust.uhr_programs.iter().collect();
    programs.sort_by(|a, b| b.1.total_cmp(a.1).then(a.0.cmp(b.0)));
    let each: Vec<String> =
        programs.iter().take(3).map(|(name, share)| format!("{name} {}", quantity::share(**share))).collect();
    let each = if each.is_empty() { String::new() } else { format!(" ({})", each.join(", ")) };
    format!(", its programs in the kernel {}{each},", quantity::share(share))
}

fn trust(trust: &Trust, cpu_ns: u64, terminal: Terminal) -> Vec<String> {
    let kernel = if trust.kernel_visible { "kernel seen" } else { "kernel not seen" };
    let sentence = format!(
        "user stacks by {}, {kernel}, {} Hz; {} lost; uhr itself took {} of a CPU{} and {}",
        trust.unwind,
        trust.frequency_hz,
        answer::plural(trust.records_lost, "record"),
        quantity::share(trust.uhr_cpu_share),
        in_kernel(trust),
        quantity::bytes(trust.uhr_peak_memory_bytes as f64),
    );
    let mut lines = vec![String::new(), terminal.bold("How far to trust it")];
    let narrower = Terminal { width: terminal.width.saturating_sub(2), ..terminal };
    if trust.coverage.captured == 0 {
        let sentence = match cpu_ns {
            0 => "there are no CPU samples: no time on a CPU was seen".to_owned(),
            ns => format!(
                "there are no CPU samples: {} on a CPU, known without a stack",
                quantity::time(ns as f64)
            ),
        };
        lines.extend(wrap(&sentence, narrower.width).iter().map(|line| format!("  {line}")));
    }
    lines.extend(answer::coverage(&trust.coverage, "cpu", narrower).iter().map(|line| format!("  {line}")));
    lines.extend(wrap(&sentence, narrower.width).iter().map(|line| format!("  {}", terminal.dim(line))));
    lines
}
