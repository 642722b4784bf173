//! The tree of wakers, each once: a recorder that ran out of memory for it began it anew.

use rustc_hash::FxHashMap;
use uhr_model::Interrupt;

use crate::RecordingError;
use crate::Table;
use crate::tables::{WakerRow, Wakers};

/// What makes a waker one and the same.
type Identity = (Option<u32>, Option<u32>, Option<u32>, Option<u32>, Option<String>, Option<u8>);

/// What ended waits, in its final order: row 0 is what is not known, and a row comes before those that it woke.
#[derive(Debug)]
pub struct WakerTree {
    rows: Vec<WakerRow>,
    known: FxHashMap<Identity, u32>,
    new_of_old: Vec<u32>,
}

impl Default for WakerTree {
    fn default() -> Self {
        let mut tree = Self { rows: Vec::new(), known: FxHashMap::default(), new_of_old: Vec::new() };
        tree.row(NOT_KNOWN);
        tree
    }
}

const NOT_KNOWN: WakerRow =
    WakerRow { id: 0, woken_by: None, thread: None, pid: None, tid: None, name: None, interrupt: None };

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

    /// The row like this one, of another kind of interrupt.
    pub fn with_interrupt(&mut self, row: u32, kind: Interrupt) -> u32 {
        match self.rows.get(row as usize).cloned() {
            Some(known) => self.row(WakerRow { interrupt: Some(kind.code()), ..known }),
            None => 0,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(Option<u32>, Option<u32>)]) -> Wakers {
        let mut table = Wakers::default();
        table.push(NOT_KNOWN);
        for (at, &(woken_by, tid)) in rows.iter().enumerate() {
            table.push(WakerRow { id: at as u32 + 1, woken_by, tid, ..NOT_KNOWN });
        }
        table
    }

    #[test]
    fn what_was_begun_anew_is_merged() {
        // 7, woken by 8, woken by what is not known; and the same once more.
        let rows =
            [(Some(0), Some(8)), (Some(1), Some(7)), (None, None), (None, Some(8)), (Some(4), Some(7))];
        let tree = WakerTree::new(&table(&rows)).unwrap();
        assert_eq!(tree.rows().len(), 3);
        let new: Vec<u32> = (0..7).map(|old| tree.of(old)).collect();
        assert_eq!(new, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn nobody_is_woken_by_what_comes_later() {
        assert!(WakerTree::new(&table(&[(Some(1), Some(7))])).is_err());
        assert!(WakerTree::new(&table(&[(Some(9), Some(7))])).is_err());
    }
}
