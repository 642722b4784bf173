//! eBPF programs in the kernel's parts of stacks. They come and go, and their code takes turns at the same addresses: which one
//! an address is of depends on the time. Each has a module row of its own, and its code and lines are stored when a
//! stack first has it in.
//!
//! Who may ask (CAP_SYS_ADMIN) does so for each batch of records: where no program is new that is one system call. Others learn
//! names and places of those that are loaded meanwhile from the kernel's records, if the whole machine is watched.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault};
use std::ops::Range;

use rustc_hash::{FxHashSet, FxHasher};
use uhr_ebpf::{ProgramCode, ProgramFunction, ProgramLine, next_program, program_code, program_outline};
use uhr_model::ModuleId;
use uhr_recording::RecordingWriter;
use uhr_recording::tables::SourceLineRow;

use crate::evidence::kernel_program_name;
use crate::generated_code::jitdump_of;
use crate::modules::Modules;
use crate::perf::{KernelSymbol, asleep_ns, monotonic_ns};

/// Programs that are known at once. A large host has hundreds; somebody may load them by the thousand.
const MAX_PROGRAMS: usize = 16_384;
/// Those of them that a recording keeps: each is a file.
const MAX_STORED: usize = 1_024;
/// New programs that are looked at with one batch of records: some microseconds each.
const MAX_A_LOOK: usize = 2_048;
/// Code of programs that are new, and in no stack yet: it is read before they may be gone again.
const MAX_WAITING_BYTES: usize = 8 << 20;
/// Source lines of one recording, and bytes of one.
const MAX_LINES: usize = 65_536;
const MAX_LINE_BYTES: usize = 1_024;
/// How the kernel calls their functions, and how much of that name no two different functions have in common.
const PREFIX: &[u8] = b"bpf_prog_";
const PREFIX_WITH_TAG: usize = PREFIX.len() + 16;

/// The programs that are loaded, as of the time of the records that are being handled.
#[derive(Debug, Default)]
pub(crate) struct KernelPrograms {
    programs: Vec<Program>,
    /// Start to end, and the program.
    places: BTreeMap<u64, (u64, usize)>,
    /// From the first to the last place: nearly all of the kernel's code lies outside.
    span: Range<u64>,
    /// Loaded later than the records that are being handled, by time.
    to_come: VecDeque<(u64, usize)>,
    last_id: u32,
    looked_ns: u64,
    may_not_ask: bool,
    waiting_bytes: usize,
    stored: usize,
    lines_told: FxHashSet<u64>,
    missed: Missed,
}

/// A program, once for each time that it is loaded.
#[derive(Debug)]
struct Program {
    /// What to ask the kernel by; missing where only a record told of it.
    id: Option<u32>,
    functions: Vec<ProgramFunction>,
    /// Read before a stack had it in.
    code: Option<ProgramCode>,
    /// Once a stack has had it in.
    module: Option<ModuleId>,
}

#[derive(Debug, Default)]
struct Missed {
    gone: u64,
    not_permitted: u64,
    hidden: u64,
    too_many: u64,
    not_kept: u64,
    lines: u64,
    not_written: u64,
}

impl KernelPrograms {
    /// Asks for programs that are new since the last time.
    pub(crate) fn look(&mut self) {
        if self.may_not_ask {
            return;
        }
        let before_ns = std::mem::replace(&mut self.looked_ns, monotonic_ns());
        let asleep_ns = asleep_ns();
        let mut found = Vec::new();
        while found.len() < MAX_A_LOOK {
            match next_program(self.last_id) {
                Ok(Some(id)) => self.last_id = id,
                Ok(None) => break,
                Err(_) => {
                    self.may_not_ask = true;
                    break;
                }
            }
            let Ok(outline) = program_outline(self.last_id) else { continue };
            self.missed.hidden += u64::from(outline.is_hidden);
            // It is loaded, then checked, then compiled, then listed, and it was not the last time.
            let since_ns = outline.loaded_ns.saturating_sub(asleep_ns).max(before_ns);
            found.push((since_ns, self.last_id, outline.functions));
        }
        found.sort_by_key(|(since_ns, ..)| *since_ns);
        for (since_ns, id, functions) in found.into_iter().filter(|found| !found.2.is_empty()) {
            // Who was there before will be there when it is needed.
            let is_new = before_ns > 0 && self.waiting_bytes < MAX_WAITING_BYTES;
            let code = if is_new { program_code(id).ok() } else { None };
            self.waiting_bytes += code.as_ref().map_or(0, bytes_of);
            if let Some(at) = self.add(Program { id: Some(id), functions, code, module: None }) {
                self.to_come.push_back((since_ns, at));
            }
        }
    }

    /// A record tells that code came or went.
    pub(crate) fn see(&mut self, symbol: &KernelSymbol<'_>, now_ns: u64) {
        if !symbol.name.starts_with(PREFIX) {
            return;
        }
        self.become_as_of(now_ns);
        let (start, end) = (symbol.address, symbol.address.saturating_add(u64::from(symbol.length)));
        let is_it = |function: &ProgramFunction| function.start == start && is_named(function, symbol.name);
        let is_of = |at: usize| self.programs[at].functions.iter().any(is_it);
        match (symbol.is_gone, self.places.get(&start)) {
            // Its place may be somebody else's by now: when that came is known less exactly than this.
            (true, Some(&(_, at))) if is_of(at) => self.clear(start, end),
            (true, _) => {}
            (false, Some(&(_, at))) if is_of(at) => {}
            (false, _) => {
                let known = (0..self.programs.len()).rev().find(|&at| is_of(at));
                let name = || String::from_utf8_lossy(symbol.name).into_owned();
                let new = || Program {
                    id: None,
                    functions: vec![ProgramFunction { start, end, name: name() }],
                    code: None,
                    module: None,
                };
                if let Some(at) = known.or_else(|| self.add(new())) {
                    self.place(at);
                }
            }
        }
    }

    /// Goes on to a later time.
    pub(crate) fn become_as_of(&mut self, now_ns: u64) {
        while let Some((_, at)) = self.to_come.pop_front_if(|(since_ns, _)| *since_ns <= now_ns) {
            self.place(at);
        }
    }

    /// The module of the program that an address is in.
    pub(crate) fn module(
        &mut self,
        address: u64,
        modules: &mut Modules,
        writer: &mut RecordingWriter,
    ) -> Option<ModuleId> {
        if !self.span.contains(&address) {
            return None;
        }
        let (_, &(_, at)) =
            self.places.range(..=address).next_back().filter(|(_, (end, _))| address < *end)?;
        match self.programs[at].module {
            Some(module) => Some(module),
            None => self.store(at, modules, writer),
        }
    }

    /// What was missed, in words.
    pub(crate) fn misses(&self) -> [(&'static str, u64); 7] {
        let Missed { gone, not_permitted, hidden, too_many, not_kept, lines, not_written } = self.missed;
        [
            ("eBPF programs in stacks that were gone before their code was read", gone),
            ("eBPF programs in stacks whose code may not be read (it takes CAP_SYS_ADMIN)", not_permitted),
            ("eBPF programs whose addresses the kernel hides (kernel.kptr_restrict)", hidden),
            ("eBPF programs beyond those that are told apart", too_many),
            ("frames in eBPF programs beyond those that are kept", not_kept),
            ("source lines of eBPF programs beyond those that are kept", lines),
            ("eBPF programs whose code could not be written", not_written),
        ]
    }

    fn add(&mut self, program: Program) -> Option<usize> {
        if self.programs.len() >= MAX_PROGRAMS {
            self.missed.too_many += 1;
            return None;
        }
        self.programs.push(program);
        Some(self.programs.len() - 1)
    }

    fn place(&mut self, at: usize) {
        let places: Vec<Range<u64>> =
            self.programs[at].functions.iter().map(|function| function.start..function.end).collect();
        for Range { start, end } in places.into_iter().filter(|place| !place.is_empty()) {
            self.clear(start, end);
            self.places.insert(start, (end, at));
            self.span = match self.span.is_empty() {
                true => start..end,
                false => self.span.start.min(start)..self.span.end.max(end),
            };
        }
    }

    /// What lies in a range has given its room back.
    fn clear(&mut self, start: u64, end: u64) {
        while let Some((&old, &(old_end, at))) = self.places.range(..end).next_back() {
            if old_end <= start {
                return;
            }
            self.places.remove(&old);
            let code = self.programs[at].code.take();
            self.waiting_bytes -= code.as_ref().map_or(0, bytes_of);
        }
    }

    /// Writes what a program is made of, as far as that can be had.
    fn store(&mut self, at: usize, modules: &mut Modules, writer: &mut RecordingWriter) -> Option<ModuleId> {
        if self.stored == MAX_STORED {
            self.missed.not_kept += 1;
            return None;
        }
        self.stored += 1;
        let program = &mut self.programs[at];
        let waiting = program.code.take();
        self.waiting_bytes -= waiting.as_ref().map_or(0, bytes_of);
        let is_it = |code: &ProgramCode| {
            let places = code.functions.iter().map(|(function, _)| (function.start, function.end));
            places.eq(program.functions.iter().map(|function| (function.start, function.end)))
        };
        let code = waiting.or_else(|| program.id.and_then(|id| program_code(id).ok())).filter(is_it);
        let code = code.unwrap_or_else(|| {
            let missed = if program.id.is_none() && self.may_not_ask {
                &mut self.missed.not_permitted
            } else {
                &mut self.missed.gone
            };
            *missed += 1;
            let functions = program.functions.iter().map(|one| (one.clone(), Vec::new())).collect();
            ProgramCode { functions, lines: Vec::new() }
        });
        let module = modules.kernel_program(writer);
        program.module = Some(module);
        let written = writer.write_evidence(&kernel_program_name(module.0), &jitdump_of(&code));
        self.missed.not_written += u64::from(written.is_err());
        code.lines.iter().for_each(|line| self.tell(line, writer));
        Some(module)
    }

    /// Stores the text of a line, unless it is.
    fn tell(&mut self, line: &ProgramLine, writer: &mut RecordingWriter) {
        let text = line.text.trim_end();
        if text.is_empty() {
            return;
        }
        let hash = BuildHasherDefault::<FxHasher>::default().hash_one((&line.file, line.line, text));
        if self.lines_told.contains(&hash) {
            return;
        }
        if self.lines_told.len() == MAX_LINES {
            self.missed.lines += 1;
            return;
        }
        self.lines_told.insert(hash);
        let text = text[..text.floor_char_boundary(MAX_LINE_BYTES)].to_owned();
        writer.push_source_line(SourceLineRow { file: line.file.clone(), line: line.line, text });
    }
}

/// Whether a record's name is that of a function. The names that are asked for are cut, their tags are not.
fn is_named(function: &ProgramFunction, name: &[u8]) -> bool {
    let tagged = name.get(..PREFIX_WITH_TAG);
    tagged.is_some() && function.name.as_bytes().get(..PREFIX_WITH_TAG) == tagged
}

/// What code takes in memory while it waits, roughly.
fn bytes_of(code: &ProgramCode) -> usize {
    let code_bytes = code.functions.iter().map(|(function, bytes)| function.name.len() + bytes.len());
    let line_bytes =
        code.lines.iter().map(|line| size_of::<ProgramLine>() + line.file.len() + line.text.len());
    code_bytes.chain(line_bytes).sum()
}

#[cfg(test)]
mod tests {
    use uhr_recording::{Clock, Host, Manifest, Recording, Settings, tables};

    use super::*;

    const A: &str = "bpf_prog_aaaaaaaaaaaaaaaa_first";
    const B: &str = "bpf_prog_bbbbbbbbbbbbbbbb_second";

    struct Scene {
        folder: tempfile::TempDir,
        programs: KernelPrograms,
        modules: Modules,
        writer: RecordingWriter,
    }

    impl Scene {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let manifest = Manifest::new(Settings::default(), Host::default(), Clock::default());
            let writer = RecordingWriter::create(&folder.path().join("rec"), &manifest).unwrap();
            Self { folder, programs: KernelPrograms::default(), modules: Modules::default(), writer }
        }

        /// A program that was found, with code that was read at once.
        fn comes(&mut self, since_ns: u64, places: &[(u64, u64)], name: &str) {
            let function = |&(start, end): &(u64, u64)| ProgramFunction { start, end, name: name.to_owned() };
            let functions: Vec<ProgramFunction> = places.iter().map(function).collect();
            let line = ProgramLine { address: places[0].0, file: "p.c".into(), line: 7, text: name.into() };
            let code = ProgramCode {
                functions: functions.iter().map(|one| (one.clone(), vec![0xc3; 16])).collect(),
                lines: vec![line.clone(), line],
            };
            self.programs.waiting_bytes += bytes_of(&code);
            let program = Program { id: Some(u32::MAX), functions, code: Some(code), module: None };
            let at = self.programs.add(program).unwrap();
            self.programs.to_come.push_back((since_ns, at));
        }

        fn at(&mut self, now_ns: u64, address: u64) -> Option<ModuleId> {
            self.programs.become_as_of(now_ns);
            self.programs.module(address, &mut self.modules, &mut self.writer)
        }

        fn record(&mut self, now_ns: u64, address: u64, name: &str, is_gone: bool) {
            let symbol = KernelSymbol { address, length: 16, is_gone, name: name.as_bytes() };
            self.programs.see(&symbol, now_ns);
        }
    }

    #[test]
    fn an_address_is_of_whoever_was_there_then() {
        let mut scene = Scene::new();
        scene.comes(10, &[(0x1000, 0x1010), (0x5000, 0x5010)], A);
        scene.comes(50, &[(0x1008, 0x1018)], B);
        assert_eq!(scene.at(5, 0x1008), None, "before it was loaded");
        let first = scene.at(10, 0x1008);
        assert!(first.is_some());
        assert_eq!((scene.at(40, 0x5000), scene.at(40, 0x500f)), (first, first), "its other function");
        assert_eq!([scene.at(40, 0x1010), scene.at(40, 0xfff), scene.at(40, 0x5010)], [None; 3]);
        let second = scene.at(50, 0x1008);
        assert!(second.is_some() && second != first);
        assert_eq!(scene.at(60, 0x1000), None, "its code was freed with the rest");
        assert_eq!(scene.programs.waiting_bytes, 0, "what was read is written, or let go");
        let path = scene.folder.path().join("rec");
        scene.writer.flush().unwrap();
        let recording = Recording::open(&path).unwrap();
        let modules = recording.modules().unwrap();
        assert!(modules.iter().all(|module| module.kind == uhr_model::ModuleKind::Bpf.code()));
        assert!(recording.evidence(&kernel_program_name(modules[1].id), 1 << 20).is_some());
        let lines: tables::SourceLines = recording.table().unwrap();
        assert_eq!(lines.text, [A, B], "each text once");
    }

    #[test]
    fn records_tell_of_programs_that_may_not_be_asked_for() {
        let mut scene = Scene::new();
        scene.programs.may_not_ask = true;
        scene.record(10, 0x1000, A, false);
        scene.record(10, 0x2000, "bpf_trampoline_6442", false);
        let first = scene.at(11, 0x100f);
        assert!(first.is_some());
        assert_eq!(scene.at(11, 0x2000), None, "no program");
        scene.record(20, 0x1000, A, true);
        assert_eq!(scene.at(20, 0x1000), None);
        scene.record(30, 0x1000, B, false);
        assert_ne!(scene.at(30, 0x1000), first);
        let missed: Vec<u64> = scene.programs.misses().iter().map(|(_, count)| *count).collect();
        assert_eq!(missed, [0, 2, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_record_of_a_program_that_was_asked_for_changes_nothing() {
        let mut scene = Scene::new();
        scene.comes(10, &[(0x1000, 0x1010)], A);
        // The kernel knows a longer name than fits into what is asked first.
        scene.record(12, 0x1000, &format!("{A}_and_more"), false);
        assert!(scene.at(13, 0x1000).is_some());
        assert!(scene.programs.misses().iter().all(|(_, count)| *count == 0));
    }

    /// It was asked for before the record of its predecessor's end, which has the same place, was handled.
    #[test]
    fn the_end_of_one_program_is_not_that_of_the_next() {
        let mut scene = Scene::new();
        scene.comes(10, &[(0x1000, 0x1010)], A);
        let first = scene.at(15, 0x1000);
        scene.comes(20, &[(0x1000, 0x1010)], B);
        scene.record(25, 0x1000, A, true);
        scene.record(30, 0x1000, B, false);
        let second = scene.at(31, 0x1000);
        assert!(second.is_some() && second != first);
        assert!(scene.programs.misses().iter().all(|(_, count)| *count == 0), "its code is there");
        // The same program once more: the record of its beginning tells which of the two ended.
        scene.comes(50, &[(0x1000, 0x1010)], B);
        scene.record(55, 0x1000, B, true);
        assert_eq!(scene.at(56, 0x1000), None);
        scene.record(60, 0x1000, B, false);
        let third = scene.at(61, 0x1000);
        assert!(third.is_some() && third != second);
    }

    #[test]
    fn what_cannot_be_read_any_more_keeps_its_name_and_is_counted() {
        let mut scene = Scene::new();
        scene.comes(10, &[(0x1000, 0x1010)], A);
        scene.programs.programs[0].code = None;
        scene.programs.waiting_bytes = 0;
        let module = scene.at(10, 0x1000).unwrap();
        assert_eq!(scene.programs.misses()[0].1, 1);
        let recording = Recording::open(&scene.folder.path().join("rec")).unwrap();
        let dump = recording.evidence(&kernel_program_name(module.0), 1 << 20).unwrap();
        assert!(dump.windows(A.len()).any(|bytes| bytes == A.as_bytes()));
    }
}
