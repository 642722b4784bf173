//! Keeps what the walker in the kernel goes by in step with what processes map.
//!
//! A process is taken in when its first sample comes, and its children with it; until then, and until the rows of all its
//! files are compiled (a thread of its own does that: 15 million rows a second, libc's in 2 ms), the kernel copies its
//! stacks, and user space walks. Rows are not kept on disk: to read and check them there would take longer.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustc_hash::{FxHashMap, FxHashSet};
use uhr_ebpf::{Code, TableId, Tables, WalkBy};
use uhr_unwind::{CodeMapping, RowTable, UnwindModule};

use crate::tasks::Tasks;

/// A process that turned out to be missing in the kernel is not taken in again at once.
const AGAIN_NS: u64 = 1_000_000_000;

/// What became of the rows of a file.
#[derive(Clone, Copy, Debug)]
enum Rows {
    /// They are being compiled.
    Asked,
    There(TableId),
    /// It has none, or there was no room.
    None,
}

/// The files and processes that the kernel knows.
#[derive(Debug)]
pub(crate) struct KernelTables {
    tables: Tables,
    /// By [`UnwindModule::id`].
    files: FxHashMap<u32, Rows>,
    /// Processes that are taken in, and when their mappings were last written.
    taken_in: FxHashMap<u32, u64>,
    /// Those of them whose mappings have changed since,
    changed: FxHashSet<u32>,
    /// or that wait for the rows of a file.
    waiting: HashSet<u32>,
    requests: Sender<Arc<UnwindModule>>,
    compiled: Receiver<(u32, RowTable)>,
    /// Files and processes that there was no room for.
    pub(crate) without_room: u64,
}

impl KernelTables {
    /// Of a sampler's tables, which are empty.
    pub(crate) fn new(tables: Tables) -> io::Result<Self> {
        let (requests, requested) = channel::<Arc<UnwindModule>>();
        let (done, compiled) = channel();
        std::thread::Builder::new().name("uhr-rows".to_owned()).spawn(move || {
            for module in requested {
                if done.send((module.id(), module.row_table())).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self {
            tables,
            files: FxHashMap::default(),
            taken_in: FxHashMap::default(),
            changed: FxHashSet::default(),
            waiting: HashSet::new(),
            requests,
            compiled,
            without_room: 0,
        })
    }

    /// A sample of the process came whose stack the kernel could not walk, because it does not know some of its code.
    pub(crate) fn take_in(&mut self, pid: u32, now_ns: u64) {
        if self.taken_in.get(&pid).is_none_or(|since| now_ns.saturating_sub(*since) > AGAIN_NS) {
            self.taken_in.insert(pid, now_ns);
            self.changed.insert(pid);
        }
    }

    /// The code of a process has changed, its name (it may have executed a program), or it has ended.
    pub(crate) fn see_change(&mut self, pid: u32) {
        if self.taken_in.contains_key(&pid) {
            self.changed.insert(pid);
        }
    }

    /// A process has made another.
    pub(crate) fn see_fork(&mut self, parent: u32, child: u32, now_ns: u64) {
        if self.taken_in.contains_key(&parent) {
            self.taken_in.insert(child, now_ns);
            self.changed.insert(child);
        }
    }

    /// Brings the kernel up to date; all records up to `as_of_ns` have been taken in.
    pub(crate) fn update(&mut self, tasks: &Tasks, as_of_ns: u64) {
        let compiled: Vec<(u32, RowTable)> = self.compiled.try_iter().collect();
        if !compiled.is_empty() {
            self.changed.extend(self.waiting.drain());
        }
        for (file, rows) in compiled {
            let table = self.tables.add(rows.rows()).ok().flatten();
            self.without_room += u64::from(table.is_none() && !rows.rows().is_empty());
            self.files.insert(file, table.map_or(Rows::None, Rows::There));
        }
        for pid in std::mem::take(&mut self.changed) {
            match tasks.known_process(pid) {
                Some(process) => self.write(pid, process.unwinder.code(), as_of_ns),
                None => {
                    self.taken_in.remove(&pid);
                    self.tables.forget(pid);
                }
            }
        }
    }

    fn write<'a>(&mut self, pid: u32, code: impl Iterator<Item = CodeMapping<'a>>, as_of_ns: u64) {
        let codes: Vec<Code> = code
            .map(|mapping| {
                let by = match mapping.module {
                    Some(module) => self.walk_by(module, pid),
                    // It keeps frame pointers, or not; the unwinder reads its instructions.
                    None => WalkBy::ReadingCode,
                };
                Code { range: mapping.range.start.0..mapping.range.end.0, bias: mapping.bias, by }
            })
            .collect();
        self.taken_in.insert(pid, as_of_ns);
        let is_in = self.tables.set_space(pid, as_of_ns, &codes).unwrap_or(false);
        self.without_room += u64::from(!is_in);
    }

    fn walk_by(&mut self, module: &Arc<UnwindModule>, pid: u32) -> WalkBy {
        let requests = &self.requests;
        let rows = self.files.entry(module.id()).or_insert_with(|| {
            // The thread only ends when this value does.
            let _ = requests.send(Arc::clone(module));
            Rows::Asked
        });
        match rows {
            Rows::Asked => {
                self.waiting.insert(pid);
                WalkBy::Nothing
            }
            Rows::There(table) if module.is_go() => WalkBy::RowsOrFramePointers(*table),
            Rows::There(table) => WalkBy::Rows(*table),
            Rows::None if module.is_go() => WalkBy::FramePointers,
            Rows::None => WalkBy::ReadingCode,
        }
    }
}
