//! uhr without one of the capabilities that its own programs in the kernel need.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use uhr_recording::Recording;

use crate::harness::{Place, Recorded, Running, find, has, has_ebpf, is_root};

/// Records as root without these.
fn without(place: &Place, dropped: &str, sampler: &str) -> Recorded {
    let rec = place.path(&format!("{sampler}{dropped}"));
    let mut command = Command::new("setpriv");
    // `sys_admin` stands for both.
    command.arg(format!("--bounding-set=-{dropped},-sys_admin"));
    command.args(["--", env!("CARGO_BIN_EXE_uhr"), "record", "--sampler", sampler, "-o"]).arg(&rec);
    command.args(["--", "true"]);
    let mut recorded = Running::program(place, &format!("{sampler}{dropped}"), &mut command).end();
    recorded.rec = rec;
    recorded
}

#[test]
fn a_missing_capability_is_named_and_auto_does_without() {
    if !has_ebpf() || !has("setpriv") {
        return;
    }
    let place = Place::new();
    for dropped in ["bpf", "perfmon"] {
        let refused = without(&place, dropped, "ebpf");
        if refused.stderr.contains("unknown capability") {
            eprintln!("SKIPPED: {}", refused.stderr);
            return;
        }
        assert_eq!(refused.code(), 125, "{}", refused.stderr);
        let named = format!("cap_{dropped}");
        assert!(refused.stderr.to_lowercase().contains(&named), "{named}: {}", refused.stderr);
        assert!(!refused.rec.exists());
        let Some(done) = without(&place, dropped, "auto").or_skip() else { return };
        let settings = Recording::open(&done.rec).unwrap().manifest.settings;
        assert_eq!(settings.sampler, "perf", "{}", done.stderr);
    }
}

/// None of these is needed to load and read the programs.
#[test]
fn other_capabilities_may_be_missing() {
    if !has_ebpf() || !has("setpriv") {
        return;
    }
    let place = Place::new();
    for dropped in ["sys_resource", "syslog", "sys_ptrace"] {
        let done = without(&place, dropped, "ebpf");
        assert_eq!(done.code(), 0, "{dropped}: {}", done.stderr);
    }
}

/// An ordinary user who holds just these.
fn with(place: &Place, held: &str, rec: &str, arguments: &[&str]) -> Recorded {
    let copy = place.path("uhr");
    if !copy.exists() {
        fs::copy(env!("CARGO_BIN_EXE_uhr"), &copy).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.args([format!("--inh-caps=-all,{held}"), format!("--ambient-caps=-all,{held}")]);
    command.arg("--").arg(copy).args(["record", "-o"]).arg(place.path(rec)).args(arguments);
    let mut recorded = Running::program(place, rec, &mut command).end();
    recorded.rec = place.path(rec);
    recorded
}

/// What is missing in a recording is told with what would have it in.
#[test]
fn what_may_not_be_read_is_told_with_the_command_that_allows_it() {
    if !has_ebpf() || !has("setpriv") || !is_root() {
        return;
    }
    let place = Place::new();
    // A program in a folder of root's, which other users may not enter.
    let program = place.c("shares.c", &[]);
    let closed = place.path("closed");
    fs::create_dir(&closed).unwrap();
    fs::rename(program, closed.join("shares")).unwrap();
    fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
    let victim = Running::program(&place, "victim", Command::new(closed.join("shares")).arg("30"));
    let pid = victim.pid().to_string();
    let attach = ["--duration", "1s", "--pid", &pid];
    let notes = |recorded: &Recorded| {
        assert_eq!(recorded.code(), 0, "{}", recorded.stderr);
        Recording::open(&recorded.rec).unwrap().manifest.notes.join("\n")
    };
    let hidden = with(&place, "+bpf,+perfmon", "hidden", &attach);
    let said = notes(&hidden);
    // Its mappings CAP_PERFMON shows as well, from Linux 6.14 on.
    assert!(said.contains("uhr may not read"), "{said}");
    assert!(said.contains("sudo setcap") && said.contains("cap_sys_ptrace"), "{said}");
    // With all of them nothing is left to tell.
    let all = with(&place, "+bpf,+perfmon,+sys_ptrace,+syslog,+checkpoint_restore", "all", &attach);
    assert_eq!(notes(&all), "");
    let answer = all.ask("query --group-by function");
    assert!(find(&answer, "function", "half").is_some(), "{answer:#}");
}

/// The kernel's names are hidden by one of two settings, and changing the other helps nobody.
#[test]
fn what_hides_the_kernels_names_is_told() {
    if !has_ebpf() || !has("setpriv") || !is_root() {
        return;
    }
    let setting = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap();
        text.trim().parse::<i32>().unwrap()
    };
    let (pointers, events) = (setting("kptr_restrict"), setting("perf_event_paranoid"));
    let place = Place::new();
    let work: [&str; 6] = ["--", "dd", "if=/dev/zero", "of=/dev/null", "bs=4k", "count=300000"];
    let done = with(&place, "+bpf,+perfmon", "rec", &work);
    assert_eq!(done.code(), 0, "{}", done.stderr);
    let said = Recording::open(&done.rec).unwrap().manifest.notes.join("\n");
    assert_eq!(said.contains("kernel.kptr_restrict=0"), pointers > 0, "{said}");
    assert_eq!(said.contains("kernel.perf_event_paranoid=1"), events > 1, "{said}");
}
