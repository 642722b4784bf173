//! The control group of a process, and the container and pod that its name tells of. There is no list of containers to
//! ask: every runtime writes the container's id into the group's path, each in its own way.

use std::borrow::Cow;

use uhr_recording::tables::ProcessRow;

use crate::procfs;

/// A process is in one group of each hierarchy. No kernel has more than some twenty.
const MAX_HIERARCHIES: usize = 64;

/// Where a process belongs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Membership {
    /// Path of its control group, of the hierarchy that says most.
    pub(crate) cgroup: Option<String>,
    /// Id of its container, or its name where containers have names.
    pub(crate) container: Option<String>,
    /// Id of its pod: Kubernetes' uid with hyphens, or Podman's id.
    pub(crate) pod: Option<String>,
}

impl Membership {
    /// What a row says.
    pub(crate) fn of_row(row: ProcessRow) -> Self {
        Self { cgroup: row.cgroup, container: row.container, pod: row.pod }
    }

    /// Writes it into a row. Of a process that is gone by now the row keeps what it has from its parent, or from before an
    /// exec: runtimes move a child into its container's group and let it execute the program then.
    pub(crate) fn fill(self, row: &mut ProcessRow) {
        if self.cgroup.is_some() {
            (row.cgroup, row.container, row.pod) = (self.cgroup, self.container, self.pod);
        }
    }
}

/// Where a process belongs now. Nothing is known of one that is gone.
pub(crate) fn of_process(pid: u32) -> Membership {
    procfs::read_proc(&format!("/proc/{pid}/cgroup")).map(|text| parse(&text)).unwrap_or_default()
}

/// Of the lines of `/proc/PID/cgroup` the one that says most: a container; else the group of version 2; else the deepest
/// path. On a host with both versions a container may have a group in version 1 alone, while version 2 has the daemon's.
fn parse(text: &[u8]) -> Membership {
    let mut best = None;
    for line in text.split(|&byte| byte == b'\n').take(MAX_HIERARCHIES) {
        // The hierarchy's number, its controllers, the path: which may hold colons itself.
        let mut fields = line.splitn(3, |&byte| byte == b':');
        let (Some(number), Some(_), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        if !path.starts_with(b"/") {
            continue;
        }
        let path = String::from_utf8_lossy(path).into_owned();
        let (container, pod) = (container(&path), pod(&path));
        let is_version_2 = number == b"0" && path != "/";
        let rank = (container.is_some(), pod.is_some(), is_version_2, components(&path).count(), path.len());
        if best.as_ref().is_none_or(|(best, _)| rank > *best) {
            best = Some((rank, Membership { cgroup: Some(path), container, pod }));
        }
    }
    best.map(|(_, membership)| membership).unwrap_or_default()
}

fn components(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|component| !component.is_empty())
}

/// The innermost container: where one runs inside another, that is where the process is.
fn container(path: &str) -> Option<String> {
    let mut parents = components(path).rev().skip(1);
    components(path).rev().find_map(|component| {
        let parent = parents.next().unwrap_or_default();
        named(&unescape(component), parent)
    })
}

/// The container that one component of a path names. What watches a container from outside is in no container: conmon of
/// Podman and CRI-O, the monitor of LXC.
fn named(component: &str, parent: &str) -> Option<String> {
    // runc under systemd, told a group of the other kind, writes kubepods-pod<uid>.slice:cri-containerd:<id>.
    let component = component.rsplit(':').next().unwrap_or(component);
    let unit = component.strip_suffix(".scope").unwrap_or(component);
    let name = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    if is_task(unit) {
        return name(unit);
    }
    // docker-<id>.scope, cri-containerd-<id>.scope, crio-<id>, libpod-<id>.scope, or the id alone.
    let (runtime, id) = unit.rsplit_once('-').unwrap_or(("", unit));
    if is_hex(id, 64) {
        return if runtime.ends_with("conmon") { None } else { name(id) };
    }
    if let Some(machine) = unit.strip_prefix("lxc.payload.") {
        return name(machine);
    }
    match parent {
        "buildkit" if unit.len() >= 20 && unit.bytes().all(|byte| byte.is_ascii_alphanumeric()) => name(unit),
        "lxc" | "lxc.payload" => name(component),
        // systemd-nspawn and libvirt; a virtual machine of libvirt has a kernel of its own and is no container.
        "machine.slice" => {
            let spawned = || component.strip_prefix("systemd-nspawn@")?.strip_suffix(".service");
            let machine = || unit.strip_prefix("machine-").filter(|_| component.ends_with(".scope"));
            spawned().or_else(machine).filter(|machine| !machine.starts_with("qemu-")).and_then(name)
        }
        _ => None,
    }
}

/// The innermost pod: `pod<uid>` (cgroupfs), `kubepods-burstable-pod<uid>.slice` (systemd, which has `_` for `-`),
/// `machine-libpod_pod_<id>.slice` (Podman).
fn pod(path: &str) -> Option<String> {
    components(path).rev().find_map(|component| {
        let component = unescape(component);
        let starts = component.match_indices("pod").map(|(at, _)| at);
        starts.filter(|&at| at == 0 || matches!(component.as_bytes()[at - 1], b'-' | b'_')).find_map(|at| {
            let behind = &component[at + "pod".len()..];
            [36, 32].iter().find_map(|&length| uid(behind, length)).or_else(|| {
                let id = behind.strip_prefix('_')?;
                uid(id, 64)
            })
        })
    })
}

/// A uid of this length, at the start of a text that does not go on with more of it. Pods that the kubelet reads from a
/// file have a hash without hyphens instead of a UUID.
fn uid(text: &str, length: usize) -> Option<String> {
    let id = text.get(..length)?;
    if text[length..].starts_with(|next: char| next.is_ascii_alphanumeric()) {
        return None;
    }
    let id = id.replace('_', "-");
    let groups: Vec<usize> = id.split('-').map(str::len).collect();
    let is_whole = if length == 36 { groups == [8, 4, 4, 4, 12] } else { groups == [length] };
    (is_whole && id.bytes().all(|byte| byte == b'-' || is_hex_digit(byte))).then_some(id)
}

/// A container of Amazon's Fargate: the task's id and a number.
fn is_task(text: &str) -> bool {
    text.split_once('-').is_some_and(|(task, number)| {
        is_hex(task, 32) && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(is_hex_digit)
}

/// Runtimes write small letters.
fn is_hex_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// The name of a systemd unit without its escapes: `\x2d` is a hyphen that does not divide slices.
fn unescape(name: &str) -> Cow<'_, str> {
    if !name.contains("\\x") {
        return Cow::Borrowed(name);
    }
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((before, behind)) = rest.split_once("\\x") {
        bytes.extend_from_slice(before.as_bytes());
        match behind.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.extend_from_slice(b"\\x");
                rest = behind;
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Ids as docker, containerd and CRI-O make them.
    const A: &str = "53a5ea1fb3c4a0b8e8a6bb6e29cfdc19a4ea58f9e5ecb32d3f4b9f6f12dcb7a8";
    const B: &str = "9d1f0e6a7c3b25418f6e0d9c8b7a6f5e4d3c2b1a0f9e8d7c6b5a49382716051f";
    const UID: &str = "1d8a8e2c-6d25-4f3a-9d2c-8a6c8d7f3b11";
    const UID_: &str = "1d8a8e2c_6d25_4f3a_9d2c_8a6c8d7f3b11";
    /// Of a pod that the kubelet reads from a file (etcd, kube-apiserver): a hash.
    const STATIC: &str = "b6b0d4c2d8c93b0b9a1e1c2ef9e0a7c4";

    /// A path as it stands in `/proc/PID/cgroup`, the container and the pod that it names.
    #[test]
    fn paths_of_container_runtimes() {
        #[rustfmt::skip]
        let table = [
            // Docker: cgroupfs, systemd, inside a slice of the user's, rootless, build steps.
            (format!("/docker/{A}"), Some(A), None),
            (format!("/system.slice/docker-{A}.scope"), Some(A), None),
            (format!("/app.slice/docker-{A}.scope"), Some(A), None),
            (format!("/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{A}.scope"), Some(A), None),
            (format!("/system.slice/docker-{A}.scope/system.slice/nginx.service"), Some(A), None),
            ("/docker/buildkit/u4jvm2m1q8x9k3o5l7t6n0r2s".to_owned(), Some("u4jvm2m1q8x9k3o5l7t6n0r2s"), None),
            (format!("/actions_job/{A}"), Some(A), None),
            // Docker in Docker: the innermost.
            (format!("/docker/{A}/docker/{B}"), Some(B), None),
            (format!("/system.slice/docker-{A}.scope/docker/{B}"), Some(B), None),
            // containerd by nerdctl, CRI-O without Kubernetes' slices.
            (format!("/system.slice/nerdctl-{A}.scope"), Some(A), None),
            (format!("/system.slice/crio-{A}.scope"), Some(A), None),
            // Podman: root, a user, the container's own group below, a pod, and its monitor.
            (format!("/machine.slice/libpod-{A}.scope"), Some(A), None),
            (format!("/machine.slice/libpod-{A}.scope/container"), Some(A), None),
            (format!("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{A}.scope/container"), Some(A), None),
            (format!("/libpod_parent/libpod-{A}"), Some(A), None),
            (format!("/machine.slice/machine-libpod_pod_{B}.slice/libpod-{A}.scope"), Some(A), Some(B)),
            (format!("/machine.slice/libpod-conmon-{A}.scope"), None, None),
            // Kubernetes, cgroupfs: version 1 and 2 look the same.
            (format!("/kubepods/burstable/pod{UID}/{A}"), Some(A), Some(UID)),
            (format!("/kubepods/besteffort/pod{UID}/{A}"), Some(A), Some(UID)),
            (format!("/kubepods/pod{UID}/{A}"), Some(A), Some(UID)),
            (format!("/kubepods/burstable/pod{STATIC}/{A}"), Some(A), Some(STATIC)),
            (format!("/kubepods/burstable/pod{UID}"), None, Some(UID)),
            // Kubernetes, systemd: containerd, CRI-O, Docker; guaranteed pods have no class.
            (format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice/cri-containerd-{A}.scope"), Some(A), Some(UID)),
            (format!("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID_}.slice/crio-{A}.scope"), Some(A), Some(UID)),
            (format!("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID_}.slice/crio-{A}.scope/container"), Some(A), Some(UID)),
            (format!("/kubepods.slice/kubepods-pod{UID_}.slice/docker-{A}.scope"), Some(A), Some(UID)),
            (format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{STATIC}.slice/crio-{A}.scope"), Some(A), Some(STATIC)),
            (format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice/crio-conmon-{A}.scope"), None, Some(UID)),
            (format!("/kubepods.slice/kubepods-pod1d8a8e2c\\x2d6d25\\x2d4f3a\\x2d9d2c\\x2d8a6c8d7f3b11.slice/docker-{A}.scope"), Some(A), Some(UID)),
            (format!("/system.slice/containerd.service/kubepods-burstable-pod{UID_}.slice:cri-containerd:{A}"), Some(A), Some(UID)),
            (format!("/kubepods-besteffort-pod{UID_}.slice:cri-containerd:{A}"), Some(A), Some(UID)),
            // kind: a node that is a container itself.
            (format!("/docker/{B}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{UID_}.slice/cri-containerd-{A}.scope"), Some(A), Some(UID)),
            (format!("/docker/{B}/kubelet/kubepods/burstable/pod{UID}/{A}"), Some(A), Some(UID)),
            (format!("/docker/{B}/kubelet.slice/kubelet.service"), Some(B), None),
            // Amazon: ECS on machines, Fargate.
            (format!("/ecs/0a1b2c3d4e5f60718293a4b5c6d7e8f9/{A}"), Some(A), None),
            ("/ecs/0a1b2c3d4e5f60718293a4b5c6d7e8f9/0a1b2c3d4e5f60718293a4b5c6d7e8f9-2530732126".to_owned(), Some("0a1b2c3d4e5f60718293a4b5c6d7e8f9-2530732126"), None),
            // LXC and LXD of several ages; Docker inside; the monitor is outside.
            ("/lxc/web1".to_owned(), Some("web1"), None),
            ("/lxc.payload/web1".to_owned(), Some("web1"), None),
            ("/lxc.payload.web1".to_owned(), Some("web1"), None),
            ("/lxc.payload.web1/system.slice/nginx.service".to_owned(), Some("web1"), None),
            ("/lxc.payload.u1_c-2.test/init.scope".to_owned(), Some("u1_c-2.test"), None),
            (format!("/lxc.payload.web1/docker/{A}"), Some(A), None),
            ("/lxc.monitor.web1".to_owned(), None, None),
            ("/lxc.monitor/web1".to_owned(), None, None),
            // systemd-nspawn, libvirt's containers; a virtual machine is none.
            ("/machine.slice/machine-my\\x2dbox.scope".to_owned(), Some("my-box"), None),
            ("/machine.slice/machine-my\\x2dbox.scope/payload/system.slice/cron.service".to_owned(), Some("my-box"), None),
            ("/machine.slice/systemd-nspawn@debian.service/payload".to_owned(), Some("debian"), None),
            ("/machine.slice/machine-qemu\\x2d1\\x2dweb.scope".to_owned(), None, None),
            // No containers, though some look like it.
            ("/".to_owned(), None, None),
            ("/user.slice/user-1000.slice/session-2.scope".to_owned(), None, None),
            ("/system.slice/docker.service".to_owned(), None, None),
            ("/system.slice/podman.service".to_owned(), None, None),
            ("/system.slice/tripod-1.service".to_owned(), None, None),
            ("/user.slice/user-1000.slice/user@1000.service/app.slice/app-org.gnome.Terminal.slice/vte-spawn-1d8a8e2c-6d25-4f3a-9d2c-8a6c8d7f3b11.scope".to_owned(), None, None),
            ("/process_api/44737e6df74c8eebb35a0193740858ff".to_owned(), None, None),
            (format!("/system.slice/{A}0.scope"), None, None),
            (format!("/kubepods/pod{UID}0/x"), None, None),
            ("/../../docker.slice".to_owned(), None, None),
        ];
        for (path, container, pod) in table {
            let found = parse(format!("0::{path}\n").as_bytes());
            assert_eq!(found.cgroup.as_deref(), Some(&path[..]));
            assert_eq!((found.container.as_deref(), found.pod.as_deref()), (container, pod), "{path}");
        }
    }

    #[test]
    fn the_hierarchy_that_says_most() {
        let cgroup = |text: &str| parse(text.as_bytes()).cgroup;
        // Version 2 where it says anything.
        let hybrid = "12:pids:/user.slice/user-0.slice/session-4.scope\n11:memory:/user.slice\n\
                      1:name=systemd:/user.slice/user-0.slice/session-4.scope\n0::/user.slice/user-0.slice/session-4.scope\n";
        assert_eq!(cgroup(hybrid).as_deref(), Some("/user.slice/user-0.slice/session-4.scope"));
        assert_eq!(cgroup("2:cpu:/deeper/than/that\n0::/system.slice\n").as_deref(), Some("/system.slice"));
        // A host of version 1 alone, and one whose version 2 is empty.
        let version_1 = "9:name=systemd:/\n8:pids:/\n4:memory:/batch/44737e6d\n2:cpu,cpuacct:/x:y\n0::/\n";
        assert_eq!(cgroup(version_1).as_deref(), Some("/batch/44737e6d"));
        assert_eq!(cgroup("2:cpu,cpuacct:/x:y\n1:name=systemd:/\n").as_deref(), Some("/x:y"));
        // Kernel threads, and everything on a host without groups.
        assert_eq!(cgroup("3:memory:/\n0::/\n").as_deref(), Some("/"));
        // The group was removed while the process died.
        assert_eq!(
            cgroup("0::/system.slice/a.service (deleted)\n").as_deref(),
            Some("/system.slice/a.service")
        );
        // Docker on a host with both versions: version 2 has the daemon.
        let docker = format!(
            "12:cpuset:/docker/{A}\n1:name=systemd:/docker/{A}\n0::/system.slice/containerd.service\n"
        );
        let found = parse(docker.as_bytes());
        assert_eq!(found.cgroup, Some(format!("/docker/{A}")));
        assert_eq!(found.container.as_deref(), Some(A));
    }

    #[test]
    fn what_is_no_list_of_groups() {
        for text in ["", "\n", "garbage", "0:", "0::", "0::relative", "::"] {
            assert_eq!(parse(text.as_bytes()), Membership::default(), "{text:?}");
        }
        let found = parse(b"0::/a\xff\xfeb\n");
        assert_eq!(found.cgroup.as_deref(), Some("/a\u{fffd}\u{fffd}b"));
    }

    #[test]
    fn of_ourselves_and_of_nobody() {
        let own = of_process(std::process::id()).cgroup.unwrap();
        let said = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        assert!(said.lines().any(|line| line.ends_with(&format!(":{own}"))), "{own} is not of {said}");
        assert_eq!(of_process(u32::MAX), Membership::default());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(pieces in prop::collection::vec(prop::sample::select(vec![
            "0::", "7:cpu:", "/", "pod", "kubepods", "-", "_", ":", ".slice", ".scope", "docker", "lxc", "lxc.payload.", "\\x", "\\x2",
            "\\x2d", "é", "libpod_", "conmon", "machine", "machine.slice", "buildkit", "\n", "(deleted)", " ", A, UID, UID_, STATIC,
            "\u{fffd}", "12345678", "abcd",
        ]), 0..24), bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let text = pieces.concat();
            let found = parse(text.as_bytes());
            // Whatever it takes for a container stands in the path, escapes aside.
            if let (Some(cgroup), Some(container)) = (&found.cgroup, &found.container) {
                prop_assert!(cgroup.contains("\\x") || cgroup.contains(container.as_str()));
            }
            parse(&bytes);
            parse(&[text.as_bytes(), &bytes].concat());
        }
    }
}
