//! System calls: how they are counted, and what is told of them.

use std::io;
use std::time::Instant;

use libbpf_rs::Link;

use crate::abi;
use crate::event::{Head, head};

/// Whether and when system calls are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Counting {
    /// While a window is open ([`Sampler::open_window`](crate::Sampler::open_window)): how many, and how they end.
    #[default]
    InWindows,
    /// All the time, and how long each takes.
    Always,
}

/// The part of a sampler that counts.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    /// Makes the programs tell what they counted.
    pub(crate) tell: Option<Link>,
    /// The programs of an open window, since when it is open, and what they cost a call.
    pub(crate) window: Option<(Link, u64, f64)>,
    /// Calls are counted now.
    pub(crate) is_on: bool,
    /// And measured, all the time.
    pub(crate) is_always: bool,
    /// Windows that were opened.
    pub(crate) windows: u32,
    /// What counting cost a call in the last windows, in nanoseconds.
    costs: Vec<f64>,
}

impl Counter {
    /// Takes in what counting cost a call in one more window; gives the median of the last. One window alone may say
    /// anything, where something else wanted the CPU too.
    fn cost_ns(&mut self, measured: f64) -> f64 {
        const KEPT: usize = 31;
        if self.costs.len() == KEPT {
            self.costs.remove(0);
        }
        self.costs.push(measured.max(0.0));
        let mut sorted = self.costs.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }
}

/// System calls of one kind that ended in one way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Its number. `None`: of several kinds that found no sum of their own.
    pub syscall: Option<u32>,
    /// errno; 0: success.
    pub error: u16,
    /// How many.
    pub count: u32,
    /// How long they took in all, where that is measured.
    pub ns: u64,
}

/// The system calls of a thread since they are counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Calls {
    /// The thread, and when.
    pub head: Head,
    /// When its calls began to be counted, which tells its sums from all others'.
    pub began_ns: u64,
    /// The call that it is in, and since when, where calls are measured.
    pub open: Option<(u32, u64)>,
    /// The thread ends.
    pub is_last: bool,
    /// How many have ended.
    pub all: u32,
    /// Time on CPU between the first and the last that ended in the present window.
    pub ran_ns: u64,
    /// Calls that have ended.
    pub ended: Vec<Call>,
}

impl Calls {
    pub(crate) fn of(raw: &abi::Calls) -> Self {
        let call =
            |own: &abi::Call, syscall| Call { syscall, error: own.error, count: own.count, ns: own.ns };
        let kept = raw.calls.iter().map(|own| call(own, Some(u32::from(own.syscall))));
        let all = kept.chain(std::iter::once(call(&raw.others, None)));
        Self {
            head: head(&raw.head),
            began_ns: raw.began_ns,
            open: (raw.since_ns != 0).then_some((raw.syscall, raw.since_ns)),
            is_last: raw.is_last != 0,
            all: raw.count,
            ran_ns: raw.ran_ns,
            ended: all.filter(|call| call.count > 0).collect(),
        }
    }
}

/// A window in which system calls were counted, half-open, in nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CallWindow {
    /// Its start.
    pub start_ns: u64,
    /// Its end.
    pub end_ns: u64,
    /// How much longer each call took because it was counted, in nanoseconds.
    pub cost_ns: f64,
}

/// How long a system call takes that does nothing, in nanoseconds: of several short series the lower third, for some of them
/// are interrupted.
fn call_ns(calibration: u64) -> f64 {
    const CALLS: u32 = 16;
    let series = || {
        let begin = Instant::now();
        for _ in 0..CALLS {
            // SAFETY: getppid takes no argument and looks at none; the programs do.
            unsafe { libc::syscall(libc::SYS_getppid, calibration) };
        }
        begin.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
    };
    let mut found: Vec<f64> = (0..9).map(|_| series()).collect();
    found.sort_by(f64::total_cmp);
    found[found.len() / 3]
}

impl crate::Sampler {
    /// Whether system calls can be counted in windows.
    pub fn can_count(&self) -> bool {
        self.counter.tell.is_some()
    }

    /// Whether they are counted all the time.
    pub fn counts_always(&self) -> bool {
        self.counter.is_always
    }

    /// Whether a window is open.
    pub fn has_window(&self) -> bool {
        self.counter.window.is_some()
    }

    /// Begins to count system calls.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn open_window(&mut self) -> io::Result<()> {
        let before_ns = call_ns(self.calibration);
        let link = self.attach("on_exit").map_err(|error| io::Error::other(error.to_string()))?;
        self.counter.is_on = true;
        self.counter.windows += 1;
        self.turn()?;
        let start_ns = crate::sampler::monotonic_ns();
        let cost_ns = self.counter.cost_ns(call_ns(self.calibration) - before_ns);
        self.counter.window = Some((link, start_ns, cost_ns));
        Ok(())
    }

    /// Ends the open window, and makes the programs tell what they counted in it.
    ///
    /// # Errors
    /// What the kernel answers. The window is then closed all the same.
    pub fn close_window(&mut self) -> io::Result<Option<CallWindow>> {
        let Some((link, start_ns, cost_ns)) = self.counter.window.take() else { return Ok(None) };
        let end_ns = crate::sampler::monotonic_ns();
        self.counter.is_on = false;
        let turned = self.turn();
        drop(link);
        turned?;
        self.tell_calls()?;
        Ok(Some(CallWindow { start_ns, end_ns, cost_ns }))
    }

    /// Makes the programs tell the system calls of all threads that made some since the last time.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn tell_calls(&self) -> io::Result<()> {
        self.counter.tell.as_ref().map_or(Ok(()), crate::sampler::run_iterator)
    }
}
