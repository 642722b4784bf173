//! What mappings are called, and the numbers under which the recording has those names.
//!
//! The record of an mmap tells the path of a file. What a program calls its anonymous memory (`prctl(PR_SET_VMA_ANON_NAME)`,
//! Linux 5.17) gives no record, and comes later: it is asked for when a page fault falls on such memory.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use uhr_recording::RecordingWriter;
use uhr_recording::tables::MappingNameRow;

/// Names in one recording: a program can make up as many as it likes.
const MAX_NAMES: usize = 16_384;
/// Bytes of a name. A path may be longer, a name that a program gives has at most 80.
const MAX_BYTES: usize = 512;
/// The kernel's word behind the path of a file that was deleted, as all memory files are from the beginning.
const DELETED: &str = " (deleted)";

/// The name of a mapping out of what the kernel writes for its path. `None`: the kind of memory says all.
pub(crate) fn name_of(path: &[u8]) -> Option<Arc<str>> {
    let text = String::from_utf8_lossy(path.get(..path.len().min(4 * MAX_BYTES))?);
    let name = text.strip_suffix(DELETED).unwrap_or(&text);
    // Memory without a file has a file in the kernel, if it is shared or made of huge pages.
    let is_nameless = matches!(name, "" | "//anon" | "/dev/zero" | "/anon_hugepage" | "[heap]" | "[vdso]")
        || name.starts_with("[stack");
    if is_nameless {
        return None;
    }
    Some(match name.len() > MAX_BYTES {
        true => format!("{}…", &name[..name.floor_char_boundary(MAX_BYTES)]).into(),
        false => name.into(),
    })
}

/// The names that mappings have now, each once: every process has the same libraries.
#[derive(Debug, Default)]
pub(crate) struct SharedNames(FxHashSet<Arc<str>>);

impl SharedNames {
    /// As [`name_of`].
    pub(crate) fn of(&mut self, path: &[u8]) -> Option<Arc<str>> {
        let name = name_of(path)?;
        if let Some(known) = self.0.get(&name) {
            return Some(Arc::clone(known));
        }
        // Of more, the later ones are shared among themselves.
        if self.0.len() >= MAX_NAMES {
            self.0.clear();
        }
        self.0.insert(Arc::clone(&name));
        Some(name)
    }
}

/// The names that the recording has.
#[derive(Debug, Default)]
pub(crate) struct MappingNames {
    numbers: FxHashMap<Arc<str>, u32>,
    /// Page faults that samples without a name stand for, because there were too many names.
    pub(crate) left_out: u64,
    /// And those in memory whose name could not be asked for, because the process was gone.
    pub(crate) unasked: u64,
}

impl MappingNames {
    /// The number of the name of memory that so many page faults fell on. `None`: there are too many names.
    pub(crate) fn number(
        &mut self,
        name: &Arc<str>,
        faults: u64,
        writer: &mut RecordingWriter,
    ) -> Option<u32> {
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        if self.numbers.len() >= MAX_NAMES {
            self.left_out += faults;
            return None;
        }
        let id = self.numbers.len() as u32;
        writer.push_mapping_name(MappingNameRow { id, name: name.to_string() });
        self.numbers.insert(Arc::clone(name), id);
        Some(id)
    }

    /// What was missed, in words.
    pub(crate) fn misses(&self) -> [(&'static str, u64); 2] {
        [
            ("page faults in mappings whose names were too many", self.left_out),
            ("page faults in memory whose name could not be asked for any more", self.unasked),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_the_kernel_writes_them() {
        let name = |path: &str| name_of(path.as_bytes()).map(|name| name.to_string());
        for nameless in
            ["", "//anon", "/dev/zero (deleted)", "/anon_hugepage (deleted)", "[heap]", "[stack]", "[vdso]"]
        {
            assert_eq!(name(nameless), None, "{nameless}");
        }
        for (path, named) in [
            ("/usr/lib/libc.so.6", "/usr/lib/libc.so.6"),
            ("/memfd:frames (deleted)", "/memfd:frames"),
            ("/SYSV0000002a (deleted)", "/SYSV0000002a"),
            ("/dev/shm/queue", "/dev/shm/queue"),
            ("[anon:scudo:primary]", "[anon:scudo:primary]"),
            ("[anon_shmem:ring]", "[anon_shmem:ring]"),
            ("[anon: glibc: malloc arena]", "[anon: glibc: malloc arena]"),
        ] {
            assert_eq!(name(path).as_deref(), Some(named));
        }
        let long = format!("/{}", "ü".repeat(3000));
        let cut = name(&long).unwrap();
        assert!(cut.ends_with('…') && cut.len() < 520 && long.starts_with(cut.trim_end_matches('…')));
        assert_eq!(name_of(b"/\xff\xfe").as_deref(), Some("/\u{fffd}\u{fffd}"));
    }
}
