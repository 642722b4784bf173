//! A recording in memory, as questions need it. Names, stacks, threads are columns that stay; observations are read
//! when a question needs them and kept as [`crate::cells::Cells`]. A recording may be forged: whatever a row refers to
//! is checked before it is followed.

mod code;
mod code_lines;
mod machine_code;
mod mapping_names;
mod observations;
mod owners;
mod source_lines;
mod stacks;
mod wakers;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use uhr_model::Metric;
use uhr_recording::tables::{Frames, LocationRow, Locations, ModuleRow, Stacks};
use uhr_recording::{Finalized, Manifest, Recording, RecordingError, Table, WakerTree, kernel_threads};

pub(crate) use code::{Code, Location, NONE, Site};
pub(crate) use machine_code::{MachineCode, Piece};
pub(crate) use mapping_names::MappingNames;
pub(crate) use observations::Observations;
pub(crate) use owners::Owners;
pub(crate) use source_lines::SourceLines;
pub(crate) use stacks::StackTree;
pub(crate) use wakers::Wakers;

use crate::QueryError;
use crate::answers::{RecordingSummary, rounded};
use crate::cells::{By, Cells};

/// A recording, ready for questions.
#[derive(Debug)]
pub struct Profile {
    /// Where it is, as it was given.
    pub(crate) path: String,
    folder: std::path::PathBuf,
    pub(crate) manifest: Manifest,
    /// End of the recorded time; of a recording that is still being made, the last thing in it.
    pub(crate) end_ns: u64,
    pub(crate) owners: Owners,
    pub(crate) code: Code,
    pub(crate) tree: StackTree,
    pub(crate) observations: Observations,
    pub(crate) wakers: Wakers,
    pub(crate) mapping_names: MappingNames,
    cells: Mutex<Vec<(Metric, By, Arc<Cells>)>>,
    /// Read when a question first needs it.
    machine_code: OnceLock<MachineCode>,
}

/// Windows whose cells are kept for the next question.
const CELLS_KEPT: usize = 4;

impl Profile {
    /// Reads a recording. `names` are the names of its frames where they are not in it: while it is unfinished.
    ///
    /// # Errors
    /// [`QueryError::Recording`] if it cannot be read, [`QueryError::Damaged`] if it contradicts itself.
    pub fn load(recording: &Recording, names: Option<Finalized>) -> Result<Self, QueryError> {
        let names = names.unwrap_or_default();
        let (stacks, (code, others)) = rayon::join(
            || columns::<Stacks>(recording, &["id", "parent", "frame"]),
            || rayon::join(|| load_code(recording, names.locations), || load_others(recording)),
        );
        let (code, frames) = code?;
        let (owners, mut observations) = others?;
        let tree = StackTree::new(stacks?, frames)?;
        let wakers = match recording.is_finished() {
            true => Wakers::of_table(&recording.table()?, &owners)?,
            false => {
                let mut wakers = WakerTree::new(&recording.table()?)?;
                let is_kernel_thread = kernel_threads(recording, &owners.threads)?;
                observations.tell(&tree, &names.frame_hints, is_kernel_thread, &mut wakers);
                Wakers::new(wakers.rows().to_vec(), &owners)?
            }
        };
        let machine_code = OnceLock::new();
        if !recording.is_finished() {
            let modules = recording.modules()?.len();
            let code = MachineCode::new(names.code, names.code_lines, modules)?;
            let _ = machine_code.set(code.of_machine(&recording.manifest.host.architecture));
        }
        let mut manifest = recording.manifest.clone();
        manifest.notes.extend(names.notes);
        let window = manifest.window;
        let end_ns = match window.end_ns > window.start_ns {
            true => window.end_ns,
            false => observations.last_ns().max(window.start_ns),
        };
        Ok(Self {
            path: recording.folder().to_string_lossy().into_owned(),
            folder: recording.folder().to_owned(),
            manifest,
            end_ns,
            owners,
            code,
            tree,
            observations,
            wakers,
            mapping_names: MappingNames::load(recording)?,
            cells: Mutex::default(),
            machine_code,
        })
    }

    /// The manifest of the recording.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What the recording is, as every answer begins.
    pub fn summary(&self) -> RecordingSummary {
        RecordingSummary {
            path: self.path.clone(),
            id: self.manifest.id.clone(),
            start: crate::window::date(self.manifest.realtime_ns(self.start_ns())),
            duration_s: rounded((self.end_ns - self.start_ns()) as f64 / 1e9),
            sampler: self.manifest.settings.sampler.clone(),
            state: self.manifest.state.name().to_owned(),
        }
    }

    /// When the recording ended: nanoseconds of CLOCK_REALTIME.
    pub fn ended_realtime_ns(&self) -> u64 {
        self.manifest.realtime_ns(self.end_ns)
    }

    /// Start of the recorded time.
    pub(crate) fn start_ns(&self) -> u64 {
        self.manifest.window.start_ns
    }

    /// The source that came with its code.
    pub(crate) fn source_lines(&self) -> Result<SourceLines, QueryError> {
        Ok(SourceLines::read(&Recording::open(&self.folder)?)?)
    }

    /// The code of its functions.
    pub(crate) fn machine_code(&self) -> Result<&MachineCode, QueryError> {
        if self.machine_code.get().is_none() {
            let recording = Recording::open(&self.folder)?;
            let read = MachineCode::read(&recording)?;
            // Of two that read it at once, both read the same.
            let _ = self.machine_code.set(read);
        }
        Ok(self.machine_code.get_or_init(MachineCode::default))
    }

    /// The same as far as it was read for this question.
    pub(crate) fn machine_code_at_hand(&self) -> Option<&MachineCode> {
        self.machine_code.get()
    }

    /// The observations of a metric in a window, counted. The next question of the same window finds them here.
    pub(crate) fn cells(&self, metric: Metric, by: By) -> Result<Arc<Cells>, QueryError> {
        {
            let kept = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
            // Cells that tell more apart than is asked for will do too.
            let fits =
                |has: By| has.slots == by.slots && has.owner >= by.owner && has.details.include(by.details);
            if let Some((_, _, cells)) = kept.iter().find(|(of, has, _)| *of == metric && fits(*has)) {
                return Ok(cells.clone());
            }
        }
        let cells = Arc::new(Cells::count(self, metric, by)?);
        let mut kept = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= CELLS_KEPT {
            kept.remove(0);
        }
        kept.push((metric, by, cells.clone()));
        Ok(cells)
    }
}

fn load_code(recording: &Recording, names: Vec<LocationRow>) -> Result<(Code, usize), QueryError> {
    let frames = columns::<Frames>(recording, &["id", "mode", "module", "address"])?;
    let modules: Vec<ModuleRow> = recording.modules()?;
    let locations = match names.is_empty() && recording.has_parquet::<Locations>() {
        true => {
            columns(recording, &["frame", "depth", "function", "file", "line", "function_start", "mode"])?
        }
        false => code::table_of(names),
    };
    Ok((Code::new(&frames, &locations, &modules)?, frames.id.len()))
}

fn load_others(recording: &Recording) -> Result<(Owners, Observations), QueryError> {
    let owners = Owners::load(recording)?;
    let observations = Observations::load(recording, &owners.threads)?;
    Ok((owners, observations))
}

/// The named columns of a table, whichever form it is in.
fn columns<T: Table>(recording: &Recording, names: &[&str]) -> Result<T, RecordingError> {
    if !recording.has_parquet::<T>() {
        return recording.table();
    }
    let mut table = T::default();
    for group in 0..recording.row_groups::<T>()? {
        recording.read_row_group(group, names, &mut table)?;
    }
    Ok(table)
}
