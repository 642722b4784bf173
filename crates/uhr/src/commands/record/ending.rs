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
    until: Option<Instant>,
    interrupts: Interrupts,
    reason: Option<Reason>,
}

impl Ending {
    /// The duration begins now.
    pub(super) fn new(duration: Option<Duration>, interrupts: Interrupts) -> Self {
        Self {
            until: duration.and_then(|duration| Instant::now().checked_add(duration)),
            interrupts,
            reason: None,
        }
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
    pub(super) fn tell(&self, child: &RunningChild) {
        match self.reason {
            Some(Reason::Duration) => child.signal(libc::SIGTERM),
            Some(Reason::Interrupt(Interrupt { signal, from_terminal: false })) => child.signal(signal),
            Some(Reason::Interrupt(_)) | None => {}
        }
    }

    /// Whether another interrupt came.
    pub(super) fn interrupted_again(&mut self) -> bool {
        self.interrupts.pending().is_some()
    }
}
