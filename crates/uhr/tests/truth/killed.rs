//! uhr killed in the midst of it: the kernel keeps nothing of its programs.

use std::fs;
use std::process::Command;

use crate::harness::{Place, Who, has, has_ebpf, wait_until};

/// The programs, maps and links that a process holds, as `bpftool` takes them: the kind and the id.
fn held_by(pid: u32) -> Vec<(&'static str, String)> {
    let mut held = Vec::new();
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return held };
    for file in files.flatten() {
        let Ok(text) = fs::read_to_string(file.path()) else { continue };
        let id =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(|id| id.trim().to_owned());
        // A link says which program it runs, too.
        let kinds = [("link", "link_id:"), ("prog", "prog_id:"), ("map", "map_id:")];
        held.extend(kinds.iter().find_map(|(kind, name)| Some((*kind, id(name)?))));
    }
    held
}

fn is_there(kind: &str, id: &str) -> bool {
    let found = Command::new("bpftool").args([kind, "show", "id", id]).output().unwrap();
    found.status.success()
}

#[test]
fn nothing_is_left_in_the_kernel() {
    if !has_ebpf() || !has("bpftool") {
        return;
    }
    let place = Place::new();
    let program = place.c("crew.c", &[]);
    let mut uhr = place.start(Who::Us, "rec", &["--sampler", "ebpf"], &[&program, &"2"]);
    wait_until("it runs", || uhr.said().contains("it runs"));
    let held = held_by(uhr.pid());
    for kind in ["prog", "map", "link"] {
        assert!(held.iter().any(|(held, _)| *held == kind), "no {kind} in {held:?}");
    }
    assert!(held.iter().all(|(kind, id)| is_there(kind, id)), "{held:?}");
    uhr.kill();
    // The last is freed when no CPU can be in it any more.
    wait_until("all is gone", || !held.iter().any(|(kind, id)| is_there(kind, id)));
}
