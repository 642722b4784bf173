//! Where a recording goes, and whom it belongs to.

use std::os::unix::fs::lchown;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::args::RecordArgs;
use crate::failure::{Exit, Failure};

/// The folder to make: the one that was named, or a new one named after what is recorded.
///
/// # Errors
/// If the named one exists. Nothing was started then.
pub(super) fn choose(args: &RecordArgs) -> Result<PathBuf> {
    if let Some(path) = &args.output {
        if path.symlink_metadata().is_ok() {
            return Err(Failure::new(
                Exit::Status(super::OWN_FAILURE),
                "exists",
                format!("{} exists already, and a recording never overwrites anything", path.display()),
            )
            .hint("name a new path with -o")
            .into());
        }
        return Ok(path.clone());
    }
    let stem = format!("rec-{}", name_of(args));
    let mut names = std::iter::once(stem.clone()).chain((2u32..).map(|number| format!("{stem}-{number}")));
    let free = names.find(|name| Path::new(name).symlink_metadata().is_err());
    Ok(PathBuf::from(free.unwrap_or(stem)))
}

/// The program's name with only those characters that are safe in any shell.
fn name_of(args: &RecordArgs) -> String {
    let named = args.command.first().map(|program| {
        let file = Path::new(program).file_name().unwrap_or(program.as_os_str());
        file.to_string_lossy()
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || "-_.+".contains(*c))
            .take(40)
            .collect()
    });
    match (named, args.pid.first()) {
        (Some(name), _) => name,
        (None, Some(pid)) => pid.to_string(),
        (None, None) => "machine".to_owned(),
    }
}

/// Run through sudo, a recording belongs to whoever ran sudo.
pub(super) fn give_to_caller(folder: &Path) {
    let id = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let (Some(uid), Some(gid)) = (id("SUDO_UID"), id("SUDO_GID")) else { return };
    if !uhr_collect::host().root {
        return;
    }
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let _ = lchown(&folder, Some(uid), Some(gid));
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            } else {
                let _ = lchown(entry.path(), Some(uid), Some(gid));
            }
        }
    }
}
