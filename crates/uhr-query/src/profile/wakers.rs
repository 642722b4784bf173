//! What ended waits: threads and interrupts, each with what had ended its own last wait.

use rustc_hash::FxHashMap;
use uhr_model::Interrupt;
use uhr_recording::Table;
use uhr_recording::tables::{WakerRow, Wakers as Stored};

use super::Owners;
use crate::QueryError;
use crate::answers::KeyValue;
use crate::names::shown;

/// The wakers of a recording, as a tree. Row 0 is what is not known.
#[derive(Debug)]
pub(crate) struct Wakers {
    rows: Vec<WakerRow>,
    /// For each row, the first one of the same thread or interrupt, whoever woke it.
    pub(crate) who: Vec<u32>,
}

/// The one thread or kind of interrupt that a row is about.
type Who<'a> = (Option<u32>, Option<u32>, Option<u32>, Option<&'a str>, Option<u8>);

fn who(row: &WakerRow) -> Who<'_> {
    match row.thread {
        Some(_) => (row.thread, None, None, None, None),
        None => (None, row.pid, row.tid, row.name.as_deref(), row.interrupt),
    }
}

impl Wakers {
    /// Of a finished recording. Its rows stand where their numbers say, behind what woke them.
    pub(super) fn of_table(table: &Stored, owners: &Owners) -> Result<Self, QueryError> {
        Self::new((0..table.len()).map(|row| table.row(row)).collect(), owners)
    }

    pub(super) fn new(mut rows: Vec<WakerRow>, owners: &Owners) -> Result<Self, QueryError> {
        if rows.is_empty() {
            let (woken_by, thread, pid, tid, name, interrupt) = Default::default();
            rows.push(WakerRow { id: 0, woken_by, thread, pid, tid, name, interrupt });
        }
        for (at, row) in rows.iter().enumerate() {
            let is_sound = row.id as usize == at
                && row.woken_by.is_none_or(|woken_by| (woken_by as usize) < at)
                && row.thread.is_none_or(|thread| (thread as usize) < owners.threads.len());
            if !is_sound {
                return Err(QueryError::Damaged(format!("waker {at} contradicts itself")));
            }
        }
        let mut known: FxHashMap<Who<'_>, u32> = FxHashMap::default();
        let numbers = rows.iter().map(|row| *known.entry(who(row)).or_insert(row.id)).collect();
        Ok(Self { who: numbers, rows })
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The row, and those that woke one another before it.
    pub(crate) fn chain(&self, row: u32) -> impl Iterator<Item = u32> {
        let woken_by = |row: &u32| self.rows.get(*row as usize).and_then(|row| row.woken_by);
        std::iter::successors(Some(row), woken_by).filter(|row| *row != 0)
    }

    /// Whether it is an interrupt.
    pub(crate) fn interrupt(&self, row: u32) -> Option<Interrupt> {
        self.rows[row as usize].interrupt.and_then(Interrupt::from_code)
    }

    /// Its tid, if it is a thread.
    pub(crate) fn tid(&self, row: u32, owners: &Owners) -> Option<u32> {
        let row = &self.rows[row as usize];
        row.thread.map(|thread| owners.threads[thread as usize].tid).or(row.tid)
    }

    /// What it is called: a thread's name, or the kind of an interrupt.
    pub(crate) fn name<'a>(&'a self, row: u32, owners: &'a Owners) -> &'a str {
        let known = &self.rows[row as usize];
        match (known.thread, self.interrupt(row)) {
            (Some(thread), _) => &owners.threads[thread as usize].name,
            (None, Some(interrupt)) => interrupt.name(),
            (None, None) => known.name.as_deref().unwrap_or(""),
        }
    }

    /// As a key.
    pub(crate) fn key(&self, row: u32, owners: &Owners, whole_names: bool) -> KeyValue {
        let known = &self.rows[row as usize];
        if let Some(thread) = known.thread {
            return owners.thread_key(thread as usize, whole_names);
        }
        match (self.interrupt(row), known.tid) {
            (Some(interrupt), _) => KeyValue::Interrupt { interrupt: interrupt.name() },
            (None, Some(tid)) => KeyValue::Waker {
                name: known
                    .name
                    .as_deref()
                    .filter(|name| !name.is_empty())
                    .map(|name| shown(name, whole_names).into_owned()),
                tid,
                pid: known.pid,
            },
            (None, None) => KeyValue::Unknown,
        }
    }
}
