//! A container as runtimes start one: a process enters its group and executes the program there.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::harness::record;

const ID: &str = "53a5ea1fb3c4a0b8e8a6bb6e29cfdc19a4ea58f9e5ecb32d3f4b9f6f12dcb7a8";

/// Groups of version 2, removed at the end.
struct Groups(Vec<PathBuf>);

impl Groups {
    /// A pod with a container in it, as Kubernetes names them under systemd. None where no group can be made.
    fn of_a_pod() -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let root = mounts.lines().find(|line| line.contains(" cgroup2 "))?.split(' ').nth(1)?;
        let outer = PathBuf::from(root).join(format!("uhr-test-{}", std::process::id()));
        let pod = outer.join("kubepods-burstable-pod1d8a8e2c_6d25_4f3a_9d2c_8a6c8d7f3b11.slice");
        let container = pod.join(format!("cri-containerd-{ID}.scope"));
        std::fs::create_dir_all(&container).ok()?;
        Some(Self(vec![container, pod, outer]))
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.0.iter().for_each(|folder| drop(std::fs::remove_dir(folder)));
    }
}

#[test]
fn a_program_in_a_container_of_a_pod() {
    let Some(groups) = Groups::of_a_pod() else {
        eprintln!("SKIPPED: no cgroup of version 2 can be made here");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("runtime");
    let script = format!(
        "#!/bin/sh\n(echo 0 >{}/cgroup.procs; exec sleep 0.2) &\nwait; exec true\n",
        groups.0[0].display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let Some((_, recording)) = record(folder.path(), &program) else { return };
    let processes = recording.processes().unwrap();
    let row = |name: &str| processes.iter().find(|process| process.name == name).unwrap();
    let inside = row("sleep");
    assert!(inside.cgroup.as_ref().unwrap().ends_with(&format!("/cri-containerd-{ID}.scope")), "{inside:?}");
    assert_eq!(inside.container.as_deref(), Some(ID));
    assert_eq!(inside.pod.as_deref(), Some("1d8a8e2c-6d25-4f3a-9d2c-8a6c8d7f3b11"));
    let outside = row("true");
    assert!(outside.cgroup.is_some(), "{outside:?}");
    assert_eq!((&outside.container, &outside.pod), (&None, &None));
}
