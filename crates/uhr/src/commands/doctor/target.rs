//! One process: whether this user can record it, which runtimes it has, and what the files of its code lack.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;

use super::facts::{Facts, effective_uid, field, text};
use super::modules::{Module, Modules};
use super::{Check, Status, advice};
use crate::failure::{Exit, Failure};

/// What was found about the process.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Target {
    /// Its pid.
    pub(super) pid: u32,
    /// Its name.
    pub(super) name: String,
    /// Its program.
    pub(super) executable: Option<String>,
    /// Threads that it has now.
    pub(super) threads: usize,
    /// Whether it can be recorded, and what of it.
    pub(super) checks: Vec<Check>,
    /// Language runtimes in it.
    pub(super) runtimes: Vec<Runtime>,
    /// The files that its code is in.
    pub(super) modules: Vec<Module>,
    /// Files past the most that are looked at.
    pub(super) modules_left_out: usize,
}

/// A language runtime in the process.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Runtime {
    /// Its name.
    pub(super) name: &'static str,
    /// The file it was recognised by.
    pub(super) module: String,
    /// Whether a perf map gives names to its generated code already.
    pub(super) perf_map: bool,
    /// What helps, where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
}

impl Target {
    /// The commands that make sense next.
    pub(super) fn next(&self) -> Vec<String> {
        let can = self.checks.first().is_some_and(|check| check.status != Status::Missing);
        if can { vec![format!("uhr record --pid {} --duration 10s", self.pid)] } else { Vec::new() }
    }
}

/// Looks at process `pid`.
pub(super) fn examine(pid: u32, facts: &Facts) -> Result<Target> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let status = text(&format!("/proc/{pid}/status"));
    let is_thread = field(&status, "Tgid:").is_some_and(|group| group != pid.to_string());
    if status.is_empty() || is_thread {
        return Err(no_process(pid, field(&status, "Tgid:").filter(|_| is_thread)).into());
    }
    let maps = fs::read(process.join("maps"));
    let modules = Modules::read(pid, maps.as_deref().unwrap_or_default());
    let inner_pid = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .and_then(|pids| pids.split_whitespace().next_back())
        .map_or_else(|| pid.to_string(), str::to_owned);
    let has_perf_map = process.join(format!("root/tmp/perf-{inner_pid}.map")).exists();
    Ok(Target {
        pid,
        name: text(&format!("/proc/{pid}/comm")).trim_end_matches('\n').to_owned(),
        executable: fs::read_link(process.join("exe")).ok().map(|path| path.to_string_lossy().into_owned()),
        threads: fs::read_dir(process.join("task")).map_or(0, Iterator::count),
        checks: checks(&process, &status, maps.is_ok(), &modules, facts),
        runtimes: runtimes(&modules, has_perf_map),
        modules_left_out: modules.left_out,
        modules: modules.files,
    })
}

/// Where it cannot be recorded at all, the rest is no question.
fn checks(process: &Path, status: &str, may_read: bool, modules: &Modules, facts: &Facts) -> Vec<Check> {
    let events = events(status, may_read, facts);
    if events.status == Status::Missing {
        return vec![events];
    }
    vec![events, outside(process, facts), unwinding(modules)]
}

fn no_process(pid: u32, group: Option<&str>) -> Failure {
    match group {
        Some(group) => {
            Failure::new(Exit::Failed, "no-such-process", format!("{pid} is a thread of process {group}"))
                .next(format!("uhr doctor --pid {group}"))
        }
        None => Failure::new(Exit::Failed, "no-such-process", format!("there is no process {pid}"))
            .next("uhr doctor"),
    }
}

/// `perf_event_open` asks for the same right as `/proc/PID/maps` does (`PTRACE_MODE_READ`), so reading that is the
/// trial that disturbs nobody.
fn events(status: &str, may_read: bool, facts: &Facts) -> Check {
    const NAME: &str = "recording";
    if let Err(refusal) = &facts.access.own_processes {
        return Check::missing(NAME, refusal.to_string());
    }
    if field(status, "State:") == Some("Z") {
        return Check::missing(NAME, "the process has ended, and waits for its parent to take note");
    }
    if field(status, "Kthread:") == Some("1") {
        return Check::limited(NAME, "it is a thread of the kernel: seen with -a only")
            .fix("sudo uhr record -a");
    }
    if may_read {
        return Check::ok(NAME, "this user can record it");
    }
    let owner =
        effective_uid(status).map(|uid| format!("user {uid}")).unwrap_or_else(|| "another user".to_owned());
    Check::missing(
        NAME,
        format!("it belongs to {owner}, or runs with other privileges than it was started with"),
    )
    .fix("run uhr with sudo")
}

/// Opening `/proc/PID/mem` asks for the right to attach (`PTRACE_MODE_ATTACH`), which reading a blocked thread's stack
/// needs too. Nothing is read.
fn outside(process: &Path, facts: &Facts) -> Check {
    const NAME: &str = "wait-stacks";
    if facts.access.kernel {
        return Check::ok(NAME, "every wait comes with its stack");
    }
    match File::open(process.join("mem")) {
        Ok(_) => Check::ok(NAME, "stacks of waits longer than a few ms are read from outside"),
        Err(_) => {
            Check::limited(NAME, "its waits are timed, without stacks: this user may not read its memory")
                .fix("sudo sysctl kernel.yama.ptrace_scope=0")
        }
    }
}

fn unwinding(modules: &Modules) -> Check {
    const NAME: &str = "unwinding";
    let blind: Vec<&str> =
        modules.files.iter().filter(|module| module.is_blind()).map(|module| module.path.as_str()).collect();
    if modules.files.is_empty() {
        return Check::limited(NAME, "the files of its code cannot be seen");
    }
    if !blind.is_empty() {
        return Check::limited(
            NAME,
            format!("stacks may break in code without unwind tables: {}", blind.join(", ")),
        )
        .fix("build without -fno-asynchronous-unwind-tables, or with -fno-omit-frame-pointer");
    }
    if modules.files.iter().all(Module::keeps_frame_pointers) {
        Check::ok(NAME, "stacks are whole by frame pointers (--unwind fp)")
    } else {
        Check::ok(NAME, "stacks are whole by unwind tables (--unwind dwarf, which auto chooses)")
    }
}

/// File names that runtimes are known by, and what the advice is called. A renamed file is not found: this is advice,
/// not what a recording rests on.
const RUNTIMES: &[(&str, &str)] = &[
    ("libpython3", "Python"),
    ("python3", "Python"),
    ("node", "Node.js"),
    ("libnode", "Node.js"),
    ("libjvm", "Java"),
    ("libruby", "Ruby"),
    ("ruby", "Ruby"),
    ("libphp", "PHP"),
    ("php", "PHP"),
    ("libperl", "Perl"),
    ("perl", "Perl"),
    ("libluajit", "Lua"),
    ("luajit", "Lua"),
    ("liblua", "Lua"),
    ("lua", "Lua"),
    ("libcoreclr", ".NET"),
];

fn runtimes(modules: &Modules, has_perf_map: bool) -> Vec<Runtime> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for module in &modules.files {
        let Some(name) = runtime_of(&module.path).or(module.is_go.then_some("Go")) else { continue };
        if !seen.insert(name) {
            continue;
        }
        let generates_code = !matches!(name, "Go" | "Perl");
        let advice = advice::for_runtime(name).and_then(|language| language.flags()).map(str::to_owned);
        found.push(Runtime {
            name,
            module: module.path.clone(),
            perf_map: has_perf_map && generates_code,
            advice: advice.filter(|_| !has_perf_map),
        });
    }
    found
}

/// `python3.11` and `libpython3.11.so.1.0` count, `nodeinfo` does not: behind the name comes a number, a dot, or nothing.
fn runtime_of(path: &str) -> Option<&'static str> {
    let file = Path::new(path.trim_end_matches(" (deleted)")).file_name()?.to_str()?;
    let fits = |prefix: &str| {
        file.strip_prefix(prefix)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
    };
    RUNTIMES.iter().find(|(prefix, _)| fits(prefix)).map(|row| row.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_by_file_name() {
        assert_eq!(runtime_of("/usr/bin/python3.11"), Some("Python"));
        assert_eq!(runtime_of("/usr/lib/libpython3.12.so.1.0"), Some("Python"));
        assert_eq!(runtime_of("/usr/bin/node"), Some("Node.js"));
        assert_eq!(runtime_of("/usr/bin/nodeinfo"), None);
        assert_eq!(runtime_of("/usr/lib/jvm/lib/server/libjvm.so"), Some("Java"));
        assert_eq!(runtime_of("/usr/bin/php8.2"), Some("PHP"));
        assert_eq!(runtime_of("/usr/bin/python3.11 (deleted)"), Some("Python"));
        assert_eq!(runtime_of("[vdso]"), None);
    }
}
