//! A control group as what is recorded: every process in it and in the groups below.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::hierarchies::Hierarchy;
use crate::error::CollectError;
use crate::procfs;

/// Groups that an error names.
const SIMILAR: usize = 5;
/// Folders that are looked at for similar names.
const MAX_FOLDERS: usize = 20_000;

/// A control group that is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CgroupTarget {
    /// Its path as `/proc/PID/cgroup` says it.
    pub path: String,
    /// Its number in the kernel, which eBPF programs compare: the inode of its folder. None in version 1, and where a
    /// namespace hides how deep it lies: there its processes can be listed and not more.
    pub id: Option<u64>,
    /// How deep it lies; the root is 0.
    pub level: u32,
    /// Its folder.
    pub folder: PathBuf,
}

impl CgroupTarget {
    /// Finds a group by its folder (`/sys/fs/cgroup/system.slice/nginx.service`) or by its path from the root
    /// (`/system.slice/nginx.service`), in version 2 first.
    ///
    /// # Errors
    /// [`CollectError::NoSuchCgroup`], with the names that come near.
    pub fn find(path: &str) -> Result<Self, CollectError> {
        find_in(&Hierarchy::mounted(), path)
    }

    /// The processes in it and in all groups below that live now, in order.
    ///
    /// # Errors
    /// If a group may not be read. One that has gone meanwhile is none.
    pub fn processes(&self) -> Result<Vec<u32>, CollectError> {
        let mut pids = Vec::new();
        let mut folders = vec![self.folder.clone()];
        let read = |source| CollectError::System { step: "read the processes of the cgroup", source };
        while let Some(folder) = folders.pop() {
            pids.extend(unless_gone(members(&folder)).map_err(read)?);
            folders.extend(unless_gone(below(&folder)).map_err(read)?);
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }
}

fn find_in(hierarchies: &[Hierarchy], path: &str) -> Result<CgroupTarget, CollectError> {
    // A folder anywhere, by links too: /sys/fs/cgroup/cpu may be one to cpu,cpuacct.
    let named = path.starts_with('/').then(|| fs::canonicalize(path).ok()).flatten();
    let by_folder = named.iter().flat_map(|folder| hierarchies.iter().map(move |of| (of, folder.clone())));
    let by_path = hierarchies.iter().filter_map(|of| Some((of, of.folder_of(path)?)));
    by_folder
        .chain(by_path.filter(|_| !path.is_empty()))
        .find_map(|(of, folder)| target(of, &folder))
        .ok_or_else(|| CollectError::NoSuchCgroup {
            path: path.to_owned(),
            looked: hierarchies.iter().map(|of| of.folder.clone()).collect(),
            similar: similar(hierarchies, path),
        })
}

/// The group of this folder, if it is one of this hierarchy.
fn target(hierarchy: &Hierarchy, folder: &Path) -> Option<CgroupTarget> {
    let (path, level) = hierarchy.path_of(folder)?;
    let metadata = fs::metadata(folder).ok().filter(fs::Metadata::is_dir)?;
    let is_known = hierarchy.is_version_2 && hierarchy.begins_at_the_true_root();
    Some(CgroupTarget {
        path: path.to_string_lossy().into_owned(),
        id: is_known.then(|| metadata.ino()),
        level,
        folder: folder.to_owned(),
    })
}

/// Paths of groups that were perhaps meant: of the same name elsewhere, whose name holds the wanted one, or else the
/// neighbours of where it was looked for.
fn similar(hierarchies: &[Hierarchy], wanted: &str) -> Vec<String> {
    let wanted = Path::new("/").join(wanted);
    let name = wanted.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let stem =
        [".service", ".scope", ".slice"].iter().find_map(|kind| name.strip_suffix(kind)).unwrap_or(&name);
    let mut found = Vec::new();
    for hierarchy in hierarchies {
        let mut folders = VecDeque::from([hierarchy.folder.clone()]);
        for _ in 0..MAX_FOLDERS {
            let Some(folder) = folders.pop_front() else { break };
            folders.extend(below(&folder).unwrap_or_default());
            let own = folder.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
            let Some((path, _)) = hierarchy.path_of(&folder).filter(|(path, _)| path.parent().is_some())
            else {
                continue;
            };
            let rank = if own == name {
                0
            } else if !stem.is_empty() && own.contains(stem) {
                1
            } else if wanted.parent() == path.parent() || wanted.parent() == folder.parent() {
                2
            } else {
                continue;
            };
            found.push((rank, path.as_os_str().len(), path.to_string_lossy().into_owned()));
        }
    }
    found.sort();
    let best = found.first().map(|(rank, ..)| *rank);
    found.retain(|(rank, ..)| *rank < 2 || best == Some(2));
    let mut paths: Vec<String> = found.into_iter().map(|(.., path)| path).collect();
    paths.dedup();
    paths.truncate(SIMILAR);
    paths
}

/// The groups right below.
fn below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// The processes of one group.
fn members(folder: &Path) -> io::Result<Vec<u32>> {
    let listed = |file: &str| -> io::Result<Vec<u32>> {
        let text = fs::read_to_string(folder.join(file))?;
        // Processes that this pid namespace does not have are shown as 0.
        Ok(text.lines().filter_map(|line| line.parse().ok()).filter(|&pid| pid != 0).collect())
    };
    match listed("cgroup.procs") {
        // A group of threads: the group above lists its processes as a whole.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            Ok(listed("cgroup.threads")?.into_iter().filter_map(procfs::process_of).collect())
        }
        listed => listed,
    }
}

/// Groups come and go while they are read.
fn unless_gone<T: Default>(result: io::Result<T>) -> io::Result<T> {
    match result {
        Err(error)
            if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV) =>
        {
            Ok(T::default())
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// A version 2 and a version 1 hierarchy as folders.
    fn hierarchies(folder: &Path) -> Vec<Hierarchy> {
        for group in
            ["2/system.slice/nginx.service", "2/system.slice/ssh.service/a/b", "1/docker/0123abcd", "1/only"]
        {
            fs::create_dir_all(folder.join(group)).unwrap();
        }
        ["2", "1"]
            .map(|name| Hierarchy { is_version_2: name == "2", folder: folder.join(name), root: "/".into() })
            .to_vec()
    }

    #[test]
    fn by_folder_or_by_path() {
        let folder = tempfile::tempdir().unwrap();
        let at = fs::canonicalize(folder.path()).unwrap();
        let hierarchies = hierarchies(&at);
        std::os::unix::fs::symlink("1", at.join("link")).unwrap();
        let full = |inside: &str| at.join(inside).to_string_lossy().into_owned();
        #[rustfmt::skip]
        let table = [
            ("/system.slice/nginx.service".to_owned(), "/system.slice/nginx.service", 2, "2/system.slice/nginx.service"),
            ("system.slice/nginx.service/".to_owned(), "/system.slice/nginx.service", 2, "2/system.slice/nginx.service"),
            (full("2/system.slice/ssh.service/a"), "/system.slice/ssh.service/a", 3, "2/system.slice/ssh.service/a"),
            ("/".to_owned(), "/", 0, "2"),
            (full("2"), "/", 0, "2"),
            ("docker/0123abcd".to_owned(), "/docker/0123abcd", 2, "1/docker/0123abcd"),
            (full("link/only"), "/only", 1, "1/only"),
        ];
        for (asked, path, level, inside) in table {
            let found = find_in(&hierarchies, &asked).unwrap();
            assert_eq!(
                (&found.path[..], found.level, &found.folder),
                (path, level, &at.join(inside)),
                "{asked}"
            );
            let inode = fs::metadata(&found.folder).unwrap().ino();
            assert_eq!(found.id, inside.starts_with('2').then_some(inode), "{asked}");
        }
    }

    #[test]
    fn a_wrong_name_is_told_with_those_that_come_near() {
        let folder = tempfile::tempdir().unwrap();
        let hierarchies = hierarchies(folder.path());
        let near = |asked: &str| match find_in(&hierarchies, asked) {
            Err(CollectError::NoSuchCgroup { path, looked, similar }) => {
                assert_eq!((&path[..], looked.len()), (asked, 2));
                similar
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(near("/nginx.service"), ["/system.slice/nginx.service"]);
        assert_eq!(near("NGINX"), ["/system.slice/nginx.service"]);
        assert_eq!(near("/docker/0123"), ["/docker/0123abcd"]);
        assert_eq!(
            near("/system.slice/httpd.service"),
            ["/system.slice/ssh.service", "/system.slice/nginx.service"]
        );
        assert_eq!(near("/etc"), ["/only", "/docker", "/system.slice"]);
        for nothing in ["", "/nowhere/near", "/../../etc", "/proc/self/fd"] {
            assert_eq!(near(nothing), [""; 0], "{nothing}");
        }
        let nowhere = find_in(&[], "/a").unwrap_err().to_string();
        assert_eq!(nowhere, "there is no cgroup /a: no hierarchy of cgroups is mounted");
    }

    /// A group of version 2 that ends with the test, with a process in it and one below.
    struct Living {
        folder: PathBuf,
        children: Vec<Child>,
    }

    impl Living {
        fn new() -> Option<Self> {
            let hierarchies = Hierarchy::mounted();
            let root = hierarchies.iter().find(|of| of.is_version_2 && of.begins_at_the_true_root())?;
            let folder = root.folder.join(format!("uhr-test-{}", std::process::id()));
            fs::create_dir_all(folder.join("below/and below")).ok()?;
            let mut living = Self { folder, children: Vec::new() };
            for inside in ["", "below/and below"] {
                let child = Command::new("sleep").arg("60").spawn().unwrap();
                let pid = child.id().to_string();
                living.children.push(child);
                fs::write(living.folder.join(inside).join("cgroup.procs"), pid).ok()?;
            }
            Some(living)
        }
    }

    impl Drop for Living {
        fn drop(&mut self) {
            for child in &mut self.children {
                let _ = child.kill();
                let _ = child.wait();
            }
            for inside in ["below/and below", "below", ""] {
                let _ = fs::remove_dir(self.folder.join(inside));
            }
        }
    }

    /// The kernel's own number of a folder, out of a file handle.
    fn kernel_id(folder: &Path) -> u64 {
        let path = std::ffi::CString::new(folder.as_os_str().as_encoded_bytes()).unwrap();
        // struct file_handle: the size of what follows, the type, and up to 8 bytes.
        let (mut handle, mut mount) = ([8_u32, 0, 0, 0], 0_i32);
        // SAFETY: the path ends with a zero byte; handle has room for as many bytes as its first field says.
        let result = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                libc::AT_FDCWD,
                path.as_ptr(),
                &raw mut handle,
                &raw mut mount,
                0,
            )
        };
        assert_eq!((result, handle[0]), (0, 8), "{}", io::Error::last_os_error());
        u64::from(handle[3]) << 32 | u64::from(handle[2])
    }

    #[test]
    fn a_living_group() {
        let Some(living) = Living::new() else {
            eprintln!("SKIPPED: no cgroup of version 2 can be made here");
            return;
        };
        let name = format!("/uhr-test-{}", std::process::id());
        let found = CgroupTarget::find(&name).unwrap();
        assert_eq!((&found.path, found.level, &found.folder), (&name, 1, &living.folder));
        assert_eq!(found.id, Some(kernel_id(&living.folder)));
        assert_eq!(CgroupTarget::find(&living.folder.to_string_lossy()).unwrap(), found);
        let mut pids: Vec<u32> = living.children.iter().map(Child::id).collect();
        pids.sort_unstable();
        assert_eq!(found.processes().unwrap(), pids);
        let inner = living.folder.join("below/and below");
        let below = CgroupTarget::find(&inner.to_string_lossy()).unwrap();
        assert_eq!((below.level, below.processes().unwrap()), (3, vec![living.children[1].id()]));
        assert_eq!(
            crate::cgroup::membership::of_process(living.children[1].id()).cgroup,
            Some(below.path.clone())
        );
        drop(living);
        assert!(below.processes().unwrap().is_empty());
        assert!(CgroupTarget::find(&name).is_err());
    }
}
