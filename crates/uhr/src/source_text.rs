//! The text of source files on this machine, for the lines of an answer. The paths come from the recording, which anybody
//! may have made: only what looks like the source that was compiled is read.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use uhr_query::Source;

/// Longer source files are not read.
const LONGEST: u64 = 16 << 20;

/// Endings of the names of source files. A forged recording must not show what else a user may read.
const ENDINGS: &[&str] = &[
    "c", "h", "cc", "cpp", "cxx", "c++", "hh", "hpp", "hxx", "inc", "inl", "ipp", "tcc", "s", "S", "asm",
    "rs", "go", "py", "pyx", "js", "mjs", "cjs", "ts", "java", "kt", "scala", "swift", "zig", "d", "f",
    "f90", "F90", "ml", "hs", "nim", "cu", "m", "mm", "rb", "php", "pl", "lua", "y", "l",
];

/// The text of a source file, unless it is plainly not what was compiled. `recorded_ns`: when the recording ended, in
/// nanoseconds of CLOCK_REALTIME.
pub(crate) fn source_text(file: &str, recorded_ns: u64) -> Source {
    let path = Path::new(file);
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    if !path.is_absolute() {
        return Source::Absent("its path is not absolute");
    }
    // Headers of the C++ library have no ending.
    let is_header = ending.is_empty() && file.contains("/include/");
    if !ENDINGS.contains(&ending) && !is_header {
        return Source::Absent("its name is not that of a source file");
    }
    let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path);
    let Ok(opened) = opened else { return Source::Absent("it is not on this machine") };
    let Ok(is) = opened.metadata() else { return Source::Absent("it cannot be read") };
    if !is.is_file() || is.len() > LONGEST {
        return Source::Absent("it is no source file, or longer than 16 MiB");
    }
    let recorded = SystemTime::UNIX_EPOCH + Duration::from_nanos(recorded_ns);
    if is.modified().is_ok_and(|changed| changed > recorded) {
        return Source::Absent("it was changed after the recording");
    }
    let mut bytes = Vec::new();
    match opened.take(LONGEST).read_to_end(&mut bytes) {
        Ok(_) => Source::Text(String::from_utf8_lossy(&bytes).into_owned()),
        Err(_) => Source::Absent("it cannot be read"),
    }
}
