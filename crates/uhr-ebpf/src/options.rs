//! What is to be sampled, and how.

use std::hash::{BuildHasher, RandomState};

use crate::calls::Counting;
use crate::sampler::RINGS;
use crate::{abi, probe};

/// Which threads are recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    /// A process that has not executed its program yet, from its exec on, and all that it makes.
    Command {
        /// Its pid.
        pid: u32,
    },
    /// Running processes and all that they make.
    Processes(Vec<u32>),
    /// A cgroup (version 2) and those below it.
    Cgroup {
        /// Its id: the inode number of its folder.
        id: u64,
        /// How deep it lies below the root.
        level: u32,
    },
    /// All.
    Machine,
}

/// How to sample.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whom.
    pub scope: Scope,
    /// The CPUs that are online.
    pub cpus: Vec<i32>,
    /// Ticks a second and CPU.
    pub frequency: u32,
    /// Bytes of stack to copy with a sample, at most [`MAX_COPY_BYTES`](crate::MAX_COPY_BYTES). Not less than what is usual:
    /// of deep stacks that much.
    pub copy_bytes: u32,
    /// Follow frame pointers in the kernel instead of copying stacks.
    pub frame_pointers: bool,
    /// Walk by rows of call frame information, as far as [`Tables`](crate::Tables) have them, and copy only the rest.
    pub rows: bool,
    /// With the frames of a walk also the copy of its stack, to check it by.
    pub copies_too: bool,
    /// One page fault in so many is sampled.
    pub fault_period: u64,
    /// Stacks of waits taken in one look.
    pub looks_a_pass: u32,
    /// Whether system calls are counted.
    pub counting: Counting,
    /// A number that nobody else knows.
    pub calibration: u64,
    /// Bytes of the ring of stacks and of that of everything else, a power of two.
    pub ring_bytes: u32,
    /// Gives processes with all that descend from them, at that moment.
    pub family: fn(Vec<u32>) -> Vec<u32>,
}

impl Options {
    /// The settings that fit most.
    pub fn new(scope: Scope, cpus: Vec<i32>) -> Self {
        // At 999 Hz a CPU brings 16 MB of stack copies a second where no stack can be walked; this is room for a quarter of one.
        let ring_bytes = cpus.len().max(1) as u32 * (4 << 20);
        let ring_bytes = ring_bytes.next_power_of_two().clamp(8 << 20, 128 << 20);
        Self {
            scope,
            cpus,
            frequency: 999,
            copy_bytes: abi::COPY_BYTES,
            frame_pointers: false,
            rows: true,
            copies_too: false,
            fault_period: 61,
            // Half of the ring, if all have to be copied: samples go on meanwhile.
            looks_a_pass: ring_bytes / 2 / (abi::COPY_BYTES + 2048),
            counting: Counting::default(),
            calibration: RandomState::new().hash_one(std::process::id()),
            ring_bytes,
            family: |pids| pids,
        }
    }

    /// The rings by name, with their size.
    pub(crate) fn rings(&self) -> [(&'static str, u32); RINGS] {
        [("stacks", self.ring_bytes), ("events", self.ring_bytes)]
    }

    /// As the programs read it.
    pub(crate) fn settings(&self) -> abi::Settings {
        let (scope, cgroup, cgroup_level) = match self.scope {
            Scope::Command { .. } | Scope::Processes(_) => (0, 0, 0),
            Scope::Machine => (1, 0, 0),
            Scope::Cgroup { id, level } => (2, id, level),
        };
        abi::Settings {
            cgroup,
            pid_namespace: probe::pid_namespace(),
            cgroup_level,
            scope,
            copy_bytes: self.copy_bytes.min(abi::MAX_COPY_BYTES),
            follow_frame_pointers: u32::from(self.frame_pointers),
            walks_by_rows: u32::from(self.rows && !self.frame_pointers),
            copies_too: u32::from(self.copies_too),
            looks_a_pass: self.looks_a_pass,
            calibration: self.calibration,
            measures_calls: u32::from(self.counting == Counting::Always),
        }
    }
}
