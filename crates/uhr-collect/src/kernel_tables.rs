//! Keeps what the walker in the kernel goes by in step with what processes map.
//!
//! A process is taken in when its first sample comes, and its children with it; until then, and until the rows of all its
//! files are compiled (a thread of its own does that: 15 million rows a second, libc's in 2 ms), the kernel copies its
//! stacks, and user space walks. Rows are not kept on disk: to read and check them there would take longer.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustc_hash::{FxHashMap, FxHashSet};
use uhr_ebpf::{Code, PackedRows, TableId, Tables, WalkBy};
use uhr_unwind::{CodeMapping, ProcessUnwinder, UnwindModule};

use crate::perf::BeforeOthers;
use crate::tasks::Tasks;

/// A process that turned out to be missing in the kernel is not taken in again at once.
const AGAIN_NS: u64 = 1_000_000_000;
/// Of a file with more unwind information than this (compiled in some 5 ms) rows are wanted
const LARGE_BYTES: u64 = 1 << 20;
/// when so many stacks of a process that has it mapped had to be copied: a build runs hundreds of large programs, each for a
/// moment.
const COPIES: u32 = 16;

/// What became of the rows of a file.
#[derive(Clone, Copy, Debug)]
enum Rows {
    /// They are being compiled.
    Asked,
    There(TableId),
    /// It has none.
    None,
    /// There was no room for them.
    NoRoom,
}

/// What the kernel was told of a process.
#[derive(Debug, Default)]
struct TakenIn {
    /// When.
    at_ns: u64,
    /// How many of its stacks were copied.
    copies: u32,
    /// Of one of them the copy was too short.
    is_deep: bool,
    /// The files whose rows it walks by.
    files: Vec<u32>,
}

/// The files and processes that the kernel knows.
#[derive(Debug)]
pub(crate) struct KernelTables {
    tables: Tables,
    /// By [`UnwindModule::id`].
    files: FxHashMap<u32, Rows>,
    /// Processes that are taken in.
    taken_in: FxHashMap<u32, TakenIn>,
    /// Those of them whose mappings have changed since,
    changed: FxHashSet<u32>,
    /// or that wait for the rows of a file.
    waiting: FxHashSet<u32>,
    /// Rows were given up, and their room is not free yet.
    has_given_up: bool,
    requests: Sender<Arc<UnwindModule>>,
    compiled: Receiver<(u32, PackedRows)>,
    /// Files and processes that there was no room for.
    pub(crate) without_room: u64,
}

impl KernelTables {
    /// Of a sampler's tables, which are empty.
    pub(crate) fn new(tables: Tables) -> io::Result<Self> {
        let (requests, requested) = channel::<Arc<UnwindModule>>();
        let (done, compiled) = channel();
        std::thread::Builder::new().name("uhr-rows".to_owned()).spawn(move || compile(&requested, &done))?;
        Ok(Self {
            tables,
            files: FxHashMap::default(),
            taken_in: FxHashMap::default(),
            changed: FxHashSet::default(),
            waiting: FxHashSet::default(),
            has_given_up: false,
            requests,
            compiled,
            without_room: 0,
        })
    }

    /// A process is to be walked.
    pub(crate) fn take_in(&mut self, pid: u32, now_ns: u64) {
        let known = self.taken_in.entry(pid).or_default();
        if now_ns.saturating_sub(known.at_ns) > AGAIN_NS {
            known.at_ns = now_ns;
            self.changed.insert(pid);
        }
    }

    /// A stack of the process was copied, because the kernel does not know some of its code, or how to walk out of it.
    pub(crate) fn see_copy(&mut self, pid: u32, is_of_unknown_code: bool, now_ns: u64) {
        if is_of_unknown_code {
            self.take_in(pid, now_ns);
        }
        if let Some(known) = self.taken_in.get_mut(&pid) {
            known.copies = known.copies.saturating_add(1);
            if known.copies == COPIES {
                self.changed.insert(pid);
            }
        }
    }

    /// A copy was too short.
    pub(crate) fn see_deep_stack(&mut self, pid: u32) {
        if let Some(known) = self.taken_in.get_mut(&pid).filter(|known| !known.is_deep) {
            known.is_deep = true;
            self.changed.insert(pid);
        }
    }

    /// A process has executed another program.
    pub(crate) fn see_exec(&mut self, pid: u32) {
        if let Some(known) = self.taken_in.get_mut(&pid) {
            known.is_deep = false;
            self.changed.insert(pid);
        }
    }

    /// The code of a process has changed, or the name of one of its threads, which looks like an exec to the kernel's side.
    pub(crate) fn see_change(&mut self, pid: u32) {
        if self.taken_in.contains_key(&pid) {
            self.changed.insert(pid);
        }
    }

    /// A process has made another.
    pub(crate) fn see_fork(&mut self, parent: u32, child: u32) {
        if let Some(&TakenIn { is_deep, .. }) = self.taken_in.get(&parent) {
            self.taken_in.entry(child).or_insert(TakenIn { is_deep, ..TakenIn::default() });
            self.changed.insert(child);
        }
    }

    /// Brings the kernel up to date; all records up to `as_of_ns` have been taken in.
    pub(crate) fn update(&mut self, tasks: &Tasks, as_of_ns: u64) {
        let compiled: Vec<(u32, PackedRows)> = self.compiled.try_iter().collect();
        if !compiled.is_empty() {
            self.changed.extend(self.waiting.drain());
        }
        for (file, rows) in compiled {
            let table = self.tables.add(&rows).ok().flatten();
            self.without_room += u64::from(table.is_none() && !rows.is_empty());
            let without = if rows.is_empty() { Rows::None } else { Rows::NoRoom };
            self.files.insert(file, table.map_or(without, Rows::There));
        }
        for pid in std::mem::take(&mut self.changed) {
            match tasks.known_process(pid) {
                Some(process) => self.write(pid, &process.unwinder, as_of_ns),
                None => {
                    self.taken_in.remove(&pid);
                    self.tables.forget(pid);
                }
            }
        }
    }

    /// Forgets processes whose end was not told, and, where room is short, rows that no process needs.
    pub(crate) fn sweep(&mut self, tasks: &Tasks) {
        let gone = self.taken_in.keys().filter(|pid| !tasks.knows_process(**pid));
        self.changed.extend(gone);
        if !self.files.values().any(|rows| matches!(rows, Rows::NoRoom)) {
            return;
        }
        let needed: FxHashSet<u32> = self.taken_in.values().flat_map(|known| known.files.clone()).collect();
        let tables = &mut self.tables;
        let mut has_given_up = false;
        self.files.retain(|file, rows| match rows {
            Rows::There(table) if !needed.contains(file) => {
                tables.remove(*table);
                has_given_up = true;
                false
            }
            _ => true,
        });
        // What had no room is tried again, until the room that was given up is free.
        if has_given_up || std::mem::take(&mut self.has_given_up) {
            self.files.retain(|_, rows| !matches!(rows, Rows::NoRoom));
            self.changed.extend(self.waiting.drain());
        }
        self.has_given_up |= has_given_up;
    }

    fn write(&mut self, pid: u32, unwinder: &ProcessUnwinder, as_of_ns: u64) {
        let mut files = Vec::new();
        let mut codes = Vec::new();
        for CodeMapping { range, bias, module } in unwinder.code() {
            files.extend(module.map(|module| module.id()));
            let root = module.and_then(|module| unwinder.goroutine_root(module)).map(|address| address.0);
            let with_frames = match module {
                Some(module) if module.is_go() => std::iter::once(0..u64::MAX).collect(),
                _ => unwinder.keeps_frame_pointers(module.map(|module| &**module)),
            };
            // A file can be mapped below what it states; the first and the last gap have no bounds.
            let in_process = |stated: u64| match stated {
                0 | u64::MAX => stated,
                _ => stated.wrapping_add(bias),
            };
            let with_frames = with_frames.iter().map(|gap| in_process(gap.start)..in_process(gap.end));
            for (range, has_frames) in pieces(range.start.0..range.end.0, with_frames) {
                let by = match module {
                    Some(module) => self.walk_by(module, has_frames, pid),
                    None if has_frames => WalkBy::FramePointers,
                    // The unwinder reads its instructions.
                    None => WalkBy::ReadingCode,
                };
                codes.push(Code { range, bias, by, root });
            }
        }
        let is_there = |file: &u32| matches!(self.files.get(file), Some(Rows::There(_)));
        let files = files.into_iter().filter(is_there).collect();
        let known = self.taken_in.entry(pid).or_default();
        (known.at_ns, known.files) = (as_of_ns, files);
        let is_in = self.tables.set_space(pid, as_of_ns, known.is_deep, &codes).unwrap_or(false);
        self.without_room += u64::from(!is_in);
    }

    fn walk_by(&mut self, module: &Arc<UnwindModule>, has_frames: bool, pid: u32) -> WalkBy {
        let is_due = module.section_bytes() <= LARGE_BYTES
            || self.taken_in.get(&pid).is_some_and(|known| known.copies >= COPIES);
        if !is_due && !self.files.contains_key(&module.id()) {
            return WalkBy::Nothing;
        }
        let requests = &self.requests;
        let rows = self.files.entry(module.id()).or_insert_with(|| {
            // The thread only ends when this value does.
            let _ = requests.send(Arc::clone(module));
            Rows::Asked
        });
        match rows {
            Rows::Asked | Rows::NoRoom => {
                self.waiting.insert(pid);
                WalkBy::Nothing
            }
            Rows::There(table) if has_frames => WalkBy::RowsOrFramePointers(*table),
            Rows::There(table) => WalkBy::Rows(*table),
            Rows::None if has_frames => WalkBy::FramePointers,
            Rows::None => WalkBy::ReadingCode,
        }
    }
}

/// The pieces of a mapping that lie in some ranges, which are sorted and do not overlap, and those that do not.
fn pieces(
    mapping: Range<u64>,
    ranges: impl Iterator<Item = Range<u64>>,
) -> impl Iterator<Item = (Range<u64>, bool)> {
    let (mut at, mut pieces) = (mapping.start, Vec::new());
    for range in ranges {
        let range = range.start.max(at)..range.end.min(mapping.end);
        if !range.is_empty() {
            pieces.extend([(at..range.start, false), (range.clone(), true)]);
            at = range.end;
        }
    }
    pieces.push((at..mapping.end, false));
    pieces.into_iter().filter(|(range, _)| !range.is_empty())
}

/// Compiles rows as long as files come. Small files first: a large one must not keep many waiting.
fn compile(requested: &Receiver<Arc<UnwindModule>>, done: &Sender<(u32, PackedRows)>) {
    // Meanwhile the stacks of running programs are copied.
    let _before_others = BeforeOthers::new();
    let mut wanted = Vec::new();
    loop {
        wanted.extend(requested.try_iter());
        let smallest = wanted.iter().enumerate().min_by_key(|(_, module)| module.section_bytes());
        let module = match smallest.map(|(at, _)| at) {
            Some(at) => wanted.swap_remove(at),
            None => match requested.recv() {
                Ok(module) => module,
                Err(_) => return,
            },
        };
        let rows = PackedRows::new(|each| module.simple_rows(each));
        if done.send((module.id(), rows)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_in_pieces() {
        let cut = |ranges: &[Range<u64>]| pieces(100..200, ranges.iter().cloned()).collect::<Vec<_>>();
        assert_eq!(cut(&[]), [(100..200, false)]);
        assert_eq!(cut(&[0..50, 250..300]), [(100..200, false)]);
        assert_eq!(cut(&[0..50, 60..u64::MAX]), [(100..200, true)]);
        assert_eq!(
            cut(&[50..110, 120..130, 190..250]),
            [(100..110, true), (110..120, false), (120..130, true), (130..190, false), (190..200, true)]
        );
    }
}
