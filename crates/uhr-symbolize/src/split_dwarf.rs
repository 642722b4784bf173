//! Split DWARF: `.dwo` files beside the objects that the compiler made, or one `.dwp` package beside the program.
//!
//! The program names its `.dwo` files, and a hostile one may name anything: only regular ELF files whose names end in
//! `.dwo` are opened, and only one with the unit's own id is used. All of them together are bounded.

use std::cell::{Cell, OnceCell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::SplitDwarfLoad;
use addr2line::gimli::{self, Dwarf, DwarfPackage, DwoId};
use object::ReadCache;
use typed_arena::Arena;

use crate::Note;
use crate::debug_files::{Places, open_regular};
use crate::dwarf::{DebugSections, MAX_BYTES, Slice};

/// More files than any program has objects.
const MAX_FILES: u32 = 50_000;

/// What is left behind in `.dwo` and `.dwp` files of one module, read when an address needs it.
pub(crate) struct SplitFiles<'a> {
    places: &'a Places<'a>,
    debug_path: &'a Path,
    read: Arena<DebugSections<'static>>,
    bytes: Cell<u64>,
    tried: Cell<u32>,
    missing: RefCell<Vec<PathBuf>>,
}

/// The package of a module, once it was looked for.
pub(crate) type Package<'s> = OnceCell<Option<DwarfPackage<Slice<'s>>>>;

impl<'a> SplitFiles<'a> {
    /// `debug_path` is the file whose DWARF names the others.
    pub(crate) fn new(places: &'a Places<'a>, debug_path: &'a Path) -> Self {
        Self {
            places,
            debug_path,
            read: Arena::new(),
            bytes: Cell::new(0),
            tried: Cell::new(0),
            missing: RefCell::default(),
        }
    }

    /// The unit that `load` asks for, from the package or from its own file.
    pub(crate) fn load<'s>(
        &'s self,
        package: &Package<'s>,
        load: &SplitDwarfLoad<Slice<'s>>,
    ) -> Option<Arc<Dwarf<Slice<'s>>>> {
        let package = package.get_or_init(|| self.package());
        if let Some(package) = package
            && let Ok(Some(unit)) = package.find_cu(load.dwo_id, &load.parent)
        {
            return Some(Arc::new(unit));
        }
        let unit = self.unit(load);
        if unit.is_none() {
            self.missing.borrow_mut().push(load.path.map(path_of).unwrap_or_default());
        }
        unit
    }

    /// `PROGRAM.dwp`, beside the program or its debug file.
    fn package<'s>(&'s self) -> Option<DwarfPackage<Slice<'s>>> {
        let with_ending = |path: &Path| {
            let mut name = path.as_os_str().to_owned();
            name.push(".dwp");
            PathBuf::from(name)
        };
        let beside_debug = with_ending(self.debug_path);
        let beside = self.places.in_roots(&with_ending(self.places.path()));
        let sections = beside.into_iter().chain([beside_debug]).find_map(|path| self.sections(&path))?;
        let empty = sections.empty();
        DwarfPackage::load(|id| Ok::<_, gimli::Error>(sections.section(id)), empty).ok()
    }

    fn unit<'s>(&'s self, load: &SplitDwarfLoad<Slice<'s>>) -> Option<Arc<Dwarf<Slice<'s>>>> {
        let name = path_of(load.path?);
        name.extension().filter(|ending| *ending == "dwo")?;
        let file_name = name.file_name()?;
        let stated = load.comp_dir.map(path_of).unwrap_or_default().join(&name);
        // Where the compiler left it; beside the program, if a build was moved as a whole.
        let mut places = self.places.in_roots(&stated);
        places.extend(self.places.in_roots(&self.places.path().with_file_name(file_name)));
        places.push(self.debug_path.with_file_name(file_name));
        places.iter().find_map(|path| {
            let sections = self.sections(path)?;
            let mut dwarf = Dwarf::load(|id| Ok::<_, gimli::Error>(sections.section(id))).ok()?;
            (unit_id(&dwarf) == Some(load.dwo_id)).then(|| {
                dwarf.make_dwo(&load.parent);
                Arc::new(dwarf)
            })
        })
    }

    /// The sections of one file, which are kept.
    fn sections(&self, path: &Path) -> Option<&DebugSections<'static>> {
        let file = open_regular(path).filter(|_| self.tried.get() < MAX_FILES)?;
        self.tried.set(self.tried.get() + 1);
        let left = MAX_BYTES.saturating_sub(self.bytes.get());
        let file = ReadCache::new(file);
        let sections = DebugSections::read_split(&file, left).ok()??.into_owned();
        self.bytes.set(self.bytes.get() + sections.bytes());
        Some(self.read.alloc(sections))
    }

    /// What a reader should know, after all addresses were looked up.
    pub(crate) fn note(&self) -> Option<Note> {
        let missing = self.missing.borrow();
        let path = missing.iter().min()?.clone();
        Some(Note::SplitMissing { path, files: missing.len() })
    }
}

fn unit_id(dwarf: &Dwarf<Slice<'_>>) -> Option<DwoId> {
    let header = dwarf.units().next().ok()??;
    dwarf.unit(header).ok()?.dwo_id
}

fn path_of(text: Slice<'_>) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(text.slice()))
}
