//! Processes and threads that go, and what is then known of their time.

use uhr_model::StackEnding;
use uhr_recording::RecordingWriter;

use super::{AFTERLIFE_NS, LAST_SUMS_NS, MAX_ENDED, Tasks, Thread};
use crate::pools::push_unsampled;

/// A thread of fewer ticks than this may well have no sample: each thread begins with a whole period, and of threads of
/// five the samples are 97 % of the right number (measured).
const SHORT_TICKS: u64 = 5;

impl Tasks {
    /// The EXIT record of a thread whose last sums are still to come.
    pub(crate) fn saw_exit(&mut self, tid: u32, now_ns: u64) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.exited_ns.get_or_insert(now_ns);
        }
    }

    /// Ends the threads whose last sums have not come, by `now_ns`, as of their EXIT records.
    pub(crate) fn end_overdue(&mut self, now_ns: u64, writer: &mut RecordingWriter) {
        let overdue = |thread: &Thread| {
            let exited_ns = thread.exited_ns.filter(|exited| exited + LAST_SUMS_NS < now_ns)?;
            Some((thread.pid, thread.row.tid, exited_ns))
        };
        let overdue: Vec<_> = self.threads.values().filter_map(overdue).collect();
        for (pid, tid, exited_ns) in overdue {
            self.exit(pid, tid, exited_ns, writer);
        }
    }

    /// A thread ended; with its first thread, and no other left, the process did.
    pub(crate) fn exit(&mut self, pid: u32, tid: u32, now_ns: u64, writer: &mut RecordingWriter) {
        self.end_thread(tid, now_ns, writer);
        if self.ended.len() >= MAX_ENDED {
            self.ended.retain(|_, ended| now_ns.saturating_sub(*ended) < AFTERLIFE_NS);
        }
        self.ended.insert(tid, now_ns);
        let is_last = self.processes.get(&pid).is_some_and(|process| process.living == 0);
        // Of the whole machine not every thread has been seen; the first thread's end is nearly always the process's.
        if is_last && (pid == tid || self.machine_since_ns.is_none()) {
            self.end_process(pid, now_ns, writer);
        }
    }

    pub(super) fn end_thread(&mut self, tid: u32, now_ns: u64, writer: &mut RecordingWriter) {
        let Some(mut thread) = self.threads.remove(&tid) else { return };
        if let Some(process) = self.processes.get_mut(&thread.pid) {
            process.living = process.living.saturating_sub(1);
        }
        thread.row.end_ns = Some(now_ns);
        self.close(&mut thread, now_ns, writer);
    }

    /// A thread had ended before its events could be opened: nothing is known of it but that it was.
    pub(crate) fn was_gone(&mut self, tid: u32, writer: &mut RecordingWriter) {
        if let Some(thread) = self.threads.get(&tid) {
            let began_ns = thread.row.start_ns;
            self.inexact += 1;
            self.end_thread(tid, began_ns, writer);
        }
    }

    /// No event could be opened for a thread: all that is known of it are the scheduler's totals.
    pub(crate) fn has_no_events(&mut self, tid: u32) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.totals_only = Some(thread.totals().unwrap_or_default());
        }
    }

    /// Reads the totals of the threads without events. They are gone with the thread, and nobody tells when that is.
    pub(crate) fn poll_totals(&mut self, now_ns: u64, writer: &mut RecordingWriter) {
        let mut gone = Vec::new();
        for thread in self.threads.values_mut().filter(|thread| thread.has_no_events()) {
            match thread.totals() {
                Some(totals) => thread.totals_only = Some(totals),
                None => gone.push(thread.row.tid),
            }
        }
        gone.into_iter().for_each(|tid| self.end_thread(tid, now_ns, writer));
    }

    /// Hands the rows of short waits to the recording that could still grow, so that a kill loses little.
    pub(crate) fn flush_waits(&mut self, writer: &mut RecordingWriter) {
        self.threads.values_mut().for_each(|thread| thread.time.flush(writer));
    }

    /// Writes a thread's last row, and a row for the time that its samples cannot stand for.
    fn close(&mut self, thread: &mut Thread, now_ns: u64, writer: &mut RecordingWriter) {
        if let Some(sums) = &mut thread.sums {
            sums.end(now_ns, |_| None, writer);
            thread.row.on_cpu_ns = sums.on_cpu_ns();
            thread.row.switches = sums.switches();
            thread.row.run_delay_ns = Some(sums.runqueue_ns());
            self.on_cpu_ns += thread.row.on_cpu_ns;
            self.switches += thread.row.switches;
            self.page_faults += sums.page_faults();
            self.crowded_waits += u64::from(sums.crowded);
            let name = self.processes.get(&thread.pid).map_or("", |process| process.row.name.as_str());
            self.pools.take(&mut thread.row, name, self.period_ns, now_ns, writer);
            writer.push_thread(thread.row.clone());
            return;
        }
        match thread.totals_only {
            Some(totals) => thread.time.end_by_totals(now_ns, totals, writer),
            None => thread.time.end(now_ns, writer),
        }
        self.inexact += u64::from(thread.time.contradictions > 0 || thread.has_no_events());
        let on_cpu_ns = thread.time.on_cpu_ns;
        thread.row.on_cpu_ns = on_cpu_ns;
        if !thread.has_no_events() {
            thread.row.switches = thread.time.switches;
            self.on_cpu_ns += on_cpu_ns;
            self.switches += thread.time.switches;
        }
        writer.push_thread(thread.row.clone());
        let unsampled = match thread.has_no_events() {
            true => (on_cpu_ns > 0).then_some((StackEnding::NotSampled, on_cpu_ns)),
            false => self.unsampled(thread.row.samples, on_cpu_ns),
        };
        if let Some((ending, weight_ns)) = unsampled {
            if thread.has_no_events() {
                self.without_events_ns += weight_ns;
            } else if ending == StackEnding::TooShortToSample {
                self.too_short_ns += weight_ns;
            } else if ending == StackEnding::KernelNotVisible {
                self.not_visible_ns += weight_ns;
            }
            push_unsampled(thread.row.id, weight_ns, ending, now_ns, writer);
        }
    }

    /// The part of a thread's time on CPU that stands without a stack: all of it where no sample caught the thread, which
    /// is no wonder in a short one, and in a long one was the kernel's time, or a loss; at
    /// paranoid 2 the ticks that fell into the kernel, which the clock counted and did not show. Ticks also go missing
    /// because the timer is set anew at every switch (0.4 to 0.6 %, measured), so a hundredth is not taken for kernel.
    fn unsampled(&self, samples: u64, on_cpu_ns: u64) -> Option<(StackEnding, u64)> {
        let ticks = on_cpu_ns / self.period_ns.max(1);
        if samples == 0 {
            let ending = match ticks {
                0..SHORT_TICKS => StackEnding::TooShortToSample,
                _ if self.kernel_visible => StackEnding::NotSampled,
                _ => StackEnding::KernelNotVisible,
            };
            return (on_cpu_ns > 0).then_some((ending, on_cpu_ns));
        }
        let missing = ticks.saturating_sub(samples);
        let is_kernel = !self.kernel_visible && missing > 2 && missing > ticks / 100;
        is_kernel.then_some((StackEnding::KernelNotVisible, missing * self.period_ns))
    }

    pub(super) fn end_process(&mut self, pid: u32, now_ns: u64, writer: &mut RecordingWriter) {
        if let Some(mut process) = self.processes.remove(&pid) {
            process.row.end_ns = Some(now_ns);
            writer.push_process(process.row);
        }
    }

    /// The recording ends: everything that still lives is written as it is.
    pub(crate) fn finish(&mut self, now_ns: u64, writer: &mut RecordingWriter) {
        self.poll_totals(now_ns, writer);
        let mut threads: Vec<Thread> = self.threads.drain().map(|(_, thread)| thread).collect();
        threads.sort_by_key(|thread| thread.row.id);
        for thread in &mut threads {
            thread.row.run_delay_ns = thread.totals().map(|(_, runnable_ns)| runnable_ns);
            thread.row.end_ns = thread.exited_ns;
            self.close(thread, now_ns, writer);
        }
        self.too_short_ns += self.pools.close(now_ns, writer);
    }
}
