//! What all answers have in common: what was asked, what it rests on, what was left out, what comes next.

use uhr_query::Filters;
use uhr_query::answers::{Coverage, MetricTotal, RecordingSummary, Shown};

use super::clean::{clean, width};
use super::quantity;
use super::wrap::{hang, wrap};
use crate::terminal::Terminal;

/// The first lines: the recording, the metric and its total, the window, the sampler, the filters.
pub(crate) fn head(
    recording: &RecordingSummary,
    metric: Option<&MetricTotal>,
    filters: &Filters,
    terminal: Terminal,
) -> Vec<String> {
    let mut parts = vec![recording.path.clone()];
    if let Some(metric) = metric {
        let total = metric.total.map(|total| format!(" {}", quantity::value(total as f64, &metric.unit)));
        parts.push(format!("{}{}", metric.name, total.unwrap_or_default()));
        parts.push(plural(metric.samples, samples_of(&metric.name)));
    }
    parts.push(format!("{} from {}", quantity::time(recording.duration_s * 1e9), recording.start));
    parts.push(recording.sampler.clone());
    if recording.state != "complete" {
        parts.push(match recording.state.as_str() {
            "recording" => "still being recorded".to_owned(),
            "recovered" => "recovered: its recorder was killed".to_owned(),
            other => other.to_owned(),
        });
    }
    let mut lines: Vec<String> =
        wrap(&parts.join(" · "), terminal.width).iter().map(|line| terminal.bold(line)).collect();
    if let Some(filters) = filters_in_words(filters) {
        lines.extend(wrap(&filters, terminal.width));
    }
    lines
}

/// What the metric is made of.
fn samples_of(metric: &str) -> &'static str {
    match metric {
        "off-cpu" | "runqueue" => "wait",
        "page-faults" => "fault sample",
        _ => "sample",
    }
}

/// `1 sample`, `9,902 samples`.
pub(crate) fn plural(count: u64, noun: &str) -> String {
    let ending = match noun {
        _ if count == 1 => "",
        noun if noun.ends_with("ss") => "es",
        _ => "s",
    };
    format!("{} {noun}{ending}", quantity::count(count as f64))
}

/// The filters as one line, if there are any.
fn filters_in_words(filters: &Filters) -> Option<String> {
    let lists = [
        ("under", &filters.under),
        ("in function", &filters.function),
        ("in module", &filters.module),
        ("in mode", &filters.mode),
        ("of process", &filters.process),
        ("of thread", &filters.thread),
        ("waits of kind", &filters.wait),
        ("in system call", &filters.syscall),
        ("woken by", &filters.waker),
    ];
    let named =
        lists.iter().flat_map(|(words, values)| values.iter().map(move |value| format!("{words} {value}")));
    let from = filters.from.iter().map(|time| format!("from {time}"));
    let to = filters.to.iter().map(|time| format!("to {time}"));
    let all: Vec<String> = named.chain(from).chain(to).collect();
    (!all.is_empty()).then(|| format!("only: {}", all.join(", ")))
}

/// What the answer rests on, and the notes.
pub(crate) fn coverage(coverage: &Coverage, metric: &str, terminal: Terminal) -> Vec<String> {
    let words = coverage_in_words(coverage, samples_of(metric));
    let mut lines: Vec<String> = wrap(&words, terminal.width).iter().map(|line| terminal.dim(line)).collect();
    for note in &coverage.notes {
        lines.extend(hang("note: ", note, terminal.width));
    }
    lines
}

/// The same with what this user may not see in a line: how to see it stands in the overview.
pub(crate) fn coverage_in_short(whole: &Coverage, metric: &str, terminal: Terminal) -> Vec<String> {
    // Every note about the rights of an ordinary user names the setting that gives them.
    let (hidden, mut notes): (Vec<String>, Vec<String>) =
        whole.notes.iter().cloned().partition(|note| note.contains("kernel.perf_event_paranoid"));
    if !hidden.is_empty() {
        notes.insert(0, "kernel not visible: uhr overview says how to see it".to_owned());
    }
    coverage(&Coverage { notes, ..whole.clone() }, metric, terminal)
}

/// Empty where nothing was expected and nothing came, as of memory, which is polled.
fn coverage_in_words(coverage: &Coverage, noun: &str) -> String {
    let count = |value: u64| quantity::count(value as f64);
    let mut parts = Vec::new();
    if coverage.expected > 0 {
        let missing = [
            (coverage.lost, "lost"),
            (coverage.throttled, "throttled"),
            (coverage.not_visible, "in the kernel, not visible"),
        ];
        let missing: Vec<String> = missing
            .iter()
            .filter(|(value, _)| *value > 0)
            .map(|(value, word)| format!("{} {word}", count(*value)))
            .collect();
        let missing = if missing.is_empty() { String::new() } else { format!(" ({})", missing.join(", ")) };
        parts.push(format!(
            "rests on {} of {}{missing}",
            count(coverage.captured),
            plural(coverage.expected, &format!("expected {noun}"))
        ));
    } else if coverage.captured > 0 {
        parts.push(format!("rests on {}", plural(coverage.captured, noun)));
    }
    if coverage.captured > 0 {
        let reasons: Vec<String> =
            largest(coverage).map(|(reason, samples)| format!("{reason} {}", count(samples))).collect();
        let reasons =
            if reasons.is_empty() { String::new() } else { format!(" (cut: {})", reasons.join(", ")) };
        parts.push(format!("{} of stacks whole{reasons}", quantity::share(coverage.stacks_complete_share)));
        parts.push(format!("{} named", quantity::share(coverage.symbolized_share)));
    }
    parts.join("; ")
}

/// The three most frequent reasons for which stacks are cut.
fn largest(coverage: &Coverage) -> impl Iterator<Item = (&str, u64)> {
    let mut reasons: Vec<(&str, u64)> =
        coverage.truncated.iter().map(|(reason, samples)| (reason.as_str(), *samples)).collect();
    reasons.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    reasons.into_iter().filter(|(_, samples)| *samples > 0).take(3)
}

/// Which rows these are, if not all, and how to see the others. The command stands on one line, to be copied. The share
/// that the rows stand for is told where their self values are what they are about.
pub(crate) fn shown(shown: &Shown, with_share: bool) -> Vec<String> {
    if shown.rows == shown.of && shown.more.is_none() {
        return Vec::new();
    }
    let count = |value: u64| quantity::count(value as f64);
    let share = if with_share {
        format!(", {} of the total", quantity::share(shown.self_share))
    } else {
        String::new()
    };
    let line = format!("{} of {} rows{share}", count(shown.rows), count(shown.of));
    match &shown.more {
        Some(more) => vec![format!("{line}; more: {}", clean(more))],
        None => vec![line],
    }
}

/// What makes sense next, one command a line.
pub(crate) fn next(commands: &[String], terminal: Terminal) -> Vec<String> {
    let label = terminal.dim("next:");
    commands.iter().map(|command| format!("{label} {}", clean(command))).collect()
}

/// A share with its interval, as rows have it: the share, the interval, and why the interval says nothing.
pub(crate) type Share = (f64, [f64; 2], Option<&'static str>);

/// Parts of time are what intervals are made from, so they have none, and nobody misses it.
const WITHOUT_INTERVAL: &str = "by-time";

/// A share with its interval, or with `±?` where that says nothing.
pub(crate) fn interval((share, interval, note): Share) -> String {
    match note {
        Some(WITHOUT_INTERVAL) => quantity::share(share),
        Some(_) => format!("{} ±?", quantity::share(share)),
        None => quantity::share_with_interval(share, interval),
    }
}

/// The shares of a column, padded so that their percent signs stand below each other.
pub(crate) fn share_cells(shares: impl Iterator<Item = Share>) -> Vec<String> {
    let shares: Vec<Share> = shares.collect();
    // Where no row has an interval the note below says it once.
    let has_none = shares.iter().all(|(_, _, note)| note.is_some());
    let cell = |share: &Share| if has_none { quantity::share(share.0) } else { interval(*share) };
    let cells: Vec<String> = shares.iter().map(cell).collect();
    let behind = |cell: &str| cell.find('±').map_or(0, |at| 1 + width(&cell[at..]));
    let widest = cells.iter().map(|cell| behind(cell)).max().unwrap_or(0);
    cells.into_iter().map(|cell| format!("{cell}{}", " ".repeat(widest - behind(&cell)))).collect()
}

/// What `±?` means, where a row has it.
pub(crate) fn interval_notes(
    notes: impl Iterator<Item = Option<&'static str>>,
    terminal: Terminal,
) -> Vec<String> {
    let notes: Vec<Option<&str>> = notes.collect();
    let mark = if notes.iter().all(Option::is_some) { "no intervals" } else { "±?" };
    let notes: std::collections::BTreeSet<&str> = notes.into_iter().flatten().collect();
    let sentence = |note: &str| match note {
        WITHOUT_INTERVAL => String::new(),
        "few-samples" => format!("{mark}: too few samples to say how sure a share is; record longer"),
        "long-phases" => format!(
            "{mark}: too short a recording for how slowly this program changes; record longer for an interval"
        ),
        other => format!("{mark}: {other}"),
    };
    notes.into_iter().flat_map(|note| wrap(&sentence(note), terminal.width)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage_names_what_is_missing() {
        let mut value = Coverage {
            expected: 9_990,
            captured: 9_902,
            lost: 88,
            stacks_complete_share: 0.995,
            symbolized_share: 0.98,
            ..Coverage::default()
        };
        value.truncated.insert("no-unwind-info".to_owned(), 40);
        assert_eq!(
            coverage_in_words(&value, "sample"),
            "rests on 9,902 of 9,990 expected samples (88 lost); 99.5 % of stacks whole (cut: no-unwind-info 40); \
             98.0 % named"
        );
        assert_eq!(coverage_in_words(&Coverage::default(), "sample"), "");
    }

    #[test]
    fn percent_signs_stand_below_each_other() {
        let shares =
            [(0.4, [0.39, 0.41], None), (0.0, [0.0, 0.0], None), (0.1, [0.0, 1.0], Some("few-samples"))];
        assert_eq!(share_cells(shares.into_iter()), ["40.0 % ±1.0", "0 %     ", "10.0 % ±?  "]);
        assert_eq!(share_cells([(0.2, [0.0, 1.0], Some("by-time"))].into_iter()), ["20.0 %"]);
    }

    #[test]
    fn filters_are_repeated_in_words() {
        let filters = Filters {
            under: vec!["parse".to_owned()],
            thread: vec!["worker".to_owned()],
            from: Some("2s".to_owned()),
            ..Filters::default()
        };
        assert_eq!(
            filters_in_words(&filters).as_deref(),
            Some("only: under parse, of thread worker, from 2s")
        );
        assert_eq!(filters_in_words(&Filters::default()), None);
    }
}
