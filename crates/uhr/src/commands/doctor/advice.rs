//! What whole stacks, names and lines need of a build, by language: what is true of this uhr, no more.

use schemars::JsonSchema;
use serde::Serialize;

/// What one language needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Language {
    /// The language or runtime.
    name: &'static str,
    /// Flags or settings; missing where nothing is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    flags: Option<&'static str>,
    /// What they give, and what is there without them.
    advice: &'static str,
}

impl Language {
    /// Its name.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Flags or settings.
    pub(super) fn flags(&self) -> Option<&'static str> {
        self.flags
    }

    /// What they give.
    pub(super) fn advice(&self) -> &'static str {
        self.advice
    }
}

/// Of every language that uhr has something to say about.
pub(super) fn languages() -> Vec<Language> {
    let of = |name, flags, advice| Language { name, flags, advice };
    vec![
        of(
            "C, C++",
            Some("-g"),
            "-O2 is fine, frame pointers are not needed: stacks are whole by .eh_frame, which compilers write unless \
             -fno-asynchronous-unwind-tables forbids it. -g gives lines and inlined functions; strip takes the names \
             away (a debug file under /usr/lib/debug/.build-id gives them back).",
        ),
        of(
            "Rust",
            Some("[profile.release] debug = \"line-tables-only\""),
            "release builds have whole stacks and function names as they are; this adds lines and inlined functions. \
             strip = true takes the names away.",
        ),
        of(
            "Go",
            None,
            "binaries have stacks, names and lines as they are; -ldflags=-s or -w takes names and lines away.",
        ),
        of(
            "Python",
            Some("python3 -X perf (3.12 or newer), or PYTHONPERFSUPPORT=1"),
            "Python functions get their names and files; without it the interpreter's own C functions are seen.",
        ),
        of(
            "Node.js",
            Some("node --perf-basic-prof --interpreted-frames-native-stack"),
            "JavaScript functions get their names; the second flag separates those that are not compiled yet.",
        ),
        of(
            "Java",
            Some(
                "-XX:+PreserveFramePointer, and jcmd PID Compiler.perfmap (17 or newer) before the recording ends",
            ),
            "compiled methods get whole stacks and names; interpreted ones appear as the interpreter.",
        ),
        of(
            "others",
            None,
            "a runtime that writes /tmp/perf-PID.map or a jitdump has the names of its generated code; of other \
             interpreters (Ruby, PHP, Perl, Lua) the native functions are seen.",
        ),
    ]
}

/// The advice for a runtime that was found in a process.
pub(super) fn for_runtime(name: &str) -> Option<Language> {
    languages().into_iter().find(|language| language.name == name)
}
