//! Where a picture or a text goes: to the standard output, or to a file that did not exist before.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;

use crate::failure::{Exit, Failure};

/// Lets `write` fill the new file at `path`, or the standard output where there is no path, or it is `-`. A file that
/// could not be filled is taken away again.
///
/// # Errors
/// If something is at `path` already, or it cannot be written.
pub(crate) fn fill<T>(path: Option<&Path>, write: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> Result<T> {
    let Some(path) = path.filter(|path| *path != Path::new("-")) else {
        return Ok(write(&mut io::stdout().lock())?);
    };
    let mut file = File::create_new(path).map_err(|error| refused("create", path, &error))?;
    write(&mut file).map_err(|error| {
        let _ = std::fs::remove_file(path);
        refused("write", path, &error).into()
    })
}

fn refused(what: &str, path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::new(
            Exit::Failed,
            "exists",
            format!("{path} exists already, and uhr never overwrites anything"),
        ),
        io::ErrorKind::StorageFull => {
            Failure::new(Exit::Failed, "disk-full", format!("cannot {what} {path}: {error}"))
        }
        _ => Failure::new(Exit::Failed, "io", format!("cannot {what} {path}: {error}")),
    }
}
