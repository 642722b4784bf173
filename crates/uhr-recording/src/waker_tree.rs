//! The tree of wakers, each once: a recorder that ran out of memory for it began it anew.

use rustc_hash::FxHashMap;
use uhr_model::Interrupt;

use crate::RecordingError;
use crate::Table;
use crate::tables::{WakerRow, Wakers};

/// What makes a waker one and the same.
type Identity = (Option<u32>, Option<u32>, Option<u32>, Option<u32>, Option<String>, Option<u8>);

/// What ended waits, in its final order: row 0 is what is not known, then comes each kind of interrupt, and a thread comes
/// before those that it woke.
#[derive(Debug)]
pub struct WakerTree {
    rows: Vec<WakerRow>,
    known: FxHashMap<Identity, u32>,
    new_of_old: Vec<u32>,
    /// For each thread, the kinds of interrupt that ended its waits: a bit each.
    seen: FxHashMap<u32, u8>,
}

impl Default for WakerTree {
    fn default() -> Self {
        let (rows, known, new_of_old) = Default::default();
        let mut tree = Self { rows, known, new_of_old, seen: FxHashMap::default() };
        tree.row(WakerRow::NOBODY);
        for kind in Interrupt::ALL {
            tree.interrupt_of(*kind);
        }
        tree
    }
}

impl WakerTree {
    /// Takes the stored table.
    ///
    /// # Errors
    /// [`RecordingError::Damaged`] if a row is woken by one that comes later.
    pub fn new(table: &Wakers) -> Result<Self, RecordingError> {
        let mut tree = Self::default();
        for at in 0..table.len() {
            let row = table.row(at);
            let woken_by = match row.woken_by {
                Some(old) => Some(tree.new_of_old.get(old as usize).copied().ok_or_else(|| {
                    RecordingError::damaged(Wakers::NAME, format!("waker {at} comes before what woke it"))
                })?),
                None => None,
            };
            // Woken by what is not known is no more than that.
            let new = tree.row(WakerRow { woken_by: woken_by.filter(|woken_by| *woken_by != 0), ..row });
            tree.new_of_old.push(new);
        }
        Ok(tree)
    }

    /// The number of a stored row; 0 if it was lost.
    pub fn of(&self, old: u32) -> u32 {
        self.new_of_old.get(old as usize).copied().unwrap_or(0)
    }

    /// What kind of interrupt a row is, if it is one.
    pub fn interrupt(&self, row: u32) -> Option<Interrupt> {
        self.rows.get(row as usize).and_then(|row| row.interrupt).and_then(Interrupt::from_code)
    }

    /// Whether it is an interrupt, and no thread besides.
    pub fn is_surely_interrupt(&self, row: u32) -> bool {
        self.interrupt(row).is_some() && !self.rows.get(row as usize).is_some_and(is_thread)
    }

    /// The row of a kind of interrupt.
    pub fn interrupt_of(&mut self, kind: Interrupt) -> u32 {
        self.row(WakerRow { interrupt: Some(kind.code()), ..WakerRow::NOBODY })
    }

    /// The row of the thread of this one, if it has one: an interrupt that came while it ran is taken away.
    pub fn thread_alone(&mut self, row: u32) -> Option<u32> {
        let known = self.rows.get(row as usize).filter(|row| is_thread(row))?.clone();
        Some(self.row(WakerRow { interrupt: None, ..known }))
    }

    /// Remembers what kind of interrupt ended a wait of a thread.
    pub fn saw(&mut self, thread: u32, kind: Interrupt) {
        *self.seen.entry(thread).or_default() |= 1 << kind.code();
    }

    /// When all waits are told: where a thread was woken by some interrupt, and all that were seen to end its waits are of
    /// one kind, it was one of that kind. What a recorder took for both a thread and an interrupt, and nothing told
    /// apart, is an interrupt.
    pub fn settle(&mut self) {
        for at in 0..self.rows.len() {
            if self.interrupt(at as u32).is_some() && is_thread(&self.rows[at]) {
                self.rows[at] =
                    WakerRow { id: at as u32, interrupt: self.rows[at].interrupt, ..WakerRow::NOBODY };
            }
            let is_some_kind =
                self.rows[at].woken_by.is_some_and(|by| self.interrupt(by) == Some(Interrupt::Other));
            let kinds = self.rows[at].thread.and_then(|thread| self.seen.get(&thread)).copied().unwrap_or(0);
            let kind = Interrupt::from_code(kinds.trailing_zeros() as u8).filter(|_| kinds.count_ones() == 1);
            if let Some(kind) = kind.filter(|_| is_some_kind) {
                self.rows[at].woken_by = Some(self.interrupt_of(kind));
            }
        }
    }

    /// The rows in their final order.
    pub fn rows(&self) -> &[WakerRow] {
        &self.rows
    }

    fn row(&mut self, row: WakerRow) -> u32 {
        let name = row.name.clone();
        let identity = (row.woken_by, row.thread, row.pid, row.tid, name, row.interrupt);
        let rows = &mut self.rows;
        *self.known.entry(identity).or_insert_with(|| {
            let id = rows.len() as u32;
            rows.push(WakerRow { id, ..row });
            id
        })
    }
}

fn is_thread(row: &WakerRow) -> bool {
    row.thread.is_some() || row.tid.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(Option<u32>, Option<u32>)]) -> Wakers {
        let mut table = Wakers::default();
        table.push(WakerRow::NOBODY);
        for (at, &(woken_by, tid)) in rows.iter().enumerate() {
            table.push(WakerRow { id: at as u32 + 1, woken_by, tid, ..WakerRow::NOBODY });
        }
        table
    }

    #[test]
    fn what_was_begun_anew_is_merged() {
        // 7, woken by 8, woken by what is not known; and the same once more.
        let rows =
            [(Some(0), Some(8)), (Some(1), Some(7)), (None, None), (None, Some(8)), (Some(4), Some(7))];
        let tree = WakerTree::new(&table(&rows)).unwrap();
        let first = 1 + Interrupt::ALL.len() as u32;
        assert_eq!(tree.rows().len() as u32, first + 2);
        let new: Vec<u32> = (0..7).map(|old| tree.of(old)).collect();
        assert_eq!(new, [0, first, first + 1, 0, first, first + 1, 0]);
    }

    #[test]
    fn nobody_is_woken_by_what_comes_later() {
        assert!(WakerTree::new(&table(&[(Some(1), Some(7))])).is_err());
        assert!(WakerTree::new(&table(&[(Some(9), Some(7))])).is_err());
    }
}
