//! Which recording a command is about: the one that was named, or the newest in this folder.

use std::path::{Path, PathBuf};

use anyhow::Result;
use uhr_query::{Profile, quoted};
use uhr_recording::{Manifest, Recording, RecordingError};

use crate::failure::{Exit, Failure};
use crate::{finish, output};

/// Reads the recording at `path`, or the newest in this folder; which one that is, is said on the standard error.
///
/// # Errors
/// If there is none, or it cannot be read.
pub(crate) fn profile(path: Option<&Path>) -> Result<Profile> {
    let recording = recording(path)?;
    // Of a recording that is not finished the names are looked up now, and kept nowhere.
    let names = (!recording.is_finished()).then(|| finish::names(&recording)).transpose()?;
    Ok(Profile::load(&recording, names)?)
}

/// Opens it, without reading its tables.
///
/// # Errors
/// If there is none, or it cannot be read.
pub(crate) fn recording(path: Option<&Path>) -> Result<Recording> {
    let path = match path {
        Some(path) => path.to_owned(),
        None => newest()?,
    };
    Recording::open(&path).map_err(explain)
}

/// The recording in this folder that began last; the folder itself if it is one and holds none.
fn newest() -> Result<PathBuf> {
    let entries = std::fs::read_dir(".").into_iter().flatten().flatten();
    let folders = entries.map(|entry| PathBuf::from(entry.file_name())).filter(|path| is_recording(path));
    let began = |path: PathBuf| Some((Recording::open(&path).ok()?.manifest.clock.realtime_ns, path));
    // Of two that began at once the later name, so that the choice is the same everywhere.
    let Some((_, path)) = folders.filter_map(began).max() else {
        return if is_recording(Path::new(".")) { Ok(PathBuf::from(".")) } else { Err(none_here().into()) };
    };
    output::say(&format!("uhr: {} (the newest recording here)", path.display()));
    Ok(path)
}

fn is_recording(folder: &Path) -> bool {
    folder.join(Manifest::FILE).is_file()
}

fn none_here() -> Failure {
    // What root recorded here may be one.
    let entries = std::fs::read_dir(".").into_iter().flatten().flatten();
    let is_forbidden = |path: &PathBuf| {
        std::fs::metadata(path.join(Manifest::FILE))
            .is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    };
    let forbidden = entries.map(|entry| PathBuf::from(entry.file_name())).filter(is_forbidden).min();
    let hint = match forbidden {
        Some(path) => format!("this user may not read {}; name another, or make one", path.display()),
        None => "name one, or make one".to_owned(),
    };
    Failure::new(Exit::Failed, "no-recording", "there is no recording in this folder")
        .hint(format!("{hint}: uhr record -- COMMAND"))
        .next("uhr record --help")
}

fn explain(error: RecordingError) -> anyhow::Error {
    if let Some(path) = error.forbidden() {
        let hint = format!("sudo chown -R \"$USER\" {}", quoted(&path.to_string_lossy()));
        let message = format!("cannot read {}: Permission denied", path.display());
        return Failure::new(Exit::Failed, "io", message).hint(hint).into();
    }
    let failure = Failure::of(&anyhow::Error::from(error));
    if failure.answer.error.code == "no-recording" {
        return failure.hint("make one: uhr record -- COMMAND").next("uhr record --help").into();
    }
    failure.into()
}
