//! The command under other kernels than this host's: Debian's, from the oldest that uhr is for to the newest, each booted in
//! an emulated machine. The programs of `tests/truth` measure themselves there, and what `uhr` answers is held against
//! what they say. Emulated clocks tick when they can: shares and lengths are true, numbers of samples are not.
//! `./check --all` fetches the kernels and says in `UHR_KERNELS` where they are.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stderr, reason = "what this host cannot do is skipped loudly")]

mod machine;

use machine::{Machine, Said};
use serde_json::Value;

/// Each sampler, and how it gets user stacks.
const WAYS: &[(&str, &str)] = &[("perf", "dwarf"), ("ebpf", "fp"), ("ebpf", "dwarf")];

/// Before 5.18 other programs are taken: they walk no stacks, and those of waits are read from outside.
const OF_OLDER_PROGRAMS: &[&str] = &["5.10"];

/// A thousand children that have some two hundred pids between them.
const REUSED_PIDS: &str = "sh -c 'echo 320 >/proc/sys/kernel/pid_max
    uhr record --sampler ebpf -o reused --summary reused-summary -- short children 1000; status=$?
    echo 32768 >/proc/sys/kernel/pid_max; exit $status'";

/// Two programs that burn, one of them in a cgroup, which alone is recorded. The way to a task's cgroup is other fields of
/// the kernel in almost every version.
const IN_A_CGROUP: &str = "sh -c 'mkdir /sys/fs/cgroup/outer /sys/fs/cgroup/outer/part
    (echo 0 >/sys/fs/cgroup/outer/part/cgroup.procs; exec shares 30) & shares 30 &
    uhr record --cgroup /outer --duration 1s -o cgroup; status=$?; killall shares; exit $status'";

#[test]
#[ignore = "boots an emulated machine"]
fn slow_linux_5_10() {
    check("5.10");
}

#[test]
#[ignore = "boots an emulated machine"]
fn slow_linux_6_1() {
    check("6.1");
}

#[test]
#[ignore = "boots an emulated machine"]
fn slow_linux_6_12() {
    check("6.12");
}

#[test]
#[ignore = "boots an emulated machine"]
fn slow_linux_6_18() {
    check("6.18");
}

#[test]
#[ignore = "boots an emulated machine"]
fn slow_linux_7_3() {
    check("7.3");
}

fn check(series: &str) {
    let Some(mut machine) = Machine::with(series) else { return };
    let is_walked = !OF_OLDER_PROGRAMS.contains(&series);
    machine.ask("doctor", "uhr doctor --json");
    machine.ask("record-unasked", "uhr record -o unasked -- shares 0.3");
    machine.ask("unasked", "uhr overview unasked --json");
    for (sampler, unwind) in WAYS {
        let name = |what: &str| format!("{sampler}-{unwind}-{what}");
        let how = format!("--sampler {sampler} --unwind {unwind}");
        for program in ["shares", "waits"] {
            let rec = name(program);
            machine.ask(&rec, &format!("uhr record {how} -o {rec} -- {program}"));
            machine.ask(&format!("{rec}-overview"), &format!("uhr overview {rec} --json"));
        }
        let query = |rec: &str, what: &str| format!("uhr query {} --limit 1000 --json {what}", name(rec));
        machine.ask(&name("functions"), &query("shares", "--group-by function"));
        machine.ask(&name("threads"), &query("waits", "--metric off-cpu --group-by thread,wait"));
        machine.ask(&name("wakers"), &query("waits", "--metric off-cpu --group-by thread,waker"));
        machine.ask(&name("waiting"), &query("waits", "--metric off-cpu --group-by thread,function"));
    }
    machine.ask("record-walks", "uhr record --check-walks -o walks -- shares");
    machine.ask("walks", "uhr overview walks --json");
    machine.ask("record-cgroup", IN_A_CGROUP);
    machine.ask("cgroup", "uhr query cgroup --group-by process,cgroup --json");
    machine.ask("record-calls", "uhr record --syscalls -o calls -- calls");
    machine.ask(
        "calls",
        "uhr query calls --metric syscalls --group-by thread-name,syscall,errno --limit 1000 --json",
    );
    machine.ask("record-reused", REUSED_PIDS);
    machine.ask("reused-summary", "cat reused-summary");
    machine.ask("reused", "uhr query reused --group-by command --json");
    for sampler in ["perf", "ebpf"] {
        let rec = format!("{sampler}-names");
        machine.ask(
            &format!("record-{rec}"),
            &format!("uhr record --sampler {sampler} -o {rec} -- mapping_names pages 4000"),
        );
        let query = "--metric page-faults --group-by region --limit 1000 --json";
        machine.ask(&rec, &format!("uhr query {rec} {query}"));
    }
    machine.ask(
        "record-kernel-code",
        "uhr record -o kernel-code -- dd if=/dev/zero of=/dev/null bs=64k count=20000",
    );
    machine.ask("kernel-code", "uhr annotate kernel-code --function ksys_read --asm --detail full --json");
    machine.ask("vfs_read", "grep ' vfs_read$' /proc/kallsyms");
    let said = machine.boot();
    assert!(said.json("doctor").to_string().contains(&format!("Linux {series}.")), "it runs under {series}");
    check_doctor(&said, is_walked);
    assert_eq!(said.json("unasked")["recording"]["sampler"], "ebpf");
    for (sampler, unwind) in WAYS {
        check_shares(&said, &format!("{sampler}-{unwind}"));
        // The C library's functions keep no frame pointers, and a wait's caller is lost with them.
        check_waits(&said, &format!("{sampler}-{unwind}"), *unwind == "dwarf");
        if *sampler == "ebpf" {
            check_wakers(&said, &format!("{sampler}-{unwind}"));
        }
    }
    check_names(&said, "perf");
    check_kernel_code(&said);
    check_names(&said, "ebpf");
    let walks = said.json("walks")["trust"]["coverage"]["notes"].to_string();
    assert_eq!(
        walks.contains("of walks of the kernel") && walks.contains(" 0 differed"),
        is_walked,
        "{walks}"
    );
    assert_eq!(walks.contains("there are no user stacks walked in the kernel"), !is_walked, "{walks}");
    check_cgroup(&said);
    check_calls(&said);
    check_reused(&said);
}

/// What the kernel does not take is said, with the reason.
fn check_doctor(said: &Said, is_walked: bool) {
    let doctor = said.json("doctor");
    let checks = doctor["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == "ebpf-sampler").unwrap();
    let finding = check["finding"].as_str().unwrap();
    let (taken, refused) = finding.split_once("; not for ").unwrap_or((finding, ""));
    for purpose in ["CPU samples", "time off CPU", "who ends a wait", "page faults", "counts of system calls"]
    {
        assert!(taken.contains(purpose), "{finding}");
    }
    for part in [
        "user stacks walked in the kernel, but copied",
        "user stacks of waits read in the kernel, but read from outside",
    ] {
        assert_eq!(refused.contains(part), !is_walked, "{finding}");
    }
    assert_eq!(check["status"], if is_walked { "ok" } else { "limited" }, "{finding}");
}

/// No thread is taken for the one that had its pid before: each has its own time, and all of them have theirs.
fn check_reused(said: &Said) {
    let (truth, summary) = (said.json("record-reused"), said.json("reused-summary"));
    assert_eq!((&summary["threads"], &summary["processes"]), (&1001.into(), &1001.into()), "{summary:#}");
    let seen = number(&said.json("reused")["metric"], "total");
    let (least, most) = (number(&truth, "least_ns"), number(&truth, "most_ns"));
    assert!(least * 0.98 <= seen && seen <= most * 1.02, "{seen} ns on CPU, and it was {least} to {most}");
}

/// Page faults by the names of mappings. What the program could not name, it does not tell of.
fn check_names(said: &Said, sampler: &str) {
    let truth = said.json(&format!("record-{sampler}-names"));
    let answer = said.json(&format!("{sampler}-names"));
    let names: Vec<&String> = truth.as_object().unwrap().keys().collect();
    let is_named = |name: &&&String| name.starts_with(['/', '[']);
    for name in names.iter().filter(is_named) {
        let planted = number(&truth, name);
        let seen = sum(&answer, "self", |key| key["mapping"] == name.as_str());
        assert!(
            (seen - planted).abs() <= planted * 0.05,
            "{sampler}, {name}: {seen} of {planted}: {answer:#}"
        );
    }
    assert!(names.iter().filter(is_named).count() >= 2, "{truth}");
}

/// The calls that threads say they made, and how they ended. What is missing is told: newer kernels leave programs out.
fn check_calls(said: &Said) {
    let (truth, answer) = (said.json("record-calls"), said.json("calls"));
    let mut lost = number(&answer["coverage"], "lost");
    for (thread, syscall, errno) in [
        ("asks", "getppid", "ok"),
        ("polls", "recvfrom", "EAGAIN"),
        ("seeks", "openat", "ENOENT"),
        ("raises", "rt_sigreturn", "ok"),
    ] {
        let is_it =
            |key: &Value| key["thread-name"] == thread && key["syscall"] == syscall && key["errno"] == errno;
        let missing = number(&truth, thread) - sum(&answer, "self", is_it);
        assert!(missing >= 0.0, "{thread}: {answer:#}");
        lost -= missing;
    }
    assert!(lost >= 0.0, "{lost}: {answer:#}");
}

/// The kernel's code is read from its memory: where `dd` spends its time, one function calls another, at the address that
/// the kernel itself says it has.
fn check_kernel_code(said: &Said) {
    said.succeeded("record-kernel-code");
    let answer = said.json("kernel-code");
    let callee = said.succeeded("vfs_read").split(' ').next().unwrap().to_owned();
    let rows = answer["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["bytes"].is_string()), "{answer:#}");
    let cost = |row: &&Value| row["total_share"].as_f64().unwrap_or(0.0);
    let call = rows.iter().max_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap();
    assert!(cost(&call) > 0.7 && call["text"] == format!("call 0x{callee}"), "{call} is to call {callee}");
}

fn number(of: &Value, name: &str) -> f64 {
    of[name].as_f64().unwrap_or_else(|| panic!("no number {name} in {of:#}"))
}

/// The sum of a column over the rows of which this is so.
fn sum(answer: &Value, column: &str, is_it: impl Fn(&Value) -> bool) -> f64 {
    let rows = answer["rows"].as_array().unwrap();
    rows.iter().filter(|row| is_it(&row["key"])).map(|row| number(row, column)).sum()
}

/// CPU time is that of the process's own clock, and its parts stand to each other as the program measured them.
fn check_shares(said: &Said, way: &str) {
    let truth = said.json(&format!("{way}-shares"));
    let answer = said.json(&format!("{way}-functions"));
    let total = number(&answer["metric"], "total");
    let expected = number(&truth, "cpu_ns");
    assert!((total / expected - 1.0).abs() < 0.1, "{way}: {total} ns of {expected}");
    let planted = ["half", "outer", "fifth"];
    let seen = planted.map(|name| sum(&answer, "total", |key| key["function"] == name));
    let (all_seen, all_true): (f64, f64) =
        (seen.iter().sum(), planted.iter().map(|name| number(&truth, name)).sum());
    assert!(all_seen > 0.7 * total, "{way}: {seen:?} of {total} have their function");
    for (name, seen) in planted.iter().zip(seen) {
        let (share, expected) = (seen / all_seen, number(&truth, name) / all_true);
        assert!((share - expected).abs() < 0.1, "{way}: {name} {share}, and it was {expected}");
    }
}

/// Each thread of the program, what it waits for, and in which function.
const WAITS: &[(&str, &str, &str)] = &[
    ("sleeper", "sleep", "naps_here"),
    ("locker", "lock", "waits_for_lock"),
    ("conditioner", "lock", "waits_for_condition"),
    ("piper", "pipe", "waits_for_pipe"),
    ("parent", "child", "waits_for_child"),
];

/// Every thread waited as long as it says, for what it waited for, and where stacks are whole in the function where it did.
fn check_waits(said: &Said, way: &str, has_whole_stacks: bool) {
    let truth = said.json(&format!("{way}-waits"));
    let (threads, functions) = (said.json(&format!("{way}-threads")), said.json(&format!("{way}-waiting")));
    for (thread, wait, function) in WAITS {
        let of_it = |key: &Value| key["thread"]["name"] == *thread;
        let (least, most) = (number(&truth[thread], "least_ns"), number(&truth[thread], "most_ns"));
        let is_true = |seen: f64| least * 0.9 <= seen && seen <= most * 1.1;
        let in_all = sum(&threads, "self", of_it);
        assert!(is_true(in_all), "{way}: {thread} {in_all}, and it was {least} to {most}");
        let for_that = sum(&threads, "self", |key| of_it(key) && key["wait"] == *wait);
        assert!(
            for_that > 0.9 * in_all,
            "{way}: {thread} waited {for_that} of {in_all} for {wait}: {threads:#}"
        );
        let there = sum(&functions, "total", |key| of_it(key) && key["function"] == *function);
        assert!(
            !has_whole_stacks || is_true(there),
            "{way}: {function} {there}, and it was {least} to {most}: {functions:#}"
        );
    }
}

/// Each thread of the program, and who ends its wait: a thread, or an interrupt of this kind.
const WAKERS: &[(&str, &str, &str)] = &[
    ("sleeper", "interrupt", "timer"),
    ("locker", "name", "waits"),
    ("conditioner", "name", "waits"),
    ("piper", "name", "waits"),
    ("parent", "name", "child"),
];

fn check_wakers(said: &Said, way: &str) {
    let answer = said.json(&format!("{way}-wakers"));
    for (thread, what, waker) in WAKERS {
        let in_all = sum(&answer, "self", |key| key["thread"]["name"] == *thread);
        let by_it = |key: &Value| key["thread"]["name"] == *thread && key["waker"][what] == *waker;
        let share = sum(&answer, "self", by_it) / in_all;
        assert!(share > 0.9, "{way}: {thread} is woken by {waker}: {share}: {answer:#}");
    }
}

/// Of two processes the one in the group was recorded, and all of its time.
fn check_cgroup(said: &Said) {
    said.succeeded("record-cgroup");
    let answer = said.json("cgroup");
    let rows = answer["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{answer:#}");
    let key = &rows[0]["key"];
    assert_eq!((&key["process"]["name"], &key["cgroup"]), (&"shares".into(), &"/outer/part".into()));
    let (on_cpu, window) = (number(&rows[0], "self"), number(&answer["recording"], "duration_s") * 1e9);
    // The other one and uhr take the rest, of one CPU or two.
    assert!(0.15 * window < on_cpu && on_cpu < 1.01 * window, "one thread that burns: {on_cpu} of {window}");
}
