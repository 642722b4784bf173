//! What code ran: frames with their inline chains, functions, modules and files, each name once.

use rustc_hash::FxHashMap;
use uhr_model::{FrameMode, ModuleKind};
use uhr_recording::tables::{Frames, LocationRow, Locations, ModuleRow};

use crate::QueryError;

/// No file, or no line.
pub(crate) const NONE: u32 = u32::MAX;

/// One function at one place: a physical frame has one of these for itself, and one for each function inlined into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Location {
    /// Index into [`Code::functions`].
    pub(crate) function: u32,
    /// Index into [`Code::files`], or [`NONE`].
    pub(crate) file: u32,
    /// Line, or [`NONE`].
    pub(crate) line: u32,
    /// What kind of code it is.
    pub(crate) mode: FrameMode,
    /// Row of `frames`, or [`NONE`]. Of many that are alike it is one of them.
    pub(crate) frame: u32,
}

impl Location {
    /// A function anywhere in it.
    pub(crate) fn of_function(function: u32) -> Self {
        Self { function, file: NONE, line: NONE, mode: FrameMode::User, frame: NONE }
    }
}

/// Where a frame's code is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Site {
    /// Row of `modules`, or [`NONE`] where the address lay in no known mapping.
    pub(crate) module: u32,
    /// The lookup address in it: of a call, inside the call.
    pub(crate) address: u64,
}

/// A function: the same name in the same module is the same function, whichever build the module is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Function {
    /// Demangled name, or `module+0xoffset`.
    pub(crate) name: Box<str>,
    /// Index into [`Code::modules`].
    pub(crate) module: u32,
    /// Whether the name is one, and not an offset.
    pub(crate) named: bool,
}

/// Frames and everything they are called.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub(crate) functions: Vec<Function>,
    /// Base names of modules; `[unknown]`, `[kernel]` and the like for what is no file.
    pub(crate) modules: Vec<Box<str>>,
    pub(crate) files: Vec<Box<str>>,
    /// Locations of all frames, innermost first.
    pub(crate) locations: Vec<Location>,
    /// Where each frame is.
    pub(crate) sites: Vec<Site>,
    /// For each frame, its first location; one more at the end.
    first: Vec<u32>,
    /// Modules of which several builds were seen, by base name.
    pub(crate) merged_builds: Vec<Box<str>>,
}

impl Code {
    /// The locations of a frame, innermost function first. Never empty.
    #[inline]
    pub(crate) fn of(&self, frame: u32) -> &[Location] {
        &self.locations[self.range(frame)]
    }

    /// Where [`Code::of`] stands in [`Code::locations`].
    #[inline]
    pub(crate) fn range(&self, frame: u32) -> std::ops::Range<usize> {
        self.first[frame as usize] as usize..self.first[frame as usize + 1] as usize
    }

    /// The base name of a function's module.
    pub(crate) fn module_of(&self, function: u32) -> &str {
        &self.modules[self.functions[function as usize].module as usize]
    }

    pub(super) fn new(frames: &Frames, names: &Locations, modules: &[ModuleRow]) -> Result<Self, QueryError> {
        let damaged = |what: &str| QueryError::Damaged(what.to_owned());
        let count = frames.id.len();
        let columns = [frames.mode.len(), frames.module.len(), frames.address.len()];
        if columns.into_iter().any(|length| length != count) {
            return Err(damaged("frames lacks a column"));
        }
        let order = Order::new(names, count)?;
        let mut builder = Builder::new(modules);
        for frame in 0..count {
            if frames.id[frame] as usize != frame {
                return Err(QueryError::Damaged(format!("frame {frame} is not where its number says")));
            }
            let module = match frames.module[frame] {
                Some(id) if id as usize >= modules.len() => {
                    return Err(damaged("a frame's module is missing"));
                }
                module => module,
            };
            let mode = FrameMode::from_code(frames.mode[frame])
                .ok_or_else(|| damaged("a frame's mode is unknown"))?;
            builder.begin_frame(module, mode, frames.address[frame]);
            let rows = order.of(frame);
            if rows.is_empty() {
                builder.unnamed(None, None);
            }
            for &row in rows {
                builder.named(names, row as usize);
            }
        }
        Ok(builder.finish(frames))
    }
}

/// The rows of `locations` by frame, then by depth.
struct Order {
    rows: Vec<u32>,
    first: Vec<u32>,
}

impl Order {
    fn new(names: &Locations, frames: usize) -> Result<Self, QueryError> {
        let count = names.frame.len();
        let columns = [names.depth.len(), names.function.len(), names.file.len(), names.line.len()];
        let more = [names.function_start.len(), names.mode.len()];
        if columns.into_iter().chain(more).any(|length| length != count) {
            return Err(QueryError::Damaged("locations lacks a column".to_owned()));
        }
        let mut first = vec![0u32; frames + 1];
        for &frame in &names.frame {
            match first.get_mut(frame as usize + 1) {
                Some(rows) => *rows += 1,
                None => {
                    return Err(QueryError::Damaged(format!(
                        "locations names frame {frame}, which is missing"
                    )));
                }
            }
        }
        for frame in 0..frames {
            first[frame + 1] += first[frame];
        }
        let mut rows: Vec<u32> = (0..count as u32).collect();
        rows.sort_by_key(|&row| (names.frame[row as usize], names.depth[row as usize]));
        Ok(Self { rows, first })
    }

    fn of(&self, frame: usize) -> &[u32] {
        &self.rows[self.first[frame] as usize..self.first[frame + 1] as usize]
    }
}

/// Names, each once, in the order in which they are met.
#[derive(Default)]
struct Interner {
    ids: FxHashMap<Box<str>, u32>,
    names: Vec<Box<str>>,
}

impl Interner {
    fn id(&mut self, name: &str) -> u32 {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let id = self.names.len() as u32;
        self.names.push(name.into());
        self.ids.insert(name.into(), id);
        id
    }
}

struct Builder<'a> {
    module_rows: &'a [ModuleRow],
    code: Code,
    modules: Interner,
    files: Interner,
    functions: FxHashMap<Function, u32>,
    /// Of the frame at hand: its module, what kind of code it is, its address.
    module: u32,
    mode: FrameMode,
    address: u64,
    is_unknown: bool,
}

impl<'a> Builder<'a> {
    fn new(module_rows: &'a [ModuleRow]) -> Self {
        Self {
            module_rows,
            code: Code::default(),
            modules: Interner::default(),
            files: Interner::default(),
            functions: FxHashMap::default(),
            module: 0,
            mode: FrameMode::User,
            address: 0,
            is_unknown: true,
        }
    }

    fn begin_frame(&mut self, module: Option<u32>, mode: FrameMode, address: u64) {
        let row = module.map(|id| &self.module_rows[id as usize]);
        let name = match (mode, row) {
            (FrameMode::Kernel, Some(row)) if row.kind == ModuleKind::Bpf.code() => "[bpf]",
            (FrameMode::Kernel, _) => "[kernel]",
            (FrameMode::LeftOut, _) => "[frames left out]",
            (_, Some(row)) => base_name(row),
            (_, None) => "[unknown]",
        };
        self.module = self.modules.id(name);
        self.is_unknown = row.is_none();
        (self.mode, self.address) = (mode, address);
        self.code.first.push(self.code.locations.len() as u32);
        self.code.sites.push(Site { module: module.unwrap_or(NONE), address });
    }

    /// The number of the frame at hand.
    fn frame(&self) -> u32 {
        self.code.sites.len() as u32 - 1
    }

    fn named(&mut self, names: &Locations, row: usize) {
        let mode = names.mode[row].and_then(FrameMode::from_code).unwrap_or(self.mode);
        let Some(name) = &names.function[row] else {
            return self.unnamed(names.function_start[row], Some((names, row)));
        };
        let function = self.function(name, true);
        let file = names.file[row].as_deref().map_or(NONE, |file| self.files.id(file));
        let line = names.line[row].unwrap_or(NONE);
        let frame = self.frame();
        self.code.locations.push(Location { function, file, line, mode, frame });
    }

    /// A frame without a name is called after where its code starts, as far as that is known.
    fn unnamed(&mut self, start: Option<u64>, names: Option<(&Locations, usize)>) {
        let module = &self.modules.names[self.module as usize];
        let name = match self.is_unknown {
            // An address in no mapping differs from run to run, and from thread to thread.
            true => module.to_string(),
            false => format!("{module}+{:#x}", start.unwrap_or(self.address)),
        };
        let function = self.function(&name, false);
        let mode = names.and_then(|(names, row)| names.mode[row]).and_then(FrameMode::from_code);
        let file = names.and_then(|(names, row)| names.file[row].as_deref());
        let file = file.map_or(NONE, |file| self.files.id(file));
        let line = names.and_then(|(names, row)| names.line[row]).unwrap_or(NONE);
        let (mode, frame) = (mode.unwrap_or(self.mode), self.frame());
        self.code.locations.push(Location { function, file, line, mode, frame });
    }

    fn function(&mut self, name: &str, named: bool) -> u32 {
        let function = Function { name: name.into(), module: self.module, named };
        let functions = &mut self.code.functions;
        *self.functions.entry(function).or_insert_with_key(|function| {
            functions.push(function.clone());
            functions.len() as u32 - 1
        })
    }

    fn finish(mut self, frames: &Frames) -> Code {
        self.code.first.push(self.code.locations.len() as u32);
        self.code.merged_builds = merged_builds(self.module_rows, frames);
        self.code.modules = self.modules.names;
        self.code.files = self.files.names;
        self.code
    }
}

/// What a module is called: the last part of its path.
fn base_name(module: &ModuleRow) -> &str {
    match ModuleKind::from_code(module.kind) {
        Some(ModuleKind::Kernel) => "[kernel]",
        Some(ModuleKind::Bpf) => "[bpf]",
        Some(ModuleKind::Jit) => "[jit]",
        Some(ModuleKind::Vdso) => "[vdso]",
        _ => {
            let path = module.path.strip_suffix(" (deleted)").unwrap_or(&module.path);
            let name = path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path);
            if name.is_empty() { "[unknown]" } else { name }
        }
    }
}

fn merged_builds(modules: &[ModuleRow], frames: &Frames) -> Vec<Box<str>> {
    let mut used = vec![false; modules.len()];
    frames.module.iter().flatten().for_each(|&id| used[id as usize] = true);
    let mut builds: FxHashMap<&str, &str> = FxHashMap::default();
    let mut merged: Vec<Box<str>> = Vec::new();
    for (module, _) in modules.iter().zip(&used).filter(|(_, used)| **used) {
        if let Some(build) = module.build_id.as_deref()
            && *builds.entry(base_name(module)).or_insert(build) != build
        {
            merged.push(base_name(module).into());
        }
    }
    merged.sort();
    merged.dedup();
    merged
}

/// Rows of names as a table.
pub(super) fn table_of(rows: Vec<LocationRow>) -> Locations {
    let mut table = Locations::default();
    rows.into_iter().for_each(|row| uhr_recording::Table::push(&mut table, row));
    table
}
