//! Separate debug files: where they are looked for, and how it is proven that they belong to the module.
//!
//! A build id proves itself: the debug file carries the same one. A debug link is a name and a checksum over the whole
//! debug file. A file that was found but does not match is never used, and is named in a note.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ReadCache, ReadRef};
use uhr_model::BuildId;
use uhr_model::object::{DebugLink, ElfFile};

use crate::{DebugFiles, ElfSource, FoundBy, Mismatch, Note, Origin};

/// Where distributions install debug files.
const DEBUG_FOLDER: &str = "usr/lib/debug";

/// A debug file that belongs to the module.
pub(crate) struct DebugFile {
    pub(crate) path: PathBuf,
    pub(crate) found_by: FoundBy,
    pub(crate) file: ReadCache<File>,
}

impl DebugFile {
    pub(crate) fn origin(&self) -> Origin {
        Origin::DebugFile { path: self.path.clone(), found_by: self.found_by }
    }
}

/// Where to look: the roots of file systems, and the module's path in them.
pub(crate) struct Places<'a> {
    path: &'a Path,
    root: Option<&'a Path>,
    elsewhere: Option<&'a dyn DebugFiles>,
}

impl<'a> Places<'a> {
    pub(crate) fn of(source: &ElfSource<'a>) -> Self {
        Self { path: source.path, root: source.root, elsewhere: source.elsewhere }
    }

    /// The program's own file system first; the host's too, since a match is proven.
    fn roots(&self) -> impl Iterator<Item = &Path> {
        self.root.into_iter().chain([Path::new("/")])
    }

    /// The path that the module was mapped from.
    pub(crate) fn path(&self) -> &Path {
        self.path
    }

    /// Where a path may be, in each of the file systems. It cannot leave them by `..`.
    pub(crate) fn in_roots(&self, path: &Path) -> Vec<PathBuf> {
        let mut inside = PathBuf::new();
        for part in path.components() {
            match part {
                Component::Normal(part) => inside.push(part),
                Component::ParentDir => drop(inside.pop()),
                _ => {}
            }
        }
        self.roots().map(|root| root.join(&inside)).collect()
    }

    /// The debug file of a module.
    pub(crate) fn find(&self, elf: &ElfFile, notes: &mut Vec<Note>) -> Option<DebugFile> {
        let id = elf.build_id.as_ref();
        let here = id.and_then(|id| self.here(id, notes));
        let by_link = || elf.debug_link.as_ref().and_then(|link| self.by_link(link, id, &mut *notes));
        here.or_else(by_link).or_else(|| id.and_then(|id| self.elsewhere(id)))
    }

    /// The debug file of a build, here or elsewhere.
    pub(crate) fn by_build_id(&self, id: &BuildId, notes: &mut Vec<Note>) -> Option<DebugFile> {
        self.here(id, notes).or_else(|| self.elsewhere(id))
    }

    fn here(&self, id: &BuildId, notes: &mut Vec<Note>) -> Option<DebugFile> {
        let place = build_id_path(id)?;
        self.roots().find_map(|root| {
            let path = root.join(&place);
            let file = ReadCache::new(open_regular(&path)?);
            if ElfFile::parse(&file).ok().and_then(|elf| elf.build_id).as_ref() != Some(id) {
                notes.push(Note::DebugFileRefused { path, because: Mismatch::BuildId });
                return None;
            }
            Some(DebugFile { path, found_by: FoundBy::BuildId, file })
        })
    }

    fn elsewhere(&self, id: &BuildId) -> Option<DebugFile> {
        let path = self.elsewhere?.find(id)?;
        let file = ReadCache::new(open_regular(&path)?);
        let its_id = ElfFile::parse(&file).ok()?.build_id;
        (its_id.as_ref() == Some(id)).then_some(DebugFile { path, found_by: FoundBy::Elsewhere, file })
    }

    fn by_link(&self, link: &DebugLink, id: Option<&BuildId>, notes: &mut Vec<Note>) -> Option<DebugFile> {
        // A name with a folder in it would lead anywhere.
        let mut parts = Path::new(&link.name).components();
        let (Some(Component::Normal(name)), None) = (parts.next(), parts.next()) else { return None };
        let folder = self.path.parent()?;
        let folder = folder.strip_prefix("/").unwrap_or(folder);
        let candidates = self.roots().flat_map(|root| {
            let beside = root.join(folder);
            [
                beside.join(name),
                beside.join(".debug").join(name),
                root.join(DEBUG_FOLDER).join(folder).join(name),
            ]
        });
        for path in candidates {
            let Some(mut file) = open_regular(&path) else { continue };
            if crc32(&mut file) != Some(link.crc) {
                notes.push(Note::DebugFileRefused { path, because: Mismatch::Checksum });
                continue;
            }
            let file = ReadCache::new(file);
            let its_id = ElfFile::parse(&file).ok().and_then(|elf| elf.build_id);
            if let (Some(its_id), Some(id)) = (&its_id, id)
                && its_id != id
            {
                notes.push(Note::DebugFileRefused { path, because: Mismatch::BuildId });
                continue;
            }
            return Some(DebugFile { path, found_by: FoundBy::DebugLink, file });
        }
        None
    }

    /// The file that dwz moved the shared parts of `file` to, if it names one. `at` is where `file` itself is.
    pub(crate) fn alternate<'d, R: ReadRef<'d>>(
        &self,
        file: R,
        at: &Path,
        notes: &mut Vec<Note>,
    ) -> Option<ReadCache<File>> {
        use std::os::unix::ffi::OsStrExt;

        let elf = ElfFile64::<Endianness, R>::parse(file).ok()?;
        let (name, id) = elf.gnu_debugaltlink().ok()??;
        let name = Path::new(std::ffi::OsStr::from_bytes(name));
        let id = BuildId::new(id);
        let inside = name.strip_prefix("/").ok();
        let mut candidates: Vec<PathBuf> = match inside {
            Some(inside) => self.roots().map(|root| root.join(inside)).collect(),
            None => at.parent().map(|folder| folder.join(name)).into_iter().collect(),
        };
        if let Some(place) = id.as_ref().and_then(build_id_path) {
            candidates.extend(self.roots().map(|root| root.join(&place)));
        }
        for path in candidates {
            let Some(file) = open_regular(&path) else { continue };
            let file = ReadCache::new(file);
            if ElfFile::parse(&file).ok().and_then(|elf| elf.build_id) == id {
                return Some(file);
            }
            notes.push(Note::DebugFileRefused { path, because: Mismatch::BuildId });
        }
        let elsewhere = id.as_ref().and_then(|id| self.elsewhere(id));
        if elsewhere.is_none() {
            notes.push(Note::AlternateMissing { path: name.to_owned() });
        }
        elsewhere.map(|found| found.file)
    }
}

fn build_id_path(id: &BuildId) -> Option<PathBuf> {
    let id = id.to_string();
    let (first, rest) = id.split_at_checked(2).filter(|(_, rest)| !rest.is_empty())?;
    Some(Path::new(DEBUG_FOLDER).join(".build-id").join(first).join(format!("{rest}.debug")))
}

/// Opens regular files only: a pipe that somebody put in the place would wait for ever.
pub(crate) fn open_regular(path: &Path) -> Option<File> {
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    File::open(path).ok()
}

/// The checksum that `.gnu_debuglink` carries: the CRC-32 of zip and Ethernet, over the whole file.
fn crc32(file: &mut File) -> Option<u32> {
    let mut crc = u32::MAX;
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let length = file.read(&mut buffer).ok()?;
        if length == 0 {
            return Some(!crc);
        }
        for &byte in &buffer[..length] {
            crc = CRC_TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8);
        }
    }
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};
