//! One opened event, and what it counted.

use std::io;
use std::os::fd::OwnedFd;

use super::sys;

/// What an event of uhr is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EventKind {
    /// The clock that samples a running thread.
    Cpu,
    /// Page faults, each with its address.
    PageFault,
    /// The moments at which a thread leaves a CPU, each with its stack.
    Switch,
    /// Some of these moments: takes the place of `Switch` while a program switches too often
    /// ([`Session::thin_switches`](super::Session::thin_switches)).
    SwitchThinned,
    /// Counts nothing; brings the records about mappings, names, threads and switches.
    Sideband,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [Self; 5] =
        [Self::Cpu, Self::PageFault, Self::Switch, Self::SwitchThinned, Self::Sideband];

    /// Whether it takes the stacks of threads that leave a CPU.
    pub fn is_switch(self) -> bool {
        matches!(self, Self::Switch | Self::SwitchThinned)
    }
}

/// What all events of one kind counted so far, summed over threads and CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventCounts {
    /// The events.
    pub kind: EventKind,
    /// `Cpu`: nanoseconds on CPU (of a whole-machine session: of the CPUs' own time, idle included). `PageFault`,
    /// `Switch`, `SwitchThinned`: how many there were while that event was on. `Sideband`: 0.
    pub value: u64,
    /// Nanoseconds during which the events were enabled.
    pub time_enabled_ns: u64,
    /// Nanoseconds during which the events counted: of a thread's event, its time on CPU.
    pub time_running_ns: u64,
    /// Records that found no room in the ring. `None` where the kernel does not count them (before Linux 6.0).
    pub lost: Option<u64>,
    /// Events whose counts could not be read.
    pub unread: u32,
}

impl EventCounts {
    pub(super) fn none(kind: EventKind, has_lost: bool) -> Self {
        let lost = has_lost.then_some(0);
        Self { kind, value: 0, time_enabled_ns: 0, time_running_ns: 0, lost, unread: 0 }
    }
}

/// An open event.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) fd: OwnedFd,
    pub(super) kind: EventKind,
    pub(super) id: u64,
}

impl Event {
    pub(super) fn new(fd: OwnedFd, kind: EventKind) -> io::Result<Self> {
        let id = sys::event_id(&fd)?;
        Ok(Self { fd, kind, id })
    }

    /// Adds what this event counted to `sum`.
    pub(super) fn add_counts(&self, sum: &mut EventCounts) {
        let mut words = [0_u64; 4];
        // The order of PERF_FORMAT_TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING | LOST, which `attr.rs` asks for.
        match sys::read_words(&self.fd, &mut words) {
            Ok(read) if read >= 3 => {
                sum.value = sum.value.saturating_add(words[0]);
                sum.time_enabled_ns = sum.time_enabled_ns.saturating_add(words[1]);
                sum.time_running_ns = sum.time_running_ns.saturating_add(words[2]);
                sum.lost = sum.lost.map(|lost| lost.saturating_add(words[3]));
            }
            _ => sum.unread += 1,
        }
    }
}
