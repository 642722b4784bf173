//! The files that code runs from. Each is opened when it is first seen, through the process that mapped it, and held: a
//! process, a container or a file that is gone at the end still has its names.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object::ReadCache;
use uhr_model::object::{ElfFile, Segments};
use uhr_model::{BuildId, ModuleId, ModuleKind};
use uhr_recording::RecordingWriter;
use uhr_recording::tables::ModuleRow;

use uhr_unwind::UnwindModule;

/// What the kernel says of a mapped file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Identity {
    BuildId(BuildId),
    /// Device and inode number.
    Inode(u64, u64),
    None,
}

/// A module, shared by all mappings of it.
#[derive(Clone, Debug)]
pub(crate) struct Module {
    pub(crate) id: ModuleId,
    pub(crate) kind: ModuleKind,
    pub(crate) segments: Arc<Segments>,
    pub(crate) unwind: Option<Arc<UnwindModule>>,
}

/// A file that names will be read from when the capture has ended.
#[derive(Debug)]
pub struct HeldFile {
    /// The file, opened when it was first seen.
    pub file: Arc<File>,
    /// Where it was opened.
    pub path: PathBuf,
    /// The root folder of the process that mapped it, where debug files of a container are.
    pub root: Option<PathBuf>,
}

/// Unwind tables of all modules that are kept in memory though no stack needs them. Those of one large program are 20 MB.
const MAX_TABLE_BYTES: usize = 8 << 20;

/// Descriptors that modules may take; past it files are opened again by path at the end.
const MAX_HELD: usize = 4_096;

/// Paths that are kept of files that may not be opened.
const MAX_REFUSED: usize = 4_096;

/// All modules of the recording.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    by_identity: HashMap<(Vec<u8>, Identity), Module>,
    generated: HashMap<u32, Module>,
    vdso: Option<Module>,
    kernel: Option<ModuleId>,
    count: u32,
    held: HashMap<ModuleId, HeldFile>,
    /// Paths of files that are there and that uhr may not open.
    refused: BTreeSet<Vec<u8>>,
    /// Of all files.
    tables: Vec<Arc<UnwindModule>>,
}

impl Modules {
    /// The module of a file mapping of process `pid`.
    pub(crate) fn of_file(
        &mut self,
        pid: u32,
        path: &[u8],
        range: (u64, u64),
        identity: Identity,
        writer: &mut RecordingWriter,
    ) -> Module {
        let key = (path.to_vec(), identity);
        let known = self.by_identity.get(&key).cloned();
        if let Some(module) = known.clone().filter(|module| module.kind != ModuleKind::UnreadElf) {
            return module;
        }
        // One that could not be opened, because its process was gone, is tried again through the next.
        let opened = open(pid, path, range, &key.1);
        match &opened {
            Err(Miss::Refused) if self.refused.len() < MAX_REFUSED => _ = self.refused.insert(path.to_vec()),
            Err(_) => {}
            Ok(_) => _ = self.refused.remove(path),
        }
        let opened = opened.ok();
        if let (None, Some(module)) = (&opened, known) {
            return module;
        }
        let elf = opened.as_ref().and_then(|held| parse(&held.file).ok());
        // `/proc` tells inodes, records tell build ids: the same file by either is the same module.
        let by_build_id = elf.as_ref().and_then(|elf| elf.build_id.clone()).map(Identity::BuildId);
        let alias = by_build_id.map(|identity| (path.to_vec(), identity)).filter(|alias| *alias != key);
        if let Some(module) = alias.as_ref().and_then(|alias| self.by_identity.get(alias)).cloned() {
            self.by_identity.insert(key, module.clone());
            return module;
        }
        let id = self.next_id();
        let kind = match (&opened, &elf) {
            (_, Some(_)) => ModuleKind::Elf,
            (Some(_), None) => ModuleKind::File,
            (None, None) => ModuleKind::UnreadElf,
        };
        let known_id = match &key.1 {
            Identity::BuildId(build_id) => Some(build_id.clone()),
            _ => elf.as_ref().and_then(|elf| elf.build_id.clone()),
        };
        let is_held = self.held.len() < MAX_HELD;
        let unwind = opened.as_ref().zip(elf.as_ref()).map(|(opened, elf)| match is_held {
            true => UnwindModule::of_file(opened.file.clone(), elf),
            false => UnwindModule::read(&opened.file, elf),
        });
        let module = Module {
            id,
            kind,
            segments: Arc::new(elf.map(|elf| elf.segments).unwrap_or_default()),
            unwind: unwind.map(Arc::new),
        };
        self.tables.extend(module.unwind.clone());
        let shown = String::from_utf8_lossy(path).into_owned();
        write(writer, id, kind, shown, known_id, None);
        if let Some(held) = opened.filter(|_| is_held) {
            self.held.insert(id, held);
        }
        if let Some(alias) = alias {
            self.by_identity.insert(alias, module.clone());
        }
        self.by_identity.insert(key, module.clone());
        module
    }

    /// The generated code of a process row.
    pub(crate) fn generated(&mut self, process: u32, writer: &mut RecordingWriter) -> Module {
        if let Some(module) = self.generated.get(&process) {
            return module.clone();
        }
        let id = self.next_id();
        write(writer, id, ModuleKind::Jit, "[jit]".to_owned(), None, Some(process));
        let module = Module { id, kind: ModuleKind::Jit, segments: Arc::default(), unwind: None };
        self.generated.insert(process, module.clone());
        module
    }

    /// The vDSO: the same image in every 64-bit process, so our own is read.
    pub(crate) fn vdso(&mut self, writer: &mut RecordingWriter) -> Module {
        if let Some(module) = &self.vdso {
            return module.clone();
        }
        let id = self.next_id();
        let image = vdso_image().unwrap_or_default();
        let elf = ElfFile::parse(image.as_slice()).ok();
        let build_id = elf.as_ref().and_then(|elf| elf.build_id.clone());
        let module = Module {
            id,
            kind: ModuleKind::Vdso,
            segments: Arc::new(elf.map(|elf| elf.segments).unwrap_or_default()),
            unwind: UnwindModule::from_image(&image).ok().map(Arc::new),
        };
        write(writer, id, ModuleKind::Vdso, "[vdso]".to_owned(), build_id, None);
        self.vdso = Some(module.clone());
        module
    }

    /// The running kernel.
    pub(crate) fn kernel(&mut self, writer: &mut RecordingWriter) -> ModuleId {
        if let Some(id) = self.kernel {
            return id;
        }
        let id = self.next_id();
        write(writer, id, ModuleKind::Kernel, "[kernel]".to_owned(), None, None);
        self.kernel = Some(id);
        id
    }

    /// An eBPF program.
    pub(crate) fn kernel_program(&mut self, writer: &mut RecordingWriter) -> ModuleId {
        let id = self.next_id();
        write(writer, id, ModuleKind::Bpf, "[bpf]".to_owned(), None, None);
        id
    }

    /// Lets go of unwind tables that were not needed since this was last called, where there is much of them.
    pub(crate) fn trim(&self) {
        let bytes: usize = self.tables.iter().map(|tables| tables.table_bytes()).sum();
        if bytes > MAX_TABLE_BYTES {
            self.tables.iter().for_each(|tables| tables.let_go_unused());
        }
    }

    /// The files that uhr may not open: how many, and one of them.
    pub(crate) fn refused(&self) -> Option<(usize, String)> {
        let first = self.refused.first()?;
        Some((self.refused.len(), String::from_utf8_lossy(first).into_owned()))
    }

    /// The files that are held, for the lookup of names.
    pub(crate) fn into_held(self) -> HashMap<ModuleId, HeldFile> {
        self.held
    }

    fn next_id(&mut self) -> ModuleId {
        let id = ModuleId(self.count);
        self.count += 1;
        id
    }
}

fn write(
    writer: &mut RecordingWriter,
    id: ModuleId,
    kind: ModuleKind,
    path: String,
    build_id: Option<BuildId>,
    process: Option<u32>,
) {
    writer.push_module(ModuleRow {
        id: id.0,
        kind: kind.code(),
        path,
        build_id: build_id.map(|id| id.to_string()),
        process,
        symbols: None,
    });
}

/// Parses the headers of an open file.
pub(crate) fn parse(file: &File) -> Result<ElfFile, uhr_model::object::ElfError> {
    let reread = file.try_clone().map_err(|_| uhr_model::object::ElfError::NotElf)?;
    ElfFile::parse(&ReadCache::new(reread))
}

/// Why a mapped file was not opened.
enum Miss {
    /// It is gone, or another one by now.
    Gone,
    /// uhr has not the rights.
    Refused,
}

/// Opens a mapped file, by the ways that lead to the very file that is mapped first. What is opened is taken only if it
/// is what the kernel says was mapped: a file that was replaced in the meantime would give confident wrong names.
fn open(pid: u32, path: &[u8], range: (u64, u64), identity: &Identity) -> Result<HeldFile, Miss> {
    use std::os::unix::ffi::OsStrExt;
    let path = Path::new(std::ffi::OsStr::from_bytes(path.strip_suffix(b" (deleted)").unwrap_or(path)));
    let process = PathBuf::from(format!("/proc/{pid}"));
    let root = process.join("root");
    let in_root = root.join(path.strip_prefix("/").unwrap_or(path));
    let is_executable_file = std::fs::read_link(process.join("exe")).is_ok_and(|exe| {
        exe.as_os_str().as_bytes().strip_suffix(b" (deleted)").unwrap_or(exe.as_os_str().as_bytes())
            == path.as_os_str().as_bytes()
    });
    let candidates = [
        Some(process.join(format!("map_files/{:x}-{:x}", range.0, range.1))),
        is_executable_file.then(|| process.join("exe")),
        Some(in_root),
        Some(path.to_owned()),
    ];
    let root = std::fs::read_link(&root).ok().filter(|root| root != Path::new("/")).map(|_| root);
    let mut miss = Miss::Gone;
    for candidate in candidates.into_iter().flatten() {
        match open_regular(&candidate) {
            Ok(Some(file)) if is_same(&file, identity) => {
                return Ok(HeldFile { file: Arc::new(file), path: path.to_owned(), root });
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => miss = Miss::Refused,
            Err(_) => {}
        }
    }
    Err(miss)
}

/// Opens without blocking, and only regular files: a path of the target may lead to a pipe or a device.
fn open_regular(path: &Path) -> io::Result<Option<File>> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path)?;
    let kind = file.metadata()?.file_type();
    Ok(kind.is_file().then_some(file))
}

fn is_same(file: &File, identity: &Identity) -> bool {
    match identity {
        Identity::BuildId(expected) => parse(file).is_ok_and(|elf| elf.build_id.as_ref() == Some(expected)),
        // Overlay and btrfs show other devices in maps than in stat, so the inode number decides.
        Identity::Inode(_, inode) => file.metadata().is_ok_and(|is| is.ino() == *inode),
        Identity::None => true,
    }
}

/// Reads the vDSO out of our own memory.
pub fn vdso_image() -> Option<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let mut image = vec![0; usize::try_from(end - start).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut image, start).ok()?;
    Some(image)
}
