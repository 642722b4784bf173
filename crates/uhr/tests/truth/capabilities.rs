//! uhr without one of the capabilities that its own programs in the kernel need.

use std::process::Command;

use uhr_recording::Recording;

use crate::harness::{Place, Recorded, Running, has, has_ebpf};

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
