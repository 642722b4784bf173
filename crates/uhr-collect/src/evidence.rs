//! Names that runtimes leave behind for the code they generate: perf maps and jitdumps. They are opened while the
//! process lives, in its own file system, and copied into the recording when the capture ends.
//!
//! `/tmp` is anybody's: a file is taken only if it is a regular file of the target's own user, and no link is followed.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use uhr_recording::RecordingWriter;

use crate::tasks::Process;

/// Maps that are held open at once: a build may run thousands of short Node processes.
const MAX_OPEN: usize = 1_024;
/// The most that is copied of one file, in bytes.
pub const EVIDENCE_LIMIT: u64 = 256 << 20;

/// The open maps of the processes that have generated code, by process row.
#[derive(Debug, Default)]
pub(crate) struct GeneratedNames {
    perf_maps: HashMap<u32, File>,
    jitdumps: HashMap<u32, File>,
}

impl GeneratedNames {
    /// Looks for the perf map of a process that maps generated code, unless it was found before.
    pub(crate) fn look(&mut self, process: &Process) {
        let (id, pid) = (process.row.id, process.row.pid);
        if self.perf_maps.contains_key(&id) || self.perf_maps.len() >= MAX_OPEN {
            return;
        }
        let inner = process.row.inner_pid.unwrap_or(pid);
        let path = format!("/proc/{pid}/root/tmp/perf-{inner}.map");
        if let Some(file) = open_of_user(Path::new(&path), pid) {
            self.perf_maps.insert(id, file);
        }
    }

    /// A process mapped a file that is called like a jitdump: that is how it tells where its dump is.
    pub(crate) fn jitdump(&mut self, process: &Process, path: &str) {
        let (id, pid) = (process.row.id, process.row.pid);
        let path = format!("/proc/{pid}/root/{}", path.trim_start_matches('/'));
        if self.jitdumps.len() < MAX_OPEN
            && let Some(file) = open_of_user(Path::new(&path), pid)
        {
            self.jitdumps.insert(id, file);
        }
    }

    /// Copies what was found into the recording.
    pub(crate) fn store(self, writer: &RecordingWriter) -> Result<(), uhr_recording::RecordingError> {
        let maps = self.perf_maps.into_iter().map(|(id, file)| (perf_map_name(id), file));
        let dumps = self.jitdumps.into_iter().map(|(id, file)| (jitdump_name(id), file));
        for (name, file) in maps.chain(dumps) {
            let mut bytes = Vec::new();
            if file.take(EVIDENCE_LIMIT).read_to_end(&mut bytes).is_ok() {
                writer.write_evidence(&name, &bytes)?;
            }
        }
        Ok(())
    }
}

/// Whether a mapped file is called as the jitdump specification asks (`jit-PID.dump`).
pub(crate) fn is_jitdump(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with("jit-") && name.ends_with(".dump"))
}

/// The name of the copied perf map of a process row.
pub fn perf_map_name(process: u32) -> String {
    format!("perf-{process}.map")
}

/// The name of the copied jitdump of a process row.
pub fn jitdump_name(process: u32) -> String {
    format!("jit-{process}.dump")
}

/// The name of the jitdump of an eBPF program, by its row of modules.
pub fn kernel_program_name(module: u32) -> String {
    format!("bpf-{module}.dump")
}

/// How much older than its process a file may look: clocks of files are coarse.
const SLACK_SECONDS: f64 = 2.0;

/// Opens a file of the process's own user that is not older than the process: a map that an earlier process of the same
/// pid left behind would give confident wrong names.
fn open_of_user(path: &Path, pid: u32) -> Option<File> {
    let owner = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    let is = file.metadata().ok()?;
    let is_stale =
        crate::procfs::began_at(pid).is_some_and(|began| (is.mtime() as f64) < began - SLACK_SECONDS);
    (is.is_file() && is.uid() == owner && !is_stale).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_strangers_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (own, link) = (folder.path().join("own"), folder.path().join("link"));
        std::fs::write(&own, "x").unwrap();
        std::os::unix::fs::symlink(&own, &link).unwrap();
        let pid = std::process::id();
        assert!(open_of_user(&own, pid).is_some());
        assert!(open_of_user(&link, pid).is_none());
        assert!(open_of_user(folder.path(), pid).is_none());
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3_600 * 24 * 365);
        File::options().write(true).open(&own).unwrap().set_modified(old).unwrap();
        assert!(open_of_user(&own, pid).is_none(), "left behind by an earlier process of that pid");
        File::options().write(true).open(&own).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
        if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
            std::os::unix::fs::chown(&own, Some(65_534), None).unwrap();
            assert!(open_of_user(&own, pid).is_none());
        }
    }

    #[test]
    fn jitdump_names() {
        assert!(is_jitdump("/tmp/x/jit-42.dump"));
        assert!(!is_jitdump("/tmp/jit-42.dump/other"));
    }
}
