//! Names that are found after a recording was finished: what was missing is filled in, what was there stays.

use std::collections::BTreeMap;
use std::fs::File;

use super::parquet_table::write_rows;
use crate::RecordingError;
use crate::reader::Recording;
use crate::tables::{LocationRow, Locations, Modules};
use crate::writer::{LOCK, write_manifest};
use crate::{Finalized, Table};

/// What late names add to one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Added {
    /// A name, where there was none.
    Name,
    /// Source lines, where there was a name alone.
    Lines,
    /// Inlined functions, where there was one line.
    Inlined,
    /// A better reason why there is no name: the file was found, and has none there.
    Reason,
}

/// Writes names anew, if they add anything. Samples, stacks and everything else that was captured are not touched.
///
/// `names` are those of all frames of the finished recording, looked up again. Where they say less of a frame than the
/// recording does, because a file has gone since, the recording's stay. Gives what was added, by frame.
///
/// # Errors
/// [`RecordingError::Io`] if the recording cannot be written, or another uhr does so: it is then still there as it was.
pub fn add_names(recording: &Recording, names: Finalized) -> Result<BTreeMap<u32, Added>, RecordingError> {
    let folder = recording.folder();
    let _alone = Alone::with(recording)?;
    let table: Locations = recording.table()?;
    let known = (0..table.len()).map(|row| table.row(row)).collect();
    let (locations, added) = merge(known, names.locations);
    let mut modules = recording.modules()?;
    let mut gained = vec![false; modules.len()];
    let frames: crate::tables::Frames = recording.table()?;
    for &frame in added.keys() {
        let module = frames.module.get(frame as usize).copied().flatten();
        if let Some(gained) = module.and_then(|module| gained.get_mut(module as usize)) {
            *gained = true;
        }
    }
    for ((module, symbols), gained) in modules.iter_mut().zip(names.module_symbols).zip(gained) {
        if gained && symbols.is_some() {
            module.symbols = symbols;
        }
    }
    let mut manifest = recording.manifest.clone();
    manifest.ledger.frames = outcomes(&locations);
    if added.is_empty() && manifest == recording.manifest {
        return Ok(added);
    }
    let sizes = [write_rows::<Locations>(folder, locations)?, write_rows::<Modules>(folder, modules)?];
    for (name, bytes) in sizes {
        let path = folder.join(format!("{name}.parquet"));
        std::fs::rename(folder.join(format!("{name}.parquet.new")), &path)
            .map_err(RecordingError::io("write", &path))?;
        manifest.table_bytes.insert(name.to_owned(), bytes);
    }
    write_manifest(folder, &manifest)?;
    Ok(added)
}

/// Takes of each frame the rows that say more.
fn merge(known: Vec<LocationRow>, found: Vec<LocationRow>) -> (Vec<LocationRow>, BTreeMap<u32, Added>) {
    let mut found = by_frame(found);
    let mut added = BTreeMap::new();
    let mut merged = Vec::with_capacity(known.len());
    for (frame, known) in by_frame(known) {
        let better = found.remove(&frame).and_then(|found| Some((gain(&known, &found)?, found)));
        match better {
            Some((gain, found)) => {
                added.insert(frame, gain);
                merged.extend(found);
            }
            None => merged.extend(known),
        }
    }
    (merged, added)
}

fn by_frame(rows: Vec<LocationRow>) -> BTreeMap<u32, Vec<LocationRow>> {
    let mut frames: BTreeMap<u32, Vec<LocationRow>> = BTreeMap::new();
    for row in rows {
        frames.entry(row.frame).or_default().push(row);
    }
    frames
}

/// What `found` says beyond `known`.
fn gain(known: &[LocationRow], found: &[LocationRow]) -> Option<Added> {
    let is_named = |rows: &[LocationRow]| rows.iter().any(|row| row.function.is_some());
    let has_lines = |rows: &[LocationRow]| rows.iter().any(|row| row.line.is_some());
    let has_start = |rows: &[LocationRow]| rows.iter().any(|row| row.function_start.is_some());
    match (is_named(known), is_named(found)) {
        (false, true) => Some(Added::Name),
        (true, false) => None,
        (false, false) => (!has_start(known) && has_start(found)).then_some(Added::Reason),
        (true, true) => match (has_lines(known), has_lines(found)) {
            (false, true) => Some(Added::Lines),
            (true, true) if found.len() > known.len() => Some(Added::Inlined),
            _ => None,
        },
    }
}

/// Frames by outcome, as the ledger counts them.
fn outcomes(locations: &[LocationRow]) -> BTreeMap<String, u64> {
    let mut outcomes = BTreeMap::new();
    for row in locations.iter().filter(|row| row.depth == 0) {
        let reason = row.reason.and_then(uhr_model::Unsymbolized::from_code);
        *outcomes.entry(reason.map_or("named", |reason| reason.name()).to_owned()).or_default() += 1;
    }
    outcomes
}

/// The right to write, held while it lives.
struct Alone {
    _lock: File,
    path: std::path::PathBuf,
}

impl Alone {
    fn with(recording: &Recording) -> Result<Self, RecordingError> {
        let path = recording.folder().join(LOCK);
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(false).open(&path);
        let lock = file.map_err(RecordingError::io("create", &path))?;
        lock.try_lock().map_err(|error| RecordingError::io("lock", &path)(error.into()))?;
        Ok(Self { _lock: lock, path })
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(frame: u32, depth: u32, function: Option<&str>, line: Option<u32>) -> LocationRow {
        let reason = function.is_none().then_some(uhr_model::Unsymbolized::FileMissing.code());
        LocationRow {
            frame,
            depth,
            function: function.map(str::to_owned),
            file: None,
            line,
            function_start: None,
            mode: None,
            reason,
        }
    }

    #[test]
    fn what_says_more_stays() {
        let known = vec![
            row(0, 0, None, None),
            row(1, 0, Some("plain"), None),
            row(2, 0, Some("lined"), Some(3)),
            row(3, 0, Some("kept"), Some(7)),
            row(4, 0, Some("same"), None),
            row(5, 0, None, None),
        ];
        let found = vec![
            row(0, 0, Some("new"), None),
            row(1, 0, Some("plain"), Some(9)),
            row(2, 0, Some("inner"), Some(1)),
            row(2, 1, Some("lined"), Some(3)),
            row(3, 0, None, None),
            row(4, 0, Some("other"), None),
            row(5, 0, None, None),
        ];
        let (merged, added) = merge(known.clone(), found.clone());
        assert_eq!(added, BTreeMap::from([(0, Added::Name), (1, Added::Lines), (2, Added::Inlined)]));
        let expected = [&found[0], &found[1], &found[2], &found[3], &known[3], &known[4], &known[5]];
        assert_eq!(merged.iter().collect::<Vec<_>>(), expected);
        let (again, nothing) = merge(merged.clone(), found);
        assert_eq!((again, nothing), (merged.clone(), BTreeMap::new()));
        assert_eq!(outcomes(&merged)["named"], 5);
        assert_eq!(outcomes(&merged)["file-missing"], 1);
    }
}
