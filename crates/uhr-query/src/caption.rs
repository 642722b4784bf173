//! What stands above a picture: what it shows, and what was recorded and how.

use uhr_model::Metric;

use crate::command::Command;
use crate::names::shown;
use crate::profile::Profile;
use crate::question::Question;
use crate::window::seconds;

/// The heading.
pub(crate) fn title(metric: Metric, commands: &[&str]) -> String {
    let what = match metric {
        Metric::Cpu => "CPU time",
        Metric::OffCpu => "Time off CPU",
        Metric::Runqueue => "Time waiting for a CPU",
        Metric::Wall => "Time on and off CPU",
        Metric::PageFaults => "Page faults",
        Metric::Resident => "Resident memory",
        Metric::Syscalls => "System calls",
        Metric::SyscallTime => "Time in system calls",
    };
    match commands {
        [] => what.to_owned(),
        [one] => format!("{what} of {}", shown(one, false)),
        [first, rest @ ..] => format!("{what} of {} and {} more", shown(first, false), rest.len()),
    }
}

/// The line below it.
pub(crate) fn subtitle(profile: &Profile, question: &Question) -> String {
    let settings = &profile.manifest.settings;
    let summary = profile.summary();
    let mut parts = vec![
        format!("{} long", seconds(profile.end_ns - profile.start_ns())),
        format!("began at {}", summary.start),
        format!("sampler {}, {} Hz", settings.sampler, settings.frequency_hz),
    ];
    if let Some(command) = &settings.command {
        parts.insert(0, format!("command {}", shown(command, false)));
    }
    if !question.filters.is_empty() {
        let filters = question.filters.repeat_in(Command::empty()).text();
        parts.push(format!("only {}", shown(filters.trim(), false)));
    }
    parts.join(", ")
}
