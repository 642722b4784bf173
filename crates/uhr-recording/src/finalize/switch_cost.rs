//! Time on CPU that lies outside the switch records.
//!
//! A thread's events stop after the record of its leaving was written, and start before the record of its coming back:
//! the time in between (writing records, copying a stack, programming the timer) is on CPU by the event's own count, by
//! schedstat and by getrusage, but not between the records. Redis under load: 10 us a switch, a fifth of its CPU time.

use crate::Table;
use crate::tables::{OffCpu, ThreadRow};

/// Moves that time from the waits to the threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct SwitchCost {
    pub(super) each_ns: u64,
}

impl SwitchCost {
    /// Gives each thread what its switches took.
    pub(super) fn add_to(self, threads: &mut [ThreadRow]) {
        for thread in threads {
            let took_ns = thread.switches.saturating_mul(self.each_ns);
            thread.on_cpu_ns = thread.on_cpu_ns.saturating_add(took_ns);
        }
    }

    /// Takes it from the waits between them.
    pub(super) fn take_from(self, waits: &mut OffCpu) {
        for row in 0..waits.len() {
            let took_ns = u64::from(waits.count[row]).saturating_mul(self.each_ns);
            waits.duration_ns[row] = waits.duration_ns[row].saturating_sub(took_ns);
            waits.weight_ns[row] = waits.duration_ns[row];
        }
    }
}
