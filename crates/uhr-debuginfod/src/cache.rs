//! The cache on disk, in the layout of elfutils: `HEX/debuginfo`. An empty file says that no server had one, and counts
//! for ten minutes, as it does there.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use object::ReadCache;
use uhr_model::BuildId;
use uhr_model::object::ElfFile;

/// How long an empty file is believed.
const ABSENT_FOR: Duration = Duration::from_secs(600);

/// Debug files by build id.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
    /// Makes names of unfinished files differ.
    counter: AtomicU32,
}

/// What the cache knows of a build.
pub(crate) enum Cached {
    Here(PathBuf),
    Absent,
    Unknown,
}

/// Why what a server sent is not kept.
#[derive(Debug)]
pub(crate) enum Refused {
    Read(io::Error),
    Write(PathBuf, io::Error),
    TooLarge(u64),
    OtherBuild,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read(error) => write!(f, "the file did not arrive whole ({error})"),
            Self::Write(path, error) => write!(f, "its file cannot be kept in {}: {error}", path.display()),
            Self::TooLarge(bytes) => write!(f, "it sent more than {} MiB", bytes >> 20),
            Self::OtherBuild => write!(f, "it sent a file that is not the one with that build id"),
        }
    }
}

impl Cache {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), counter: AtomicU32::new(0) }
    }

    /// What is there of a build. A file of another build is taken away.
    pub(crate) fn find(&self, id: &BuildId) -> Cached {
        let path = self.path(id);
        let Ok(status) = fs::metadata(&path) else { return Cached::Unknown };
        if status.is_file() && status.len() == 0 {
            let age = status.modified().ok().and_then(|then| then.elapsed().ok());
            return if age.is_some_and(|age| age < ABSENT_FOR) { Cached::Absent } else { Cached::Unknown };
        }
        if status.is_file() && is_build(&path, id) {
            return Cached::Here(path);
        }
        let _ = fs::remove_file(&path);
        Cached::Unknown
    }

    /// Writes what a server sends, at most `limit` bytes, and gives it its name once it has proven to be the right file.
    pub(crate) fn keep(&self, id: &BuildId, body: impl Read, limit: u64) -> Result<(PathBuf, u64), Refused> {
        let unfinished = self.unfinished(id).map_err(|error| Refused::Write(self.folder.clone(), error))?;
        let kept = self.write(&unfinished, id, body, limit);
        if kept.is_err() {
            let _ = fs::remove_file(&unfinished);
            let _ = fs::remove_dir(self.folder.join(id.to_string()));
        }
        kept
    }

    fn write(
        &self,
        unfinished: &Path,
        id: &BuildId,
        body: impl Read,
        limit: u64,
    ) -> Result<(PathBuf, u64), Refused> {
        let cannot_write = |error| Refused::Write(unfinished.to_owned(), error);
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(unfinished)
            .map_err(cannot_write)?;
        let mut body = Reading { body: body.take(limit + 1), error: None };
        let copied = io::copy(&mut body, &mut file);
        if let Some(error) = body.error {
            return Err(Refused::Read(error));
        }
        let bytes = copied.map_err(cannot_write)?;
        if bytes > limit {
            return Err(Refused::TooLarge(limit));
        }
        if !is_build(unfinished, id) {
            return Err(Refused::OtherBuild);
        }
        let path = self.path(id);
        fs::rename(unfinished, &path).map_err(cannot_write)?;
        Ok((path, bytes))
    }

    /// Notes that no server has the file. A cache that cannot be written is only slower.
    pub(crate) fn remember_absent(&self, id: &BuildId) {
        if let Ok(unfinished) = self.unfinished(id)
            && File::options().write(true).create_new(true).mode(0o600).open(&unfinished).is_ok()
            && fs::rename(&unfinished, self.path(id)).is_err()
        {
            let _ = fs::remove_file(&unfinished);
        }
    }

    fn path(&self, id: &BuildId) -> PathBuf {
        self.folder.join(id.to_string()).join("debuginfo")
    }

    /// The name of a file that nobody else writes, in a folder that is there.
    fn unfinished(&self, id: &BuildId) -> io::Result<PathBuf> {
        let folder = self.folder.join(id.to_string());
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let number = self.counter.fetch_add(1, Ordering::Relaxed);
        Ok(folder.join(format!("debuginfo.uhr-{}-{number}", std::process::id())))
    }
}

/// Keeps the reader's errors apart from the writer's.
struct Reading<R> {
    body: R,
    error: Option<io::Error>,
}

impl<R: Read> Read for Reading<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.body.read(buffer).or_else(|error| {
            if error.kind() == io::ErrorKind::Interrupted {
                return Err(error);
            }
            self.error = Some(error);
            Ok(0)
        })
    }
}

fn is_build(path: &Path, id: &BuildId) -> bool {
    let Ok(file) = File::open(path) else { return false };
    ElfFile::parse(&ReadCache::new(file)).is_ok_and(|elf| elf.build_id.as_ref() == Some(id))
}
