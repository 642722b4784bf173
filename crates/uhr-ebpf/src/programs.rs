//! The compiled programs: the same sources for kernels that have all that they stand on, and once more for older ones.

/// Which of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Programs {
    /// For Linux 5.18 and newer.
    Newer,
    /// For 5.10 and newer: stacks are copied, never walked, and the clock of waits reads only the kernel's part.
    Older,
}

/// Where this is set, the newer ones are not tried: so tests hold the older ones against the truth on any kernel.
const ONLY_OLDER: &str = "UHR_TEST_OLDER_PROGRAMS";

impl Programs {
    /// Those that are tried, in this order.
    pub(crate) fn tried() -> &'static [Self] {
        if std::env::var_os(ONLY_OLDER).is_some() { &[Self::Older] } else { &[Self::Newer, Self::Older] }
    }

    /// The object.
    pub(crate) fn object(self) -> &'static [u8] {
        match self {
            Self::Newer => include_bytes!(concat!(env!("OUT_DIR"), "/since_5_18.o")),
            Self::Older => include_bytes!(concat!(env!("OUT_DIR"), "/before_5_18.o")),
        }
    }

    /// Stacks of waits taken in one look, at most. What is read from outside has to be read soon.
    pub(crate) fn looks_a_pass(self, wanted: u32) -> u32 {
        match self {
            Self::Newer => wanted,
            Self::Older => wanted.min(64),
        }
    }

    /// What they do in another way than the newer ones: the part, and why.
    pub(crate) fn lacks(self, because: &str) -> Vec<(String, String)> {
        match self {
            Self::Newer => Vec::new(),
            Self::Older => {
                let because = if because.is_empty() { "newer ones were not tried" } else { because };
                let reason = format!("it got the programs for Linux before 5.18: {because}");
                PARTS.map(|part| (part.to_owned(), reason.clone())).into()
            }
        }
    }
}

/// The part of all programs that walks user stacks, which a kernel can refuse while it takes the programs.
pub(crate) const WALKER: &str = "walker";
/// The part of the clock of waits that reads the memory of the thread that waits.
const READER: &str = "reader";

/// Parts of programs that can be missing.
pub(crate) const PARTS: [&str; 2] = [WALKER, READER];

/// What each program or part is for.
const PURPOSES: &[(&str, &str)] = &[
    ("on_tick", "CPU samples"),
    ("on_fault", "page faults"),
    ("on_major_fault", "page faults that wait for a disk"),
    ("on_switch", "time off CPU"),
    ("on_waking", "who ends a wait"),
    ("on_fork", "new threads and processes"),
    ("on_free", "threads that are over"),
    ("on_rename", "programs that are executed"),
    ("mark", "threads that run already"),
    ("tell_times", "sums of each thread"),
    ("look", "stacks of waits"),
    ("on_enter", "lengths of system calls"),
    ("on_exit", "counts of system calls"),
    ("on_last_call", "system calls of threads that end"),
    ("tell_calls", "sums of system calls"),
    (WALKER, "user stacks walked in the kernel"),
    (READER, "user stacks of waits read in the kernel"),
];

/// What a program or a part is for.
pub fn purpose(program: &str) -> &'static str {
    PURPOSES.iter().find(|row| row.0 == program).map_or("some things", |row| row.1)
}

/// What is done where a part is missing. `None`: nothing, for it is a program.
pub fn instead(part: &str) -> Option<&'static str> {
    match part {
        WALKER => Some("copied, which costs more"),
        READER => {
            Some("read from outside, a little later (of waits shorter than 2 ms only those that are drawn)")
        }
        _ => None,
    }
}

/// The programs that a sampler cannot do without; of the others it says which are missing.
pub(crate) const REQUIRED: &[&str] =
    &["on_tick", "on_switch", "on_waking", "on_fork", "on_free", "on_rename", "mark", "tell_times"];
