//! `uhr doctor` on the host that runs the tests: what it says is compared with what can be tried here.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::fixture::Fixture;

fn check<'a>(checks: &'a Value, name: &str) -> &'a Value {
    let found = checks.as_array().unwrap().iter().find(|check| check["name"] == name);
    found.unwrap_or_else(|| panic!("no check {name} in {checks}"))
}

#[test]
fn the_host_is_examined() {
    let fixture = Fixture::empty();
    let answer = fixture.run(&["doctor", "--json"]).json();
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let finding = check(&answer["checks"], "perf-events")["finding"].as_str().unwrap();
    if answer["verdict"] != "nothing" {
        assert!(finding.contains(&format!("kernel.perf_event_paranoid is {}", paranoid.trim())), "{finding}");
    }
    let text = fixture.run(&["doctor"]);
    assert_eq!((text.status, text.stderr.as_str()), (0, ""));
    assert!(text.stdout.starts_with("Linux "), "{}", text.stdout);
    assert!(text.stdout.contains("Rust") && text.stdout.contains("-g"), "{}", text.stdout);
}

#[test]
fn a_running_process_is_examined() {
    let fixture = Fixture::empty();
    let mut child = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id().to_string();
    // The exec, and after it the dynamic loader, may still be under way.
    while !std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().contains("libc.so") {
        std::thread::yield_now();
    }
    let ran = fixture.run(&["doctor", "--pid", &pid, "--json"]);
    let text = fixture.run(&["doctor", "--pid", &pid]);
    child.kill().unwrap();
    child.wait().unwrap();
    let target = ran.json()["target"].clone();
    assert_eq!(target["name"], "sleep");
    assert_eq!(target["threads"], 1);
    let modules = target["modules"].as_array().unwrap();
    let libc = modules.iter().find(|module| module["path"].as_str().unwrap().contains("libc.so")).unwrap();
    assert_eq!(libc["unwind_tables"], true);
    assert!(text.stdout.contains("Process ") && text.stdout.contains("libc.so"), "{}", text.stdout);
}

#[test]
fn what_is_built_without_unwind_tables_is_named() {
    let fixture = Fixture::empty();
    let source = fixture.path("blind.c");
    std::fs::write(&source, "int main(void) { for (;;) { __asm__ volatile(\"pause\"); } }").unwrap();
    let built = Command::new("gcc")
        .args([
            "-O2",
            "-fno-asynchronous-unwind-tables",
            "-fomit-frame-pointer",
            "-nostdlib",
            "-static",
            "-s",
        ])
        .args(["-Wl,-e,main", "-Wl,--build-id=none", "-o"])
        .args([fixture.path("blind"), source])
        .status()
        .unwrap();
    assert!(built.success());
    let mut child = Command::new(fixture.path("blind")).spawn().unwrap();
    let ran = fixture.run(&["doctor", "--pid", &child.id().to_string(), "--json"]);
    child.kill().unwrap();
    child.wait().unwrap();
    let target = ran.json()["target"].clone();
    let unwinding = check(&target["checks"], "unwinding");
    assert_eq!(unwinding["status"], "limited", "{target}");
    assert!(unwinding["finding"].as_str().unwrap().contains("blind"), "{unwinding}");
    assert_eq!(target["modules"][0]["symbols"], "exported", "it is stripped");
}

#[test]
fn a_process_that_is_not_there_is_a_failure() {
    let fixture = Fixture::empty();
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id().to_string();
    child.wait().unwrap();
    let ran = fixture.run(&["doctor", "--pid", &pid, "--json"]);
    assert_eq!(ran.status, 1);
    assert_eq!(ran.json()["error"]["code"], "no-such-process");
}
