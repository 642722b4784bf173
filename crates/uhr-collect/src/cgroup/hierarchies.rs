//! The hierarchies of control groups that are mounted here: one of version 2, several of version 1, or both.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use crate::procfs;

/// One mounted hierarchy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Hierarchy {
    /// Version 2, which has one hierarchy for all.
    pub(super) is_version_2: bool,
    /// Where it is mounted.
    pub(super) folder: PathBuf,
    /// The group that is mounted there: `/`, unless a container sees a part only.
    pub(super) root: PathBuf,
}

impl Hierarchy {
    /// All of them, version 2 first.
    pub(super) fn mounted() -> Vec<Self> {
        let mut found = parse(&procfs::read_proc("/proc/self/mountinfo").unwrap_or_default());
        found.sort_by_key(|hierarchy| !hierarchy.is_version_2);
        found
    }

    /// The folder of a group by its path as `/proc/PID/cgroup` says it, whether there is one or not. None if the path
    /// leads out of the hierarchy.
    pub(super) fn folder_of(&self, path: &str) -> Option<PathBuf> {
        let path = Path::new("/").join(path);
        // Where a part is mounted, the path of a group still begins at the true root.
        let inside = path.strip_prefix(&self.root).or_else(|_| path.strip_prefix("/")).ok()?;
        let stays = inside.components().all(|component| matches!(component, Component::Normal(_)));
        stays.then(|| self.folder.components().chain(inside.components()).collect())
    }

    /// The path of the group whose folder this is, and its depth; none for a folder elsewhere.
    pub(super) fn path_of(&self, folder: &Path) -> Option<(PathBuf, u32)> {
        let path = self.root.join(folder.strip_prefix(&self.folder).ok()?);
        let depth = path.components().filter(|component| matches!(component, Component::Normal(_))).count();
        Some((path, u32::try_from(depth).ok()?))
    }

    /// Whether depths are those that the kernel counts. In a cgroup namespace the root that one sees lies somewhere
    /// below the true one; that one alone has no type.
    pub(super) fn begins_at_the_true_root(&self) -> bool {
        match self.root == Path::new("/") {
            true => fs::symlink_metadata(self.folder.join("cgroup.type")).is_err(),
            false => !self.root.components().any(|component| component == Component::ParentDir),
        }
    }
}

/// Reads `/proc/self/mountinfo`.
fn parse(text: &[u8]) -> Vec<Hierarchy> {
    text.split(|&byte| byte == b'\n').filter_map(parse_mount).collect()
}

/// Field 4 is the root, field 5 where it is mounted; behind a lone hyphen comes the type.
fn parse_mount(line: &[u8]) -> Option<Hierarchy> {
    let mut fields = line.split(|&byte| byte == b' ');
    let root = fields.nth(3)?;
    let folder = fields.next()?;
    let kind = fields.skip_while(|&field| field != b"-").nth(1)?;
    let is_version_2 = match kind {
        b"cgroup2" => true,
        b"cgroup" => false,
        _ => return None,
    };
    Some(Hierarchy { is_version_2, folder: unescape(folder), root: unescape(root) })
}

/// Blanks, tabs, newlines and backslashes stand as a backslash and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, behind @ ..] = rest {
        let byte = match behind {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if *first == b'\\' => {
                rest = &behind[3..];
                (a - b'0') << 6 | (b - b'0') << 3 | (c - b'0')
            }
            _ => {
                rest = behind;
                *first
            }
        };
        bytes.push(byte);
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hierarchy(is_version_2: bool, folder: &str, root: &str) -> Hierarchy {
        Hierarchy { is_version_2, folder: folder.into(), root: root.into() }
    }

    #[test]
    fn mounts_of_real_hosts() {
        let hybrid = b"31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
            32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let expected = [
            hierarchy(false, "/sys/fs/cgroup/cpu,cpuacct", "/"),
            hierarchy(true, "/sys/fs/cgroup/unified", "/"),
        ];
        assert_eq!(parse(hybrid), expected);
        // Docker under version 1 shows a container its own part, and read-only.
        let container = b"700 699 0:30 /docker/0123abcd /sys/fs/cgroup/memory ro,nosuid master:15 - cgroup cgroup rw,memory\n";
        assert_eq!(parse(container), [hierarchy(false, "/sys/fs/cgroup/memory", "/docker/0123abcd")]);
        let elsewhere =
            b"50 49 0:26 / /mnt/my\\040groups\\134x rw master:4 shared:2 - cgroup2 none rw,nsdelegate\n";
        assert_eq!(parse(elsewhere), [hierarchy(true, "/mnt/my groups\\x", "/")]);
        assert_eq!(parse(b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\ngarbage\n1 2 3 4 5 -\n"), []);
    }

    #[test]
    fn paths_and_folders() {
        let whole = hierarchy(true, "/g", "/");
        assert_eq!(whole.folder_of("/system.slice/a.service"), Some("/g/system.slice/a.service".into()));
        assert_eq!(whole.folder_of("system.slice"), Some("/g/system.slice".into()));
        assert_eq!(whole.folder_of("/"), Some("/g".into()));
        assert_eq!(whole.folder_of("/../etc"), None);
        assert_eq!(whole.path_of(Path::new("/g/a/b")), Some(("/a/b".into(), 2)));
        assert_eq!(whole.path_of(Path::new("/g")), Some(("/".into(), 0)));
        assert_eq!(whole.path_of(Path::new("/h")), None);
        let part = hierarchy(false, "/g", "/docker/a");
        assert_eq!(part.folder_of("/docker/a/b"), Some("/g/b".into()));
        assert_eq!(part.folder_of("/b"), Some("/g/b".into()));
        assert_eq!(part.path_of(Path::new("/g/b")), Some(("/docker/a/b".into(), 3)));
        assert!(!hierarchy(true, "/g", "/../..").begins_at_the_true_root());
    }

    proptest! {
        #[test]
        fn no_mounts_make_it_panic(bytes in prop::collection::vec(prop::sample::select(
            b" -\\0137/cgroup2\n".to_vec()), 0..200), path in ".*") {
            for hierarchy in parse(&bytes) {
                let _ = hierarchy.folder_of(&path);
            }
            unescape(&bytes);
        }
    }
}
