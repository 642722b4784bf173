//! When system calls are counted: all the time where that was asked for, else in short windows now and then. Tracing costs
//! every call some 300 ns, so that a program which does nothing but calls loses less than a hundredth to windows.

use std::time::{Duration, Instant};

use uhr_ebpf::{CallWindow, Sampler};

use crate::jitter::Jitter;
use crate::perf::thread_cpu_ns;

/// How long a window is open, at least.
const OPEN: Duration = Duration::from_millis(3);
/// The mean distance of two windows.
const DISTANCE: Duration = Duration::from_millis(250);
/// Of the first from the start: a short program is to have one too.
const FIRST: Duration = Duration::from_millis(20);
/// Opening and closing may take one part in so many of one CPU.
const SHARE: u32 = 1000;
/// How often sums are told where calls are counted all the time.
const TELLING: Duration = Duration::from_millis(250);

/// When there is nothing more to be done: whoever waits for the next time must not find it in the past.
const NEVER: Duration = Duration::from_secs(3600);

/// The clock of the windows, or of the telling.
#[derive(Debug)]
pub(crate) struct CallWindows {
    next: Instant,
    jitter: Jitter,
    took_ns: u64,
    /// Why there are no more.
    refused: Option<String>,
    /// There are none for now.
    pub(crate) is_paused: bool,
}

impl CallWindows {
    pub(crate) fn new(seed: u64) -> Self {
        let mut jitter = Jitter::new(seed);
        let next = Instant::now() + FIRST.mul_f64(jitter.between(0.5, 1.5));
        Self { next, jitter, took_ns: 0, refused: None, is_paused: false }
    }

    /// How long until something is to be done.
    pub(crate) fn remaining(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Why no more windows could be opened.
    pub(crate) fn into_refused(self) -> Option<String> {
        self.refused
    }

    /// Tells, opens or closes if it is time to. Gives the window that was closed.
    pub(crate) fn take(&mut self, sampler: &mut Sampler, is_last: bool) -> Option<CallWindow> {
        if !is_last && !self.remaining().is_zero() {
            return None;
        }
        if !sampler.can_count() {
            self.next = Instant::now() + NEVER;
            return None;
        }
        if sampler.counts_always() {
            // What fails comes with the next telling: sums only grow.
            let _ = sampler.tell_calls();
            self.next = Instant::now() + TELLING;
            return None;
        }
        if self.is_paused && !sampler.has_window() {
            self.next = Instant::now() + DISTANCE;
            return None;
        }
        let before_ns = thread_cpu_ns();
        let closed = if sampler.has_window() {
            let closed = sampler.close_window();
            self.took_ns += thread_cpu_ns().saturating_sub(before_ns);
            let wanted = DISTANCE.max(Duration::from_nanos(self.took_ns) * SHARE);
            self.next = Instant::now() + wanted.mul_f64(self.jitter.between(0.5, 1.5));
            closed
        } else if is_last {
            return None;
        } else {
            let opened = sampler.open_window().map(|()| None);
            self.took_ns = thread_cpu_ns().saturating_sub(before_ns);
            self.next = Instant::now() + OPEN;
            opened
        };
        closed.unwrap_or_else(|error| {
            self.refused = Some(error.to_string());
            self.next = Instant::now() + NEVER;
            None
        })
    }
}
