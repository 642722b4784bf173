//! A control group as the target: what is in it, and nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{
    Place, Running, Who, assert_on_cpu, has_ebpf, held_by, number, row, rows, taken_ns, wait_until,
};

/// A control group of version 2 of our own; removed with the test.
struct Group(PathBuf);

impl Group {
    /// `None`, and loudly, where none can be made.
    fn new(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mount = mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .find(|words| words[2] == "cgroup2");
        let folder =
            mount.map(|words| Path::new(words[1]).join(format!("uhr-truth-{name}-{}", std::process::id())));
        let made = folder.filter(|folder| fs::create_dir(folder).is_ok());
        if made.is_none() {
            eprintln!("SKIPPED: no cgroup of version 2 can be made here");
        }
        made.map(Self)
    }

    fn processes(&self) -> String {
        self.0.join("cgroup.procs").to_str().unwrap().to_owned()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_cgroup_is_recorded_and_nobody_else() {
    if !has_ebpf() {
        return;
    }
    let Some(group) = Group::new("target") else { return };
    let place = Place::new();
    let program = place.c("early.c", &[]);
    let outsider = place.path("outsider");
    fs::copy(&program, &outsider).unwrap();
    let path = group.0.to_str().unwrap();
    let uhr = place.start(Who::Us, "rec", &["--sampler", "ebpf", "--cgroup", path], &[]);
    // Links are what makes programs run; a moment later all of them do.
    wait_until("it records", || held_by(uhr.pid()).iter().any(|(kind, _)| *kind == "link"));
    std::thread::sleep(std::time::Duration::from_millis(700));
    let before_ns = taken_ns();
    let enter = format!("echo $$ > {} && exec {}", group.processes(), program.display());
    let member = Running::program(&place, "member", Command::new("sh").args(["-c", &enter]));
    let stranger = Running::program(&place, "stranger", &mut Command::new(&outsider));
    let (member, stranger) = (member.end(), stranger.end());
    uhr.signal("INT");
    let Some(recorded) = uhr.end().or_skip() else { return };
    let taken_ns = taken_ns() - before_ns;
    let by_process = recorded.ask("query --group-by process --limit 100");
    let own = |pid: f64| -> f64 {
        let of_pid = |row: &&serde_json::Value| row["key"]["process"]["pid"].as_f64() == Some(pid);
        rows(&by_process).iter().filter(of_pid).map(|row| number(row, "self")).sum()
    };
    let truth = member.truth();
    let burned: f64 =
        ["before_main", "in_main", "when_again"].iter().map(|function| number(&truth, function)).sum();
    assert_on_cpu("the member", own(number(&truth, "pid")), burned, taken_ns);
    assert_eq!(own(number(&stranger.truth(), "pid")), 0.0, "{by_process:#}");
    // Nor did anybody else wait. What the shell did between entering the group and becoming the member may be too short
    // to sample; strangers ran for much longer.
    let waits = recorded.ask("query --metric off-cpu --idle --group-by process --limit 100");
    let is_short = |row: &&serde_json::Value| {
        row["key"]["process"] == "[too short to sample]" && number(row, "self") < 5e6
    };
    for row in rows(&by_process).iter().chain(rows(&waits)).filter(|row| !is_short(row)) {
        assert_eq!(row["key"]["process"]["pid"].as_f64(), Some(number(&truth, "pid")), "{row:#}");
    }
    let by_function = recorded.ask("query --group-by function --limit 1000");
    let seen = number(row(&by_function, "function", "before_main"), "total");
    assert_on_cpu("before_main", seen, number(&truth, "before_main"), taken_ns);
}
