//! The *finish* step: names for every frame of a captured recording. It is the one place where the recording and the
//! symbolizer meet. On the host that recorded, right after the capture, the files of modules are still held open;
//! later, or elsewhere, they are opened again by path, and only a file of the same build is used.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use uhr_collect::{EVIDENCE_LIMIT, HeldFile, jitdump_name, kernel_program_name, perf_map_name, vdso_image};
use uhr_model::{BuildId, FrameMode, ModuleId, ModuleKind, RelativeAddress, Unsymbolized};
use uhr_recording::tables::{Frames, LocationRow, ModuleRow};
use uhr_recording::{
    Finalized, FrameHint, Manifest, Recording, RecordingError, Table, busy_frames, finalize,
};
use uhr_symbolize::{
    DebugFiles, ElfSource, FoundBy, Jitdump, KernelSymbols, ModuleSource, ModuleSymbols, Origin, PerfMap,
    Symbolized, Unnamed, symbolize, symbolize_with_lines,
};

use crate::kept_code::{self, BusyCode};
use crate::kernel_names;
use crate::running_kernel::Kernel;

/// The files of modules that were opened while the target ran.
pub(crate) type Held = HashMap<ModuleId, HeldFile>;

/// Notes about names that a manifest takes; a program with hundreds of stripped libraries needs no hundred sentences.
const MAX_NOTES: usize = 10;

/// Names the frames of a captured recording and writes its finished tables.
///
/// # Errors
/// If the disk is full or gone; the captured recording stays as it is.
pub(crate) fn finish(folder: &Path, held: &Held) -> Result<Manifest, RecordingError> {
    let recording = Recording::open(folder)?;
    let names = names_with(&recording, &Files { held: Some(held), elsewhere: None })?;
    finalize(&recording, names)
}

/// Looks up the names of a recording that has none yet, in memory.
///
/// # Errors
/// If its tables cannot be read.
pub(crate) fn names(recording: &Recording) -> Result<Finalized, RecordingError> {
    names_from(recording, None)
}

/// The same, with a place to ask for debug files that are on no disk here.
///
/// # Errors
/// If its tables cannot be read.
pub(crate) fn names_from(
    recording: &Recording,
    elsewhere: Option<&dyn DebugFiles>,
) -> Result<Finalized, RecordingError> {
    names_with(recording, &Files { held: None, elsewhere })
}

/// Where files of modules are, besides the disk.
struct Files<'a> {
    held: Option<&'a Held>,
    elsewhere: Option<&'a dyn DebugFiles>,
}

fn names_with(recording: &Recording, files: &Files<'_>) -> Result<Finalized, RecordingError> {
    let frames: Frames = recording.table()?;
    let modules = recording.modules()?;
    let kernel = Kernel::of(recording);
    let busy = busy_frames(recording, frames.len())?;
    let all = busy.iter().map(|busy| busy.own).fold(0, u64::saturating_add);
    // The frames of each module, so that each is opened once.
    let mut of_module: Vec<Vec<usize>> = vec![Vec::new(); modules.len()];
    for (frame, module) in frames.module.iter().enumerate() {
        if let Some(frames) = module.and_then(|module| of_module.get_mut(module as usize)) {
            frames.push(frame);
        }
    }
    let named: Vec<ModuleSymbols> = modules
        .par_iter()
        .zip(&of_module)
        .map(|(module, rows)| {
            let addresses: Vec<RelativeAddress> =
                rows.iter().map(|&row| RelativeAddress(frames.address[row])).collect();
            let own = rows.iter().map(|&row| busy[row].own);
            let busy = BusyCode::new(addresses.iter().copied().zip(own), all);
            name_module(recording, module, &addresses, (files, &busy), &kernel)
        })
        .collect();

    let unknown = Err(Unnamed::because(Unsymbolized::UnknownMapping));
    let mut of_frame: Vec<&Result<Symbolized, Unnamed>> = vec![&unknown; frames.len()];
    for (rows, symbols) in of_module.iter().zip(&named) {
        for (&row, result) in rows.iter().zip(&symbols.results) {
            of_frame[row] = result;
        }
    }
    let mut done = Finalized {
        module_symbols: modules
            .iter()
            .zip(&named)
            .map(|(module, names)| words(module, &names.origin))
            .collect(),
        notes: notes(&named),
        ..Finalized::default()
    };
    for (frame, &result) in of_frame.iter().enumerate() {
        if frames.mode[frame] == FrameMode::LeftOut.code() {
            done.frame_hints.push(FrameHint::default());
            continue;
        }
        let module = frames.module[frame].and_then(|module| modules.get(module as usize));
        add(&mut done, frame as u32, result, Place::of(module));
    }
    let functions = kept_code::functions(&frames, &of_frame, &busy);
    done.code_lines = kept_code::lines(&named);
    done.code = kept_code::rows(recording, &modules, functions, files.held, &kernel.memory());
    Ok(done)
}

/// Where code is, as far as it tells what a wait in it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Kernel,
    Libc,
    Elsewhere,
}

impl Place {
    fn of(module: Option<&ModuleRow>) -> Self {
        let Some(module) = module else { return Self::Elsewhere };
        if [ModuleKind::Kernel, ModuleKind::Bpf].map(ModuleKind::code).contains(&module.kind) {
            return Self::Kernel;
        }
        let name = module.path.rsplit('/').next().unwrap_or_default();
        let is_libc = ["libc.so", "libc-", "libpthread", "ld-musl", "libc.musl"]
            .iter()
            .any(|begin| name.starts_with(begin));
        if is_libc { Self::Libc } else { Self::Elsewhere }
    }

    /// What a function here tells of waits, or code without a name.
    fn hint(self, function: Option<&str>) -> FrameHint {
        match (self, function) {
            (Self::Kernel, Some(name)) => FrameHint::of_kernel_function(name),
            (Self::Kernel, None) => FrameHint::OF_KERNEL,
            (_, Some(name)) => FrameHint::of_user_function(name, self == Self::Libc),
            (Self::Libc, None) => FrameHint::OF_LIBC,
            (Self::Elsewhere, None) => FrameHint::default(),
        }
    }
}

/// Adds the rows of one frame.
fn add(done: &mut Finalized, frame: u32, result: &Result<Symbolized, Unnamed>, place: Place) {
    let outcome = match result {
        Ok(_) => "named",
        Err(unnamed) => unnamed.reason.name(),
    };
    *done.frames.entry(outcome.to_owned()).or_default() += 1;
    match result {
        Ok(found) => {
            let hints = found.locations.iter().map(|location| place.hint(location.function.as_deref()));
            done.frame_hints.push(hints.reduce(FrameHint::inlined_into).unwrap_or_default());
            for (depth, location) in found.locations.iter().enumerate() {
                done.locations.push(LocationRow {
                    frame,
                    depth: depth as u32,
                    function: shown_name(location.function.as_deref(), found.kernel_module.as_deref()),
                    file: location.file.clone(),
                    line: location.line,
                    function_start: Some(found.start.0),
                    mode: found.mode.map(FrameMode::code),
                    reason: None,
                });
            }
        }
        Err(unnamed) => {
            done.frame_hints.push(place.hint(None));
            done.locations.push(LocationRow {
                frame,
                depth: 0,
                function: None,
                file: None,
                line: None,
                function_start: unnamed.start.map(|start| start.0),
                mode: None,
                reason: Some(unnamed.reason.code()),
            });
        }
    }
}

/// The function's name, and behind it the kernel module that it is of, as the kernel itself prints it. The names of BPF
/// programs say what they are.
fn shown_name(function: Option<&str>, kernel_module: Option<&str>) -> Option<String> {
    match (function?, kernel_module) {
        (function, None | Some("bpf")) => Some(function.to_owned()),
        (function, Some(module)) => Some(format!("{function} [{module}]")),
    }
}

fn name_module(
    recording: &Recording,
    module: &ModuleRow,
    addresses: &[RelativeAddress],
    (files, busy): (&Files<'_>, &BusyCode),
    kernel: &Kernel,
) -> ModuleSymbols {
    match ModuleKind::from_code(module.kind) {
        _ if addresses.is_empty() => unnamed(addresses, Unsymbolized::NoSymbol),
        Some(ModuleKind::Elf | ModuleKind::UnreadElf) => name_elf(module, addresses, files, busy),
        Some(ModuleKind::Kernel) => match kernel {
            Kernel::Symbols(text) => symbolize(&ModuleSource::Kernel(&KernelSymbols::parse(text)), addresses),
            Kernel::OtherBoot => unnamed(addresses, Unsymbolized::FileMissing),
        },
        // That of another kernel is another file.
        Some(ModuleKind::Vdso) => match vdso_image().filter(|_| matches!(kernel, Kernel::Symbols(_))) {
            Some(image) => symbolize(&ModuleSource::Vdso { image: &image }, addresses),
            None => unnamed(addresses, Unsymbolized::FileMissing),
        },
        Some(ModuleKind::Jit) => name_generated(recording, module, addresses, busy),
        Some(ModuleKind::Bpf) => name_kernel_program(recording, module, addresses, busy),
        Some(ModuleKind::File) | None => unnamed(addresses, Unsymbolized::NoSymbol),
    }
}

fn name_elf(
    module: &ModuleRow,
    addresses: &[RelativeAddress],
    files: &Files<'_>,
    busy: &BusyCode,
) -> ModuleSymbols {
    match ModuleFile::of(module, files.held) {
        Some(file) => {
            let source = ElfSource { elsewhere: files.elsewhere, ..file.source() };
            let wants_lines = |function| busy.wants_lines(function);
            symbolize_with_lines(&ModuleSource::Elf(source), addresses, &wants_lines)
        }
        None => unnamed(addresses, Unsymbolized::FileMissing),
    }
}

/// The file of a module, and how it is known to be the one that ran.
pub(crate) struct ModuleFile<'a> {
    build_id: Option<BuildId>,
    open: PathBuf,
    path: PathBuf,
    root: Option<&'a Path>,
}

impl<'a> ModuleFile<'a> {
    /// The file that is held open, or that of the same build at the path.
    pub(crate) fn of(module: &ModuleRow, held: Option<&'a Held>) -> Option<Self> {
        let build_id: Option<BuildId> = module.build_id.as_deref().and_then(|id| id.parse().ok());
        let path = PathBuf::from(&module.path);
        let file = held.and_then(|held| held.get(&ModuleId(module.id)));
        let open = match file {
            Some(held) => PathBuf::from(format!("/proc/self/fd/{}", held.file.as_raw_fd())),
            // Without a build id nothing would tell whether this is the file that ran.
            None if build_id.is_none() || module.kind == ModuleKind::UnreadElf.code() => return None,
            None => path.clone(),
        };
        Some(Self { build_id, open, path, root: file.and_then(|held| held.root.as_deref()) })
    }

    /// For the symbolizer.
    pub(crate) fn source(&self) -> ElfSource<'_> {
        let build_id = self.build_id.as_ref();
        ElfSource { open: &self.open, path: &self.path, build_id, root: self.root, elsewhere: None }
    }
}

/// Generated code: a jitdump tells more than a perf map; what the one does not name the other may.
fn name_generated(
    recording: &Recording,
    module: &ModuleRow,
    addresses: &[RelativeAddress],
    busy: &BusyCode,
) -> ModuleSymbols {
    let process = module.process.unwrap_or(u32::MAX);
    let perf_map = recording.evidence(&perf_map_name(process), EVIDENCE_LIMIT);
    let jitdump = recording.evidence(&jitdump_name(process), EVIDENCE_LIMIT);
    let by_map = perf_map.map(|text| symbolize(&ModuleSource::PerfMap(&PerfMap::parse(&text)), addresses));
    let by_dump = jitdump.and_then(|bytes| Some(named_by(&Jitdump::parse(&bytes).ok()?, addresses, busy)));
    match (by_dump, by_map) {
        (Some(mut dump), Some(map)) => {
            for (result, other) in dump.results.iter_mut().zip(map.results) {
                if result.is_err() && other.is_ok() {
                    *result = other;
                }
            }
            dump
        }
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => unnamed(addresses, Unsymbolized::NoJitMap),
    }
}

/// An eBPF program: its names are as the kernel told them while it was there.
fn name_kernel_program(
    recording: &Recording,
    module: &ModuleRow,
    addresses: &[RelativeAddress],
    busy: &BusyCode,
) -> ModuleSymbols {
    let Some(bytes) = recording.evidence(&kernel_program_name(module.id), EVIDENCE_LIMIT) else {
        return unnamed(addresses, Unsymbolized::FileMissing);
    };
    match Jitdump::parse(&bytes) {
        Ok(dump) => named_by(&dump, addresses, busy),
        Err(_) => unnamed(addresses, Unsymbolized::Malformed),
    }
}

fn named_by(dump: &Jitdump<'_>, addresses: &[RelativeAddress], busy: &BusyCode) -> ModuleSymbols {
    symbolize_with_lines(&ModuleSource::Jitdump(dump), addresses, &|function| busy.wants_lines(function))
}

fn unnamed(addresses: &[RelativeAddress], reason: Unsymbolized) -> ModuleSymbols {
    let results = addresses.iter().map(|_| Err(Unnamed::because(reason))).collect();
    ModuleSymbols { results, origin: Origin::Nowhere, notes: Vec::new(), lines: Vec::new() }
}

fn words(module: &ModuleRow, origin: &Origin) -> Option<String> {
    Some(match origin {
        Origin::Jitdump if module.kind == ModuleKind::Bpf.code() => "the kernel (eBPF)".to_owned(),
        Origin::Nowhere => return None,
        Origin::SymbolTable => "symbol table".to_owned(),
        Origin::MiniDebug => "symbol table (.gnu_debugdata)".to_owned(),
        Origin::GoTable => "Go's function table (.gopclntab)".to_owned(),
        Origin::Dwarf => "debug information".to_owned(),
        Origin::DebugFile { path, found_by } => {
            let how = match found_by {
                FoundBy::BuildId => "build id",
                FoundBy::DebugLink => "debug link",
                FoundBy::Elsewhere => "build id, from debuginfod",
            };
            format!("debug file {} (by {how})", path.display())
        }
        Origin::KernelSymbols => "kallsyms".to_owned(),
        Origin::PerfMap => "perf map".to_owned(),
        Origin::Jitdump => "jitdump".to_owned(),
    })
}

fn notes(named: &[ModuleSymbols]) -> Vec<String> {
    let mut seen = BTreeMap::new();
    for note in named.iter().flat_map(|symbols| &symbols.notes) {
        let is_kernel = *note == uhr_symbolize::Note::KernelRestricted;
        let remedy = is_kernel.then(kernel_names::remedy_here).flatten();
        seen.insert(remedy.map_or_else(|| note.to_string(), |remedy| format!("{note}: {remedy}")), ());
    }
    let more = seen.len().saturating_sub(MAX_NOTES);
    let mut notes: Vec<String> = seen.into_keys().take(MAX_NOTES).collect();
    if more > 0 {
        notes.push(format!("{more} more notes of this kind about names"));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::shown_name;

    #[test]
    fn functions_of_kernel_modules_say_whose_they_are() {
        let shown = |function, module| shown_name(Some(function), module).unwrap();
        assert_eq!(shown("vfs_read", None), "vfs_read");
        assert_eq!(shown("nft_do_chain", Some("nf_tables")), "nft_do_chain [nf_tables]");
        assert_eq!(
            shown("bpf_prog_6deef7357e7b4530_ingress", Some("bpf")),
            "bpf_prog_6deef7357e7b4530_ingress"
        );
        assert_eq!(shown_name(None, Some("nf_tables")), None);
    }
}
