//! `uhr doctor` for people.

use super::modules::{Module, Symbols};
use super::target::{Runtime, Target};
use super::{Check, DoctorAnswer, Status, Verdict};
use crate::terminal::Terminal;
use crate::text::clean::clean;
use crate::text::table::{Column, Table};
use crate::text::wrap::{hang, wrap};

/// The answer's lines.
pub(super) fn lines(answer: &DoctorAnswer, terminal: Terminal) -> Vec<String> {
    let host = &answer.host;
    let cpus = if host.cpus == 1 { "1 CPU".to_owned() } else { format!("{} CPUs", host.cpus) };
    let user = if host.root { "root" } else { "an ordinary user" };
    let container =
        host.container.as_ref().map(|kind| format!(" · in a container ({kind})")).unwrap_or_default();
    let head = format!("Linux {} · {} · {cpus} · {user}{container}", host.kernel, host.architecture);
    let mut lines = vec![terminal.bold(&clean(&head)), String::new()];
    let sentence = wrap(&answer.sentence, terminal.width);
    lines.extend(sentence.iter().map(|line| match answer.verdict {
        Verdict::All => terminal.good(line),
        Verdict::Part | Verdict::Nothing => terminal.warning(line),
    }));
    lines.push(String::new());
    lines.extend(checks(&answer.checks, terminal));
    if let Some(target) = &answer.target {
        lines.push(String::new());
        lines.extend(target_lines(target, terminal));
    }
    lines.extend([String::new(), terminal.bold("Whole stacks, names and lines need")]);
    for language in &answer.languages {
        lines.extend(hang(
            &format!("  {:8}  ", language.name()),
            language.flags().unwrap_or("nothing"),
            terminal.width,
        ));
        lines.extend(
            hang(&" ".repeat(12), language.advice(), terminal.width).iter().map(|line| terminal.dim(line)),
        );
    }
    if !answer.next.is_empty() {
        lines.push(String::new());
    }
    lines.extend(answer.next.iter().map(|command| format!("next: {}", clean(command))));
    lines
}

fn checks(checks: &[Check], terminal: Terminal) -> Vec<String> {
    let name_width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for check in checks {
        let (word, shown) = match check.status {
            Status::Ok => ("ok", terminal.good("ok")),
            Status::Limited => ("limited", terminal.warning("limited")),
            Status::Missing => ("missing", terminal.warning("missing")),
        };
        let first = format!("  {word:7}  {:name_width$}  ", check.name);
        let mut wrapped = hang(&first, &check.finding, terminal.width);
        if let Some(line) = wrapped.first_mut() {
            // Coloured after the layout, which counts columns.
            *line = line.replacen(word, &shown, 1);
        }
        lines.extend(wrapped);
        if let Some(fix) = &check.fix {
            lines.push(format!("{}fix: {}", " ".repeat(first.len()), clean(fix)));
        }
    }
    lines
}

fn target_lines(target: &Target, terminal: Terminal) -> Vec<String> {
    let threads =
        if target.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", target.threads) };
    let head = format!("Process {} · {} · {threads}", target.pid, target.name);
    let mut lines = vec![terminal.bold(&clean(&head))];
    lines.extend(checks(&target.checks, terminal));
    for runtime in &target.runtimes {
        lines.extend(hang("  runtime  ", &runtime_sentence(runtime), terminal.width));
    }
    if target.modules.is_empty() {
        return lines;
    }
    let mut table = Table::new([
        (Column::Name, "names"),
        (Column::Name, "unwind"),
        (Column::Name, "frame pointers"),
        (Column::Path, "file"),
    ]);
    for module in &target.modules {
        table.row([
            names(module).to_owned(),
            unwind(module).to_owned(),
            frame_pointers(module),
            module.path.clone(),
        ]);
    }
    lines.push(String::new());
    lines.extend(table.lines(terminal, 2));
    if target.modules_left_out > 0 {
        lines.push(format!("  {} more files were not looked at", target.modules_left_out));
    }
    lines
}

fn runtime_sentence(runtime: &Runtime) -> String {
    match (&runtime.advice, runtime.perf_map) {
        (_, true) => format!("{}: a perf map gives names to its generated code", runtime.name),
        (Some(advice), false) => format!("{}: for the names of its functions, {advice}", runtime.name),
        (None, false) if runtime.name == "Go" => "Go: nothing is needed".to_owned(),
        (None, false) => {
            format!("{}: its native code is seen; its functions have no names yet", runtime.name)
        }
    }
}

fn names(module: &Module) -> &'static str {
    match module.symbols {
        Symbols::Lines => "functions, lines",
        Symbols::DebugFile => "functions, lines (debug file)",
        Symbols::Functions => "functions",
        Symbols::Exported => "stripped: exported only",
        Symbols::Unreadable => "unreadable",
    }
}

fn unwind(module: &Module) -> &'static str {
    match module.unwind_tables {
        Some(true) => "yes",
        Some(false) => "no",
        None => "?",
    }
}

fn frame_pointers(module: &Module) -> String {
    match module.frame_pointer_share {
        Some(share) if share >= 1.0 => "yes".to_owned(),
        Some(share) if share < 0.005 => "no".to_owned(),
        Some(share) => format!("{:.0} %", share * 100.0),
        None => "?".to_owned(),
    }
}
