//! What ends a recording: its duration, or a signal.

use std::time::{Duration, Instant};

use uhr_collect::child::RunningChild;
use uhr_collect::{Interrupt, Interrupts};

/// Why the recording ends before its target does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reason {
    /// `--duration` is over.
    Duration,
    /// Ctrl-C, or a signal that was sent to uhr.
    Interrupt(Interrupt),
}

/// Watches for the end.
#[derive(Debug)]
pub(super) struct Ending {
    duration: Option<Duration>,
    until: Option<Instant>,
    interrupts: Interrupts,
    reason: Option<Reason>,
    /// When the command was told to end.
    told: Option<Instant>,
}

impl Ending {
    pub(super) fn new(duration: Option<Duration>, interrupts: Interrupts) -> Self {
        Self { duration, until: None, interrupts, reason: None, told: None }
    }

    /// The recording runs: its duration begins now.
    pub(super) fn start(&mut self) {
        self.until = self.duration.and_then(|duration| Instant::now().checked_add(duration));
    }

    /// Whether to record on.
    pub(super) fn go_on(&mut self) -> bool {
        if let Some(interrupt) = self.interrupts.pending() {
            self.reason = Some(Reason::Interrupt(interrupt));
        } else if self.until.is_some_and(|until| Instant::now() >= until) {
            self.reason = Some(Reason::Duration);
        }
        self.reason.is_none()
    }

    /// Why it ended, if something of ours ended it.
    pub(super) fn reason(&self) -> Option<Reason> {
        self.reason
    }

    /// Passes the end on to the command, unless the terminal has told it already.
    pub(super) fn tell(&mut self, child: &RunningChild) {
        match self.reason {
            Some(Reason::Duration) => child.signal(libc::SIGTERM),
            Some(Reason::Interrupt(Interrupt { signal, from_terminal: false })) => child.signal(signal),
            Some(Reason::Interrupt(_)) => {}
            None => return,
        }
        self.told = Some(Instant::now());
    }

    /// Looks after a command that is still running: a first interrupt is passed on, a second kills it, and so does the
    /// end of the grace that follows `--duration`.
    pub(super) fn insist(&mut self, child: &RunningChild) {
        const GRACE: Duration = Duration::from_secs(5);
        let interrupt = self.interrupts.pending();
        let is_late =
            self.reason == Some(Reason::Duration) && self.told.is_some_and(|told| told.elapsed() >= GRACE);
        if is_late || (interrupt.is_some() && self.told.is_some()) {
            child.signal(libc::SIGKILL);
        } else if let Some(interrupt) = interrupt {
            self.reason = Some(Reason::Interrupt(interrupt));
            self.tell(child);
        }
    }
}
