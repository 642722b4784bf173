//! Finds out by trying what the kernel grants, instead of believing a version or `perf_event_paranoid`: distributions
//! patch the meaning of that number, containers filter the call.

use std::io;

use super::attr::Wish;
use super::event::EventKind;
use super::sys;

/// Which events a session opens, and how.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) wish: Wish,
    /// In the order in which they are opened. The sideband is last: a FORK record then means that every other event
    /// was inherited too.
    pub(super) kinds: Vec<EventKind>,
}

/// How a trial ended that did not succeed.
#[derive(Debug)]
pub(super) enum Failed {
    /// None of the threads lives.
    AllGone,
    /// What even the most modest wish meets, and for which thread.
    Kernel { pid: i32, source: io::Error },
}

impl Plan {
    /// Tries events of each wanted kind on the first living thread of `pids` and on `cpu`, and wishes for less until
    /// they open.
    pub(super) fn find(wish: Wish, wanted: &[EventKind], pids: &[i32], cpu: i32) -> Result<Self, Failed> {
        for &pid in pids {
            let mut plan = Self { wish: wish.clone(), kinds: Vec::new() };
            match plan.try_kinds(wanted, pid, cpu) {
                Ok(()) => return Ok(plan),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(source) => return Err(Failed::Kernel { pid, source }),
            }
        }
        Err(Failed::AllGone)
    }

    fn try_kinds(&mut self, wanted: &[EventKind], pid: i32, cpu: i32) -> io::Result<()> {
        for &kind in wanted {
            // Threads leave a CPU inside the kernel: without it such an event opens and stays silent (seen on 6.18).
            if kind.is_switch() && !self.wish.kernel_visible {
                continue;
            }
            self.settle(kind, pid, cpu)?;
            self.kinds.push(kind);
        }
        Ok(())
    }

    fn settle(&mut self, kind: EventKind, pid: i32, cpu: i32) -> io::Result<()> {
        loop {
            match sys::open_event(&self.wish.attr(kind), pid, cpu) {
                Ok(_) => return Ok(()),
                Err(error) if self.wish.lower(kind, &error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Wish {
    /// Gives up the newest or the most privileged thing that can be the reason for `error`. False: nothing is left.
    fn lower(&mut self, kind: EventKind, error: &io::Error) -> bool {
        let given_up = match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => &mut self.kernel_visible,
            Some(libc::EINVAL) if self.lost_counts => &mut self.lost_counts,
            Some(libc::EINVAL) if kind == EventKind::Sideband => &mut self.build_ids,
            _ => return false,
        };
        std::mem::replace(given_up, false)
    }
}
