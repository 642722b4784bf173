//! Time on CPU that lies outside the switch records.
//!
//! A thread's events stop after the record of its leaving was written, and start before the record of its coming back:
//! the time in between (writing records, copying a stack, programming the timer) is on CPU by the event's own count, by
//! schedstat and by getrusage, but not between the records. Redis under load: 10 us a switch, a fifth of its CPU time.

use crate::Table;
use crate::tables::{OffCpu, ThreadRow};

/// Moves that time from the waits to the threads: exactly what the waits give up, so that a thread's life stays whole.
#[derive(Debug)]
pub(super) struct SwitchCost {
    each_ns: u64,
    taken_ns: Vec<u64>,
}

impl SwitchCost {
    /// `each_ns` a switch, of so many threads.
    pub(super) fn new(each_ns: u64, threads: usize) -> Self {
        Self { each_ns, taken_ns: vec![0; threads] }
    }

    /// Takes it from the waits between the switches, and remembers whose it was.
    pub(super) fn take_from(&mut self, waits: &mut OffCpu) {
        if self.each_ns == 0 {
            return;
        }
        for row in 0..waits.len() {
            let took_ns =
                u64::from(waits.count[row]).saturating_mul(self.each_ns).min(waits.duration_ns[row]);
            waits.duration_ns[row] -= took_ns;
            waits.weight_ns[row] = waits.duration_ns[row];
            if let Some(taken) = self.taken_ns.get_mut(waits.thread[row] as usize) {
                *taken = taken.saturating_add(took_ns);
            }
        }
    }

    /// Gives the threads what was taken so far.
    pub(super) fn give_to(&self, threads: &mut [ThreadRow]) {
        for (thread, taken_ns) in threads.iter_mut().zip(&self.taken_ns) {
            thread.on_cpu_ns = thread.on_cpu_ns.saturating_add(*taken_ns);
        }
    }
}
