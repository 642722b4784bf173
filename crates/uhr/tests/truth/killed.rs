//! uhr killed in the midst of it: the kernel keeps nothing of its programs.

use std::process::Command;

use crate::harness::{Place, Who, has, has_ebpf, held_by, wait_until};

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
    // A window of counting system calls may close between two looks.
    let mut held = Vec::new();
    wait_until("what it holds is there", || {
        held = held_by(uhr.pid());
        held.iter().all(|(kind, id)| is_there(kind, id))
    });
    for kind in ["prog", "map", "link"] {
        assert!(held.iter().any(|(held, _)| *held == kind), "no {kind} in {held:?}");
    }
    uhr.kill();
    // The last is freed when no CPU can be in it any more.
    wait_until("all is gone", || !held.iter().any(|(kind, id)| is_there(kind, id)));
}
