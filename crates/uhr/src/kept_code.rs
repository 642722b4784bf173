//! Which functions' code a recording keeps, so that it can be disassembled where the program is not: those that stand in
//! stacks, the busiest first, up to a limit.

use std::collections::BTreeMap;
use std::ops::Range;

use rayon::prelude::*;
use uhr_collect::{EVIDENCE_LIMIT, jitdump_name, kernel_program_name, vdso_image};
use uhr_model::object::ElfFile;
use uhr_model::{ModuleKind, NoCode, RelativeAddress};
use uhr_recording::tables::{CodeLineRow, Frames, MachineCodeRow, ModuleRow};
use uhr_recording::{Busy, Recording};
use uhr_symbolize::{Jitdump, KernelMemory, ModuleSource, ModuleSymbols, Symbolized, Unnamed, machine_code};

use crate::finish::{Held, ModuleFile};

/// The longest function that is kept, in bytes: four times CPython's evaluation loop. Longer ones are lists of generated
/// tables, or no functions.
const LONGEST: u64 = 256 << 10;

/// What is kept in all, in bytes. The recording shall not grow by much more than its samples do: code takes less than half
/// of this on disk, a sample with its stack some 20 bytes.
const PER_SAMPLE: u64 = 8;
const ROOM: std::ops::RangeInclusive<u64> = 128 << 10..=4 << 20;

/// Functions with so small a part of the samples are left out: nobody looks at their instructions.
const LEAST_SHARE: u64 = 1000;
/// Unless they stand in this part of all stacks.
const LEAST_TOTAL_SHARE: u64 = 100;
/// In a short recording such a part may be less than one; what was seen once is not busy.
const LEAST: u64 = 2;

/// Of functions with less of the samples than this, only the lines of samples are kept, not those of every instruction.
const LEAST_WITH_LINES: u64 = 50;

/// What ends at the addresses of one module.
#[derive(Debug)]
pub(crate) struct BusyCode {
    own: BTreeMap<RelativeAddress, u64>,
    /// Samples that are enough for lines.
    least: u64,
}

impl BusyCode {
    /// Takes the addresses with what ends at each, of `all` in the recording.
    pub(crate) fn new(own: impl Iterator<Item = (RelativeAddress, u64)>, all: u64) -> Self {
        let mut sums = BTreeMap::new();
        own.for_each(|(address, own)| *sums.entry(address).or_insert(0u64) += own);
        Self { own: sums, least: (all / LEAST_WITH_LINES).max(1) }
    }

    /// Whether all lines of a function are kept.
    pub(crate) fn wants_lines(&self, function: Range<RelativeAddress>) -> bool {
        let length = function.end.offset_from(function.start);
        length.is_some_and(|length| length > 0 && length <= LONGEST)
            && self.own.range(function).map(|(_, own)| *own).fold(0, u64::saturating_add) >= self.least
    }
}

/// The rows of `code_lines`. `named` is in the order of modules.
pub(crate) fn lines(named: &[ModuleSymbols]) -> Vec<CodeLineRow> {
    let mut rows = Vec::new();
    for (module, symbols) in (0..).zip(named) {
        for start in &symbols.lines {
            let row = |depth| CodeLineRow {
                module,
                address: start.address.0,
                depth,
                function: None,
                file: None,
                line: None,
            };
            if start.locations.is_empty() {
                rows.push(row(0));
            }
            rows.extend((0..).zip(&start.locations).map(|(depth, location)| CodeLineRow {
                function: location.function.clone(),
                file: location.file.clone(),
                line: location.line,
                ..row(depth)
            }));
        }
    }
    rows
}

/// A function, or a part of one, that is in stacks.
#[derive(Debug)]
pub(crate) struct Function {
    module: u32,
    start: u64,
    end: Option<u64>,
    busy: Busy,
}

/// The functions of all frames, the busiest first. `found` and `busy` are in the order of the frames.
pub(crate) fn functions(
    frames: &Frames,
    found: &[&Result<Symbolized, Unnamed>],
    busy: &[Busy],
) -> Vec<Function> {
    let mut functions: BTreeMap<(u32, u64), Function> = BTreeMap::new();
    for (frame, found) in found.iter().enumerate() {
        let Some(module) = frames.module[frame] else { continue };
        let (start, end) = match found {
            Ok(named) => (named.start, named.end),
            Err(Unnamed { start: Some(start), end, .. }) => (*start, *end),
            Err(_) => (RelativeAddress(frames.address[frame]), None),
        };
        let is_inside = |end: &u64| (start.0..*end).contains(&frames.address[frame]);
        let function = functions.entry((module, start.0)).or_insert(Function {
            module,
            start: start.0,
            end: None,
            busy: Busy::default(),
        });
        // Of a nested symbol the outer function may have no end of its own.
        function.end = function.end.max(end.map(|end| end.0).filter(is_inside));
        function.busy.own = function.busy.own.saturating_add(busy[frame].own);
        function.busy.total = function.busy.total.saturating_add(busy[frame].total);
    }
    let mut functions: Vec<Function> = functions.into_values().collect();
    // A stable sort: equally busy ones stay in the order of their addresses.
    functions.sort_by_key(|function| std::cmp::Reverse((function.busy.own, function.busy.total)));
    functions
}

/// The rows of `code`: of each function its bytes, or why there are none.
pub(crate) fn rows(
    recording: &Recording,
    modules: &[ModuleRow],
    functions: Vec<Function>,
    held: Option<&Held>,
    kernel: &Result<KernelMemory, NoCode>,
) -> Vec<MachineCodeRow> {
    let samples = functions.iter().map(|function| function.busy.own).fold(0, u64::saturating_add);
    let stacks = functions.iter().map(|function| function.busy.total).max().unwrap_or(0);
    let (least, least_total) = ((samples / LEAST_SHARE).max(LEAST), (stacks / LEAST_TOTAL_SHARE).max(LEAST));
    let is_busy = |function: &Function| function.busy.own >= least || function.busy.total >= least_total;
    let mut rows = Vec::new();
    // The functions of each module, so that each is opened once.
    let mut wanted: Vec<Vec<Range<RelativeAddress>>> = vec![Vec::new(); modules.len()];
    let mut room = samples.saturating_mul(PER_SAMPLE).clamp(*ROOM.start(), *ROOM.end());
    for function in functions.into_iter().filter(is_busy) {
        let Some(module) = modules.get(function.module as usize) else { continue };
        match why_not(module, &function, room, kernel) {
            Some(why) => rows.push(function.without_bytes(why)),
            None => {
                let range = function.start..function.end.unwrap_or(function.start);
                room -= range.end - range.start;
                wanted[function.module as usize]
                    .push(RelativeAddress(range.start)..RelativeAddress(range.end));
            }
        }
    }
    let read = modules
        .par_iter()
        .zip(wanted)
        .filter(|(_, ranges)| !ranges.is_empty())
        .flat_map_iter(|(module, ranges)| read_module(recording, module, ranges, (held, kernel)));
    rows.par_extend(read);
    rows
}

/// Why the code of a function is not read at all.
fn why_not(
    module: &ModuleRow,
    function: &Function,
    room: u64,
    kernel: &Result<KernelMemory, NoCode>,
) -> Option<NoCode> {
    let length = function.end.map(|end| end.saturating_sub(function.start)).filter(|length| *length > 0);
    match (length, kernel) {
        (_, Err(why)) if module.kind == ModuleKind::Kernel.code() => Some(*why),
        (None, _) => Some(NoCode::UnknownEnd),
        (Some(length), _) if length > LONGEST => Some(NoCode::TooLong),
        (Some(length), _) if length > room => Some(NoCode::NoRoom),
        _ => None,
    }
}

fn read_module(
    recording: &Recording,
    module: &ModuleRow,
    ranges: Vec<Range<RelativeAddress>>,
    (held, kernel): (Option<&Held>, &Result<KernelMemory, NoCode>),
) -> Vec<MachineCodeRow> {
    let nothing = || vec![None; ranges.len()];
    let (found, why) = match ModuleKind::from_code(module.kind) {
        Some(ModuleKind::Elf | ModuleKind::UnreadElf) => {
            let file = ModuleFile::of(module, held);
            let read = |file: ModuleFile<'_>| machine_code(&ModuleSource::Elf(file.source()), &ranges);
            (file.map_or_else(nothing, read), NoCode::NotInFile)
        }
        Some(ModuleKind::Vdso) => {
            let read = |image: Vec<u8>| machine_code(&ModuleSource::Vdso { image: &image }, &ranges);
            let image = vdso_image().filter(|image| is_of_build(image, module));
            (image.map_or_else(nothing, read), NoCode::NotInFile)
        }
        Some(ModuleKind::Jit) => {
            let name = jitdump_name(module.process.unwrap_or(u32::MAX));
            (from_jitdump(recording, &name, &ranges).unwrap_or_else(nothing), NoCode::NotInJitdump)
        }
        Some(ModuleKind::Bpf) => {
            let name = kernel_program_name(module.id);
            (from_jitdump(recording, &name, &ranges).unwrap_or_else(nothing), NoCode::ProgramNotRead)
        }
        Some(ModuleKind::Kernel) => {
            let read = |memory: &KernelMemory| ranges.iter().map(|range| memory.code(range)).collect();
            (kernel.as_ref().map_or_else(|_| nothing(), read), NoCode::KernelNotRead)
        }
        _ => (nothing(), NoCode::NotInFile),
    };
    let row = |(range, bytes): (Range<RelativeAddress>, Option<Vec<u8>>)| MachineCodeRow {
        module: module.id,
        start: range.start.0,
        end: range.end.0,
        missing: bytes.is_none().then(|| why.code()),
        bytes: bytes.unwrap_or_default(),
    };
    ranges.into_iter().zip(found).map(row).collect()
}

fn from_jitdump(
    recording: &Recording,
    name: &str,
    ranges: &[Range<RelativeAddress>],
) -> Option<Vec<Option<Vec<u8>>>> {
    let bytes = recording.evidence(name, EVIDENCE_LIMIT)?;
    Some(machine_code(&ModuleSource::Jitdump(&Jitdump::parse(&bytes).ok()?), ranges))
}

/// Whether our own vDSO is the one that was recorded: another kernel has another.
fn is_of_build(image: &[u8], module: &ModuleRow) -> bool {
    let build_id = ElfFile::parse(image).ok().and_then(|elf| elf.build_id);
    build_id.is_some_and(|own| module.build_id.as_ref() == Some(&own.to_string()))
}

impl Function {
    fn without_bytes(&self, why: NoCode) -> MachineCodeRow {
        MachineCodeRow {
            module: self.module,
            start: self.start,
            end: self.end.unwrap_or(self.start),
            bytes: Vec::new(),
            missing: Some(why.code()),
        }
    }
}
