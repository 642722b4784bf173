//! A line that says that uhr is at work, on a terminal only. Not beside a command: the terminal is the command's.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The line, drawn anew every second.
#[derive(Debug)]
pub(super) struct Progress {
    since: Instant,
    drawn: Option<Duration>,
    is_shown: bool,
}

impl Progress {
    /// The recording begins now.
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), drawn: None, is_shown: std::io::stderr().is_terminal() }
    }

    /// Draws the line if a second has passed.
    pub(super) fn tick(&mut self) {
        let elapsed = self.since.elapsed();
        if self.is_shown && self.drawn.is_none_or(|drawn| elapsed - drawn >= Duration::from_secs(1)) {
            // Nobody is left to tell if the terminal is gone.
            let _ =
                write!(std::io::stderr(), "\r\x1b[Kuhr: recording, {} s (Ctrl-C ends it)", elapsed.as_secs());
            self.drawn = Some(elapsed);
        }
    }

    /// Takes the line away.
    pub(super) fn clear(&self) {
        if self.drawn.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
