//! The files that a process's code is in: do they have names, lines, unwind tables, frame pointers?

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use object::ReadCache;
use schemars::JsonSchema;
use serde::Serialize;
use uhr_model::object::ElfFile;
use uhr_symbolize::{ElfSource, ModuleSource, Origin, symbolize};
use uhr_unwind::{FramePointers, UnwindModule};

/// Files that are looked at: a browser has some 200.
const MOST_FILES: usize = 256;

/// One file of code.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Module {
    /// Its path, as the process sees it.
    pub(super) path: String,
    /// Its build id, in hexadecimal.
    pub(super) build_id: Option<String>,
    /// Where names will come from.
    pub(super) symbols: Symbols,
    /// Whether it has unwind tables; missing if it could not be read.
    pub(super) unwind_tables: Option<bool>,
    /// Share of its functions that keep the frame pointer; missing where its unwind tables do not tell.
    pub(super) frame_pointer_share: Option<f64>,
    /// Whether the Go compiler built it.
    pub(super) is_go: bool,
}

/// Where the names of a file will come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Symbols {
    /// Functions, lines and inlined functions, from the file itself.
    Lines,
    /// The same, from a separate debug file.
    DebugFile,
    /// Functions, without lines.
    Functions,
    /// Only functions that other files may call: it is stripped.
    Exported,
    /// It could not be read.
    Unreadable,
}

impl Module {
    /// Whether a stack can break in it.
    pub(super) fn is_blind(&self) -> bool {
        self.unwind_tables == Some(false) && !self.keeps_frame_pointers()
    }

    /// Whether its functions keep the frame pointer, all of them or nearly.
    pub(super) fn keeps_frame_pointers(&self) -> bool {
        self.frame_pointer_share.is_some_and(|share| share >= 1.0)
    }
}

/// The files of a process.
#[derive(Debug, Default)]
pub(super) struct Modules {
    /// Those that were looked at, in the order of `maps`.
    pub(super) files: Vec<Module>,
    /// How many more there are.
    pub(super) left_out: usize,
}

impl Modules {
    /// Looks at the files of executable mappings in the text of `/proc/PID/maps`.
    pub(super) fn read(pid: u32, maps: &[u8]) -> Self {
        let mut seen = BTreeSet::new();
        let mut modules = Self::default();
        for mapping in maps.split(|&byte| byte == b'\n').filter_map(Mapping::parse) {
            if !seen.insert(mapping.path.to_vec()) {
                continue;
            }
            if modules.files.len() == MOST_FILES {
                modules.left_out += 1;
                continue;
            }
            modules.files.push(mapping.examine(pid));
        }
        modules
    }
}

/// An executable mapping of a file.
struct Mapping<'a> {
    range: &'a str,
    inode: u64,
    path: &'a [u8],
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.splitn(6, |&byte| byte == b' ');
        let range = std::str::from_utf8(fields.next()?).ok()?;
        let permissions = fields.next()?;
        let inode = std::str::from_utf8(fields.nth(2)?).ok()?.parse().ok()?;
        let path = fields.next()?.trim_ascii_start();
        (permissions.get(2) == Some(&b'x') && path.starts_with(b"/")).then_some(Self { range, inode, path })
    }

    fn examine(&self, pid: u32) -> Module {
        let path = String::from_utf8_lossy(self.path).into_owned();
        let unreadable = Module {
            path,
            build_id: None,
            symbols: Symbols::Unreadable,
            unwind_tables: None,
            frame_pointer_share: None,
            is_go: false,
        };
        let Some((opened, file)) = self.open(pid) else { return unreadable };
        let Some(elf) = file.try_clone().ok().and_then(|file| ElfFile::parse(&ReadCache::new(file)).ok())
        else {
            return unreadable;
        };
        let has = |name: &str| elf.section(name).is_some_and(|section| section.in_file);
        Module {
            build_id: elf.build_id.as_ref().map(ToString::to_string),
            symbols: self.symbols(pid, &opened, &elf),
            unwind_tables: Some(has(".eh_frame") || has(".debug_frame") || has(".gopclntab")),
            frame_pointer_share: match UnwindModule::read(&file, &elf).frame_pointers() {
                FramePointers::Everywhere => Some(1.0),
                FramePointers::Missing { share } => Some((share * 1e3).round() / 1e3),
                FramePointers::Unknown => None,
            },
            is_go: has(".go.buildinfo"),
            ..unreadable
        }
    }

    fn symbols(&self, pid: u32, opened: &Path, elf: &ElfFile) -> Symbols {
        let has = |name: &str| elf.section(name).is_some_and(|section| section.in_file);
        if has(".debug_info") || has(".zdebug_info") {
            return Symbols::Lines;
        }
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let source = ElfSource {
            open: opened,
            path: Path::new(OsStr::from_bytes(self.path)),
            build_id: elf.build_id.as_ref(),
            root: Some(&root),
            elsewhere: None,
        };
        match symbolize(&ModuleSource::Elf(source), &[]).origin {
            Origin::DebugFile { .. } => Symbols::DebugFile,
            Origin::MiniDebug => Symbols::Functions,
            _ if has(".symtab") => Symbols::Functions,
            _ => Symbols::Exported,
        }
    }

    /// By the mapping itself where that is allowed, else by the path in the process's own file system, and then only if
    /// it is still the file that was mapped.
    fn open(&self, pid: u32) -> Option<(PathBuf, File)> {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let inside = Path::new(OsStr::from_bytes(self.path.strip_prefix(b"/")?));
        let candidates = [process.join("map_files").join(self.range), process.join("root").join(inside)];
        candidates.into_iter().find_map(|path| {
            // A path of the target may lead to a pipe or a device: those are not waited for.
            let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path).ok()?;
            let metadata = file.metadata().ok()?;
            (metadata.is_file() && metadata.ino() == self.inode).then_some((path, file))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_files() {
        let line = b"7f00-7f10 r-xp 00001000 fe:01 1234                       /usr/lib/a b.so (deleted)";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!((mapping.range, mapping.inode), ("7f00-7f10", 1234));
        assert_eq!(mapping.path, b"/usr/lib/a b.so (deleted)");
        assert!(Mapping::parse(b"7f00-7f10 rw-p 00001000 fe:01 1234  /usr/lib/a.so").is_none());
        assert!(Mapping::parse(b"7f00-7f10 r-xp 00000000 00:00 0 [vdso]").is_none());
        assert!(Mapping::parse(b"").is_none());
        assert!(Mapping::parse(b"x y z").is_none());
    }

    #[test]
    fn this_test_has_names_lines_and_unwind_tables() {
        let own = Modules::read(std::process::id(), &std::fs::read("/proc/self/maps").unwrap());
        let program = std::env::current_exe().unwrap().display().to_string();
        let module = own.files.iter().find(|module| module.path == program).unwrap();
        assert_eq!(module.symbols, Symbols::Lines);
        assert_eq!(module.unwind_tables, Some(true));
        assert!(!module.is_blind() && !module.is_go);
    }
}
