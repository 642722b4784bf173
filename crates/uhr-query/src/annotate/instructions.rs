//! A function instruction by instruction: the costly ones, and those beside them.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use uhr_model::{Dimension, Metric, NoCode};

use super::source::Sources;
use super::{Asked, Shape};
use crate::answers::{Annotated, InstructionRow, share};
use crate::disassembly::{disassemble, jump};
use crate::group::{FrameKey, GroupBy};
use crate::profile::{Location, MachineCode, NONE, Piece, Site};
use crate::query::SKID;
use crate::rollup::{Grouped, Sums};
use crate::statistics::Interval;
use crate::words::hex;

/// What tells instructions apart.
pub(super) const DIMENSIONS: &[Dimension] = &[Dimension::Address];

/// Instructions that are shown on each side of a costly one, unless all are asked for, or there is no room.
const AROUND: usize = 2;

/// The instructions that are shown, by module and address.
type Instructions<'a> = BTreeMap<(u32, u64), Instruction<'a>>;

/// An instruction that is shown.
#[derive(Default)]
struct Instruction<'a> {
    /// The function that it is in, and its number there; missing where the code is.
    code: Option<(&'a Piece, usize)>,
    cost: Option<(Sums, [Interval; 2])>,
}

impl Asked<'_> {
    pub(super) fn instructions(
        &self,
        grouped: &Grouped,
        group: &GroupBy,
        sources: &mut Sources<'_>,
    ) -> Shape {
        let none = MachineCode::default();
        let code = self.profile.machine_code_at_hand().unwrap_or(&none);
        let frames = self.frames(grouped);
        let costly = self.costly(grouped, group, |key| frames.contains_key(&key));
        let site = |key: &u32| {
            let site = self.profile.code.sites[*frames.get(key)? as usize];
            Some(Site { address: code.instruction_start(site), ..site })
        };
        let with_neighbours = |around: usize| {
            let mut shown = Instructions::default();
            for (key, sums, intervals) in &costly.page {
                if let Some(site) = site(key) {
                    show(&mut shown, code, site, (*sums, *intervals), around);
                }
            }
            shown
        };
        // Whoever wants everything gets the whole function.
        let around = if self.question.whole_names { usize::MAX } else { AROUND };
        let mut shown = with_neighbours(around);
        // Where costly instructions stand far apart, two neighbours of each would be more than a page.
        if around == AROUND && shown.len() > costly.page.len() * 3 {
            shown = with_neighbours(1);
        }
        fill_gaps(&mut shown);
        // Where each instruction of the function that was seen stands in the source.
        let frame_of: FxHashMap<Site, u32> =
            frames.iter().filter_map(|(key, frame)| Some((site(key)?, *frame))).collect();
        let places = Places { asked: self, code, frame_of };
        let rows = self.rows(&shown, &places, grouped.total.weight, sources);
        let all_sites = frames.keys().filter_map(site);
        let mut notes: Vec<String> = missing(code, all_sites);
        if self.question.metric == Metric::Cpu {
            notes.insert(0, SKID.to_owned());
        }
        let costliest = costly.page.first().and_then(|(key, ..)| frames.get(key));
        let inlined = costliest.and_then(|frame| places.of_frame(*frame)?.inlined_from);
        let inlined = inlined.map(|function| self.name(function));
        Shape { rows: Annotated::Instructions(rows), costly, notes, inlined }
    }

    /// The keys of the instructions that are in the function, and a frame of each. What is inlined into it is part of it.
    fn frames(&self, grouped: &Grouped) -> FxHashMap<u32, u32> {
        let code = &self.profile.code;
        let Some(keys) = &grouped.frames else { return FxHashMap::default() };
        let has_rows: FxHashSet<u32> = grouped.rows.iter().map(|row| row.1).collect();
        let is_in = |location: &Location| self.wanted.contains(&location.function);
        (0..code.sites.len() as u32)
            .filter(|frame| code.of(*frame).iter().any(is_in))
            .filter_map(|frame| Some((*keys.of_location.get(code.range(frame).start)?, frame)))
            .filter(|(key, _)| has_rows.contains(key))
            .filter(|(key, _)| matches!(keys.keys[*key as usize], FrameKey::Like(_)))
            .collect()
    }

    fn rows(
        &self,
        shown: &Instructions<'_>,
        places: &Places<'_>,
        whole: u64,
        sources: &mut Sources<'_>,
    ) -> Vec<InstructionRow> {
        // First all lines are looked for: a file that lacks one of them is another file.
        for (&(module, address), instruction) in shown {
            places.of(Site { module, address }, instruction).and_then(|place| place.text(sources));
        }
        let mut targets = Targets::default();
        let mut before: Option<(&Piece, usize)> = None;
        let mut last_line = None;
        let mut rows = Vec::with_capacity(shown.len());
        for (&(module, address), instruction) in shown {
            let mut row = InstructionRow {
                address: hex(address),
                module: self.other_module(module),
                ..of_cost(instruction.cost.as_ref(), whole)
            };
            if let Some((piece, at)) = instruction.code {
                let bytes = &piece.bytes[piece.place(at)];
                let disassembled = disassemble(bytes, address);
                let is_inside = |target: &u64| (piece.start..piece.end).contains(target);
                row.bytes = Some(in_hex(bytes));
                row.text = Some(disassembled.text);
                row.jump = disassembled.jump.filter(is_inside).map(hex);
                row.is_target = targets.of(piece).contains(&address);
                if let Some((last, number)) = before
                    && std::ptr::eq(last, piece)
                {
                    row.omitted_before = at.saturating_sub(number + 1) as u64;
                }
            }
            before = instruction.code;
            if let Some(place) = places.of(Site { module, address }, instruction) {
                row.file = place.file.map(|file| self.name(file));
                row.line = place.line.map(u64::from);
                row.inlined_from = place.inlined_from.map(|function| self.name(function));
                if last_line.as_ref() != Some(&place) {
                    row.source = place.text(sources);
                    last_line = Some(place);
                }
            }
            rows.push(row);
        }
        rows
    }

    /// The module's name, if it is not that of the function which stands for all.
    fn other_module(&self, module: u32) -> Option<String> {
        let code = &self.profile.code;
        let own = code.functions[self.wanted.iter().copied().min()? as usize].module;
        let frame = code.sites.iter().position(|site| site.module == module)?;
        let other = code.functions[code.of(frame as u32).first()?.function as usize].module;
        (other != own).then(|| self.name(&code.modules[other as usize]))
    }
}

/// Where an instruction stands in the source.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place<'a> {
    file: Option<&'a str>,
    line: Option<u32>,
    /// The innermost function there, if it is none of those that were asked for.
    inlined_from: Option<&'a str>,
}

impl Place<'_> {
    fn text(&self, sources: &mut Sources<'_>) -> Option<String> {
        sources.line(self.file?, self.line?)
    }
}

/// Where instructions stand in the source: known by a sample, or because all of the function is.
struct Places<'a> {
    asked: &'a Asked<'a>,
    code: &'a MachineCode,
    /// A frame of each instruction that was seen.
    frame_of: FxHashMap<Site, u32>,
}

impl<'a> Places<'a> {
    fn of(&self, site: Site, instruction: &Instruction<'_>) -> Option<Place<'a>> {
        if let Some(&frame) = self.frame_of.get(&site) {
            return self.of_frame(frame);
        }
        let (piece, _) = instruction.code?;
        let line = self.code.lines.of(site, piece.start)?;
        let functions = &self.asked.profile.code.functions;
        let is_asked = |name: &str| {
            self.asked.wanted.iter().any(|&function| *functions[function as usize].name == *name)
        };
        Some(Place {
            file: line.file.as_deref(),
            line: line.line,
            inlined_from: line.function.as_deref().filter(|name| line.is_inlined && !is_asked(name)),
        })
    }

    fn of_frame(&self, frame: u32) -> Option<Place<'a>> {
        let code = &self.asked.profile.code;
        let location = code.of(frame).first()?;
        let function = location.function;
        let is_asked = self.asked.wanted.contains(&function);
        Some(Place {
            file: code.files.get(location.file as usize).map(|file| &**file),
            line: (location.line != NONE).then_some(location.line),
            inlined_from: (!is_asked).then(|| &*code.functions[function as usize].name),
        })
    }
}

/// Puts a costly instruction among those that are shown, and its neighbours.
fn show<'a>(
    shown: &mut Instructions<'a>,
    code: &'a MachineCode,
    site: Site,
    cost: (Sums, [Interval; 2]),
    around: usize,
) {
    let found = code.of(site).and_then(|piece| Some((piece, piece.number(site.address)?)));
    if let Some((piece, at)) = found {
        let last = piece.starts().len().saturating_sub(1);
        let is_whole = around > last && shown.contains_key(&(site.module, piece.start));
        let neighbours = at.saturating_sub(around)..=at.saturating_add(around).min(last);
        for number in neighbours.filter(|_| !is_whole) {
            let address = piece.start + u64::from(piece.starts()[number]);
            let neighbour = shown.entry((site.module, address)).or_default();
            neighbour.code = Some((piece, number));
        }
    }
    shown.entry((site.module, site.address)).or_default().cost = Some(cost);
}

/// Shows what a mark for its absence would take as much room as.
fn fill_gaps(shown: &mut Instructions<'_>) {
    let rows = shown.iter().filter_map(|(&(module, _), instruction)| Some((module, instruction.code?)));
    let rows: Vec<(u32, (&Piece, usize))> = rows.collect();
    for pair in rows.windows(2) {
        let [(module, (piece, at)), (_, (next, behind))] = pair else { continue };
        if std::ptr::eq(*piece, *next) && *behind == at + 2 {
            let number = at + 1;
            let address = piece.start + u64::from(piece.starts()[number]);
            shown.entry((*module, address)).or_default().code = Some((piece, number));
        }
    }
}

/// A row with nothing but its numbers.
fn of_cost(cost: Option<&(Sums, [Interval; 2])>, whole: u64) -> InstructionRow {
    let sums = cost.map(|cost| cost.0).unwrap_or_default();
    let ends = |which: usize| cost.map(|cost| cost.1[which].ends);
    InstructionRow {
        omitted_before: 0,
        module: None,
        address: String::new(),
        bytes: None,
        text: None,
        jump: None,
        is_target: false,
        file: None,
        line: None,
        source: None,
        inlined_from: None,
        own: sums.own,
        total: sums.total,
        self_share: cost.map(|_| share(sums.own, whole)),
        total_share: cost.map(|_| share(sums.total, whole)),
        self_samples: cost.map(|_| sums.own_samples),
        total_samples: cost.map(|_| sums.total_samples),
        self_share_ci95: ends(0),
        total_share_ci95: ends(1),
        interval_note: cost.and_then(|cost| cost.1[0].note.or(cost.1[1].note)),
    }
}

fn in_hex(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(" ")
}

/// Where the jumps of functions lead to, each function looked through once.
#[derive(Default)]
struct Targets(FxHashMap<(u32, u64), FxHashSet<u64>>);

impl Targets {
    fn of(&mut self, piece: &Piece) -> &FxHashSet<u64> {
        self.0.entry((piece.module, piece.start)).or_insert_with(|| {
            let jump = |at: usize| {
                let place = piece.place(at);
                jump(&piece.bytes[place.clone()], piece.start + place.start as u64)
            };
            (0..piece.starts().len()).filter_map(jump).collect()
        })
    }
}

/// Of which instructions there are no bytes, and why.
fn missing(code: &MachineCode, sites: impl Iterator<Item = Site>) -> Vec<String> {
    if !code.is_kept {
        return vec!["The recording holds no code: an older uhr made it.".to_owned()];
    }
    if let Some(architecture) = &code.not_disassembled {
        return vec![format!("Code of {architecture} is not disassembled yet.")];
    }
    let mut reasons: BTreeMap<Option<NoCode>, ()> = BTreeMap::new();
    for site in sites {
        match code.of(site) {
            Some(piece) if !piece.bytes.is_empty() => (),
            piece => drop(reasons.insert(piece.and_then(|piece| piece.missing), ())),
        }
    }
    reasons.into_keys().map(|why| format!("No instructions of some addresses: {}.", words(why))).collect()
}

fn words(why: Option<NoCode>) -> &'static str {
    match why {
        Some(NoCode::NotInFile) => "the file was gone or another one when the recording was finished",
        Some(NoCode::NotInJitdump) => {
            "the runtime that made the code wrote it nowhere (a jitdump would have it)"
        }
        Some(NoCode::KernelNotRead) => "the kernel's own code was not read when the recording was finished",
        Some(NoCode::NoKcore) => "the kernel did not show its code: there was no /proc/kcore",
        Some(NoCode::KcoreForbidden) => {
            "the kernel's own code might not be read (/proc/kcore takes CAP_SYS_RAWIO: record as root)"
        }
        Some(NoCode::ProgramNotRead) => {
            "the eBPF program was gone before its code was read, or might not be read (that takes CAP_SYS_ADMIN)"
        }
        Some(NoCode::UnknownEnd) => "nothing says where the function ends",
        Some(NoCode::TooLong) => "the function is longer than 256 KiB",
        Some(NoCode::NoRoom) => "the code of busier functions took all the room there was",
        None => "the function has so few samples that its code was not kept",
    }
}
