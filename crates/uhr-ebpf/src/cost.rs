//! What the programs themselves cost. The kernel measures that only while somebody asks it to, and then every run of
//! every program is a little slower: so it is asked for short windows, which stand for the rest.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use libbpf_rs::Object;

use crate::probe;

/// What one program cost in the windows in which it was measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramCost {
    /// Its name.
    pub name: String,
    /// Runs.
    pub runs: u64,
    /// Their time.
    pub ns: u64,
}

/// Measures in windows.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    window: Option<Window>,
    costs: Vec<ProgramCost>,
    measured: Duration,
}

#[derive(Debug)]
struct Window {
    since: Instant,
    at_start: Vec<ProgramCost>,
    /// The kernel measures as long as this is open.
    _measuring: OwnedFd,
}

impl Meter {
    /// Begins a window.
    pub(crate) fn begin(&mut self, object: &Object) -> io::Result<()> {
        // SAFETY: the call takes a number and gives a descriptor or an error.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if fd < 0 {
            return Err(io::Error::from_raw_os_error(-fd));
        }
        // SAFETY: a new descriptor that nobody else owns.
        let measuring = unsafe { OwnedFd::from_raw_fd(fd) };
        self.window = Some(Window { since: Instant::now(), at_start: so_far(object), _measuring: measuring });
        Ok(())
    }

    /// How long the present window has been open.
    pub(crate) fn window(&self) -> Option<Duration> {
        self.window.as_ref().map(|window| window.since.elapsed())
    }

    /// Ends the window and takes in what it brought.
    pub(crate) fn end(&mut self, object: &Object) {
        let Some(window) = self.window.take() else { return };
        self.measured += window.since.elapsed();
        let now = so_far(object);
        if self.costs.is_empty() {
            self.costs = now.iter().map(|cost| ProgramCost { runs: 0, ns: 0, ..cost.clone() }).collect();
        }
        for ((sum, now), start) in self.costs.iter_mut().zip(&now).zip(&window.at_start) {
            sum.runs += now.runs.saturating_sub(start.runs);
            sum.ns += now.ns.saturating_sub(start.ns);
        }
    }

    /// What each program cost in the windows, and how long those were in all. `None`: nothing was measured.
    pub(crate) fn costs(&self) -> Option<(&[ProgramCost], Duration)> {
        (!self.measured.is_zero()).then_some((&self.costs, self.measured))
    }
}

fn so_far(object: &Object) -> Vec<ProgramCost> {
    let cost = |program: libbpf_rs::Program<'_>| {
        let stats = probe::run_stats(program.as_fd()).unwrap_or_default();
        ProgramCost { name: program.name().to_string_lossy().into_owned(), runs: stats.runs, ns: stats.ns }
    };
    object.progs().filter(libbpf_rs::ProgramImpl::autoload).map(cost).collect()
}
