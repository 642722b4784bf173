//! System calls as rows: the programs in the kernel tell sums, the recording holds what is new in them.

use rustc_hash::FxHashMap;
use uhr_ebpf::{CallWindow, Calls};
use uhr_recording::RecordingWriter;
use uhr_recording::tables::{SyscallRow, SyscallWindowRow};

/// Threads whose sums are remembered, at most: more can only be left over from losses.
const MAX_THREADS: usize = 1 << 20;

/// What of one thread is in the recording already.
#[derive(Debug, Default)]
struct Told {
    /// Number and time, by system call and errno.
    calls: FxHashMap<(Option<u32>, u16), (u32, u64)>,
    /// Calls of all kinds.
    all: u32,
    /// The call that it is in, with the row of the thread, the number and since when.
    open: Option<(u32, u32, u64)>,
}

/// The largest part of its time that a thread is believed to have lost to the counting of its calls.
const MOST_LOST: f64 = 0.8;

/// How much slower a thread made so many calls in a window, in `ran_ns` on a CPU, because they were counted. It is taken for
/// one that the CPU holds up: one that waits makes too few calls for it to matter.
fn slowdown(window: CallWindow, calls: u32, ran_ns: u64) -> f64 {
    let ran_ns = (ran_ns as f64).max(1.0);
    let lost_ns = (f64::from(calls.saturating_sub(1)) * window.cost_ns).min(MOST_LOST * ran_ns);
    ran_ns / (ran_ns - lost_ns)
}

/// The system calls of all threads.
#[derive(Debug, Default)]
pub(crate) struct CallSums {
    /// By when counting them began, which is no two threads' the same.
    told: FxHashMap<u64, Told>,
    /// The last window that was closed.
    window: Option<CallWindow>,
    /// Calls of threads with more kinds of them than are told apart.
    pub(crate) crowded: u64,
}

impl CallSums {
    /// A window was closed: what is told from now on was counted in it.
    pub(crate) fn see_window(&mut self, window: CallWindow, writer: &mut RecordingWriter) {
        self.window = Some(window);
        writer.push_syscall_window(SyscallWindowRow { start_ns: window.start_ns, end_ns: window.end_ns });
    }

    /// The sums grew: what is new in them becomes rows of `thread`.
    pub(crate) fn see(&mut self, calls: &Calls, thread: u32, writer: &mut RecordingWriter) {
        if self.told.len() >= MAX_THREADS {
            self.told.clear();
        }
        let told = self.told.entry(calls.began_ns).or_default();
        // Sums are told just after a window, and of a thread that ends in one, before its end is known.
        let now_ns = calls.head.time_ns;
        let window = self.window.filter(|window| window.start_ns <= now_ns);
        let time_ns = window.map_or(now_ns, |window| now_ns.min(window.end_ns.saturating_sub(1)));
        let new = calls.all.saturating_sub(told.all);
        let slowdown = window.map_or(1.0, |window| slowdown(window, new, calls.ran_ns));
        told.all = calls.all;
        for call in &calls.ended {
            let before = told.calls.entry((call.syscall, call.error)).or_default();
            let count = call.count.saturating_sub(before.0);
            if count == 0 {
                continue;
            }
            writer.push_syscall(SyscallRow {
                time_ns,
                thread,
                syscall: call.syscall,
                error: call.error,
                count: u64::from(count),
                weight: (f64::from(count) * slowdown).round() as u64,
                duration_ns: call.ns.saturating_sub(before.1),
            });
            self.crowded += if call.syscall.is_none() { u64::from(count) } else { 0 };
            *before = (call.count, call.ns);
        }
        told.open = calls.open.map(|(syscall, since_ns)| (thread, syscall, since_ns));
        if calls.is_last {
            self.told.remove(&calls.began_ns);
        }
    }

    /// The recording ends: calls that last beyond it have taken time so far.
    pub(crate) fn finish(&mut self, now_ns: u64, writer: &mut RecordingWriter) {
        let mut open: Vec<(u32, u32, u64)> = self.told.drain().filter_map(|(_, told)| told.open).collect();
        open.sort_unstable();
        for (thread, syscall, since_ns) in open {
            let duration_ns = now_ns.saturating_sub(since_ns);
            let syscall = Some(syscall);
            writer.push_syscall(SyscallRow {
                time_ns: now_ns,
                thread,
                syscall,
                error: 0,
                count: 0,
                weight: 0,
                duration_ns,
            });
        }
    }
}
