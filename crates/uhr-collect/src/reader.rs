//! The thread that empties the rings. It does nothing else, so that a ring of 512 KiB, which holds 31 stack copies of
//! 16 KiB, never waits for an unwinder or a disk.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use uhr_ebpf::{CallWindow, Sampler};

use crate::call_windows::CallWindows;
use crate::error::CollectError;
use crate::jitter::Jitter;
use crate::kernel_tables::KernelTables;
use crate::look_clock::{LookClock, Lot};
use crate::overhead::Overhead;
use crate::perf::{
    Attached, Decoder, EventKind, Ladder, Session, hurry_this_thread, monotonic_ns, thread_cpu_ns,
};

/// How long the rings are left alone: at 999 Hz ten stack copies a CPU.
const PAUSE: Duration = Duration::from_millis(10);
/// The same with the programs' rings, of 8 MiB a CPU: each pass costs more, and half a second of copies fits.
const PAUSE_OF_PROGRAMS: Duration = Duration::from_millis(50);
/// After records of new mappings and processes: what the kernel walks by is to be brought up to date soon.
const PAUSE_AFTER_NEWS: Duration = Duration::from_millis(10);
/// Empty batches in a row that are handed on: they say that time has passed, so that what came before can be put in order.
/// More would only wake the pipeline.
const EMPTY_BATCHES: u32 = 3;
/// Batches that the pipeline can take at once.
const BATCHES: usize = 4;
/// With so many bytes on the way the reader waits, the rings fill, and the kernel counts what it has to
/// drop. Memory stays bounded and nothing is lost unseen. (A pass adds at most what the rings hold.)
const BYTES_ON_THE_WAY: usize = 32 << 20;

/// Passes without a record after the last target has gone, before that is the end.
const QUIET_PASSES: u32 = 5;

/// Whether a ring is one of the programs in the kernel; those of perf events follow.
pub(crate) fn is_of_programs(ring: usize) -> bool {
    ring < uhr_ebpf::RINGS
}

/// How often threads' sums are asked for.
const TELL_PAUSE: Duration = Duration::from_secs(1);

/// The kernel measures the cost of programs for so long,
const MEASURED: Duration = Duration::from_millis(20);
/// and then, on average, not for so long. It varies, for what the programs do once a second must not always be measured,
/// nor never.
const MEASURE_PAUSE: Duration = Duration::from_millis(700);

/// Where records come from.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) session: Session,
    /// The programs in the kernel, where they take the samples; the session then brings the sideband alone.
    pub(crate) sampler: Option<Sampler>,
    /// What recording may cost, where there is a limit.
    pub(crate) overhead: Option<Overhead>,
}

impl Source {
    /// What the programs walk stacks by, where they do.
    pub(crate) fn kernel_tables(&self) -> Result<Option<KernelTables>, CollectError> {
        let walking = self.sampler.as_ref().filter(|sampler| sampler.walks_by_rows());
        let tables = walking.map(|sampler| sampler.tables().and_then(KernelTables::new)).transpose();
        tables.map_err(|source| CollectError::System { step: "opening the tables of the walker", source })
    }

    /// Does what the programs in the kernel need done by now. Gives the window of counting system calls that was closed.
    fn serve(&mut self, looks: &mut Looks, is_last: bool) -> Option<CallWindow> {
        let sampler = self.sampler.as_mut()?;
        looks.take(sampler, is_last);
        if let Some(level) = self.overhead.as_mut().and_then(|overhead| overhead.take(sampler)) {
            looks.slow_down(1 << level);
        }
        looks.windows.take(sampler, is_last)
    }

    fn stop(&mut self) {
        // If the kernel refuses, more is recorded than asked, and no harm is done.
        let _ = self.session.disable();
        if let Some(sampler) = &mut self.sampler {
            sampler.stop();
        }
    }
}

/// What one pass over the rings brought.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The records.
    pub(crate) bytes: Vec<u8>,
    /// Ring and length of each.
    pub(crate) records: Vec<(u32, u32)>,
    /// When the pass began.
    pub(crate) started_ns: u64,
    pub(crate) corrupt_bytes: u64,
    /// Threads that could not be attached since the last pass.
    pub(crate) unattached: Vec<u32>,
    /// Threads that had ended before they could be attached.
    pub(crate) gone: Vec<u32>,
    /// The mean distance of two looks at waiting threads.
    pub(crate) wait_period_ns: u64,
    /// The windows of counting system calls that were closed.
    pub(crate) windows: Vec<CallWindow>,
    /// Every target is gone: nothing more will come.
    pub(crate) is_over: bool,
}

impl Batch {
    /// Reads the rings, to `bytes`. Counts samples of `counted` on the way, and tells whether perf events brought anything.
    fn of(source: &mut Source, bytes: Vec<u8>, decoder: &Decoder, counted: EventKind) -> (Self, u64, bool) {
        let (mut batch, mut samples) = (Self { bytes, ..Self::default() }, 0);
        let drained = source.session.drain(&mut |ring, record| {
            samples += u64::from(decoder.may_be_of(record, counted));
            batch.push(uhr_ebpf::RINGS + ring, record);
        });
        let has_news = !batch.records.is_empty();
        if let Some(sampler) = &mut source.sampler {
            // A vector that grows takes twice the memory.
            batch.bytes.reserve(sampler.waiting_bytes());
            sampler.drain(&mut |ring, event| batch.push(ring, event));
        }
        batch.started_ns = drained.started_ns;
        batch.corrupt_bytes = drained.corrupt_bytes;
        (batch, samples, has_news)
    }

    fn push(&mut self, ring: usize, record: &[u8]) {
        self.bytes.extend_from_slice(record);
        self.records.push((ring as u32, record.len() as u32));
    }

    /// Whether the pass brought nothing.
    fn is_empty(&self) -> bool {
        self.records.is_empty()
            && self.windows.is_empty()
            && self.unattached.is_empty()
            && self.gone.is_empty()
            && self.corrupt_bytes == 0
    }
}

enum Order {
    AddThread(u32),
    /// Read to this memory.
    ReadTo(Vec<u8>),
    Stop,
}

/// A source whose events have stopped.
#[derive(Debug)]
pub(crate) struct Stopped {
    pub(crate) source: Source,
    /// When: nothing that happened later is in its rings.
    pub(crate) at_ns: u64,
    /// Why system calls could no longer be counted.
    pub(crate) calls_refused: Option<String>,
}

/// The running thread.
#[derive(Debug)]
pub(crate) struct Reader {
    batches: Receiver<Batch>,
    on_the_way: Arc<AtomicUsize>,
    orders: Sender<Order>,
    /// `None` when it was stopped.
    thread: Option<JoinHandle<Stopped>>,
}

impl Reader {
    pub(crate) fn start(source: Source) -> Result<Self, CollectError> {
        let (batch_sender, batches) = sync_channel(BATCHES);
        let (orders, order_receiver) = channel();
        let on_the_way = Arc::default();
        let line =
            Line { batches: batch_sender, on_the_way: Arc::clone(&on_the_way), waiting: VecDeque::new() };
        let thread = std::thread::Builder::new()
            .name("uhr-reader".to_owned())
            .spawn(move || read(source, line, &order_receiver))
            .map_err(|source| CollectError::System { step: "starting a thread", source })?;
        Ok(Self { batches, on_the_way, orders, thread: Some(thread) })
    }

    pub(crate) fn receive(&self, timeout: Duration) -> Result<Batch, RecvTimeoutError> {
        let batch = self.batches.recv_timeout(timeout)?;
        self.on_the_way.fetch_sub(batch.bytes.len(), Ordering::Relaxed);
        Ok(batch)
    }

    /// Attaches to a thread that has begun.
    pub(crate) fn add_thread(&self, tid: u32) {
        let _ = self.orders.send(Order::AddThread(tid));
    }

    /// Gives back the memory of a batch.
    pub(crate) fn give_back(&self, bytes: Vec<u8>) {
        let _ = self.orders.send(Order::ReadTo(bytes));
    }

    /// Stops the events; gives what is still on the way, and the session for its counts. The second time there is none.
    pub(crate) fn stop(&mut self) -> (Vec<Batch>, Option<Stopped>) {
        let _ = self.orders.send(Order::Stop);
        // The reader may be waiting for room, so the rest has to be taken before it can end.
        let rest = self.batches.iter().collect();
        match self.thread.take().map(JoinHandle::join).transpose() {
            Ok(stopped) => (rest, stopped),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn read(mut source: Source, mut line: Line, orders: &Receiver<Order>) -> Stopped {
    // On a busy machine it waits for its turn longer than a ring takes to fill.
    hurry_this_thread();
    let decoder = source.session.decoder();
    let mut ladder = Ladder::new(source.session.granted().stack_copy_bytes > 0, monotonic_ns());
    let mut looks = Looks::new();
    let (mut quiet, mut empty, mut news) = (0, 0, true);
    let mut spare = Vec::new();
    loop {
        let (mut stop, mut unattached, mut gone) = (false, Vec::new(), Vec::new());
        for order in orders.try_iter() {
            match order {
                Order::AddThread(tid) => match source.session.add_thread(tid) {
                    Ok(Attached::Now) => {}
                    Ok(Attached::NoRoom) => unattached.push(tid),
                    Ok(Attached::Gone) | Err(_) => gone.push(tid),
                },
                Order::ReadTo(bytes) => spare = bytes,
                Order::Stop => stop = true,
            }
        }
        if stop {
            source.stop();
        } else {
            let pause = match source.sampler {
                Some(_) => looks.remaining().min(if news { PAUSE_AFTER_NEWS } else { PAUSE_OF_PROGRAMS }),
                None => PAUSE,
            };
            let _ = source.session.wait(pause);
        }
        let at_ns = monotonic_ns();
        let window = source.serve(&mut looks, stop);
        let bytes = std::mem::take(&mut spare);
        let (mut batch, samples, sideband) = Batch::of(&mut source, bytes, &decoder, ladder.kind());
        news = sideband;
        if ladder.see(samples, batch.started_ns) && !stop {
            // If the kernel refuses, what is lost is counted.
            let _ = source.session.thin_switches(ladder.is_thinned());
        }
        (batch.unattached, batch.gone) = (unattached, gone);
        batch.windows.extend(window);
        batch.wait_period_ns = looks.clock.period_ns();
        // The last record may be that of a thread that is still to be attached to.
        let is_quiet = source.session.is_over() && batch.records.is_empty();
        quiet = if is_quiet { quiet + 1 } else { 0 };
        batch.is_over = quiet >= QUIET_PASSES;
        let is_over = batch.is_over;
        let is_last = stop || is_over;
        empty = if batch.is_empty() { empty + 1 } else { 0 };
        if empty > EMPTY_BATCHES && line.waiting.is_empty() && !is_last {
            continue;
        }
        if line.hand_on(batch, is_last).is_err() || is_last {
            return Stopped { source, at_ns, calls_refused: looks.windows.into_refused() };
        }
    }
}

/// The way to the pipeline.
struct Line {
    batches: SyncSender<Batch>,
    /// Bytes of the batches that the pipeline has not received yet.
    on_the_way: Arc<AtomicUsize>,
    /// Those that there is no place for yet.
    waiting: VecDeque<Batch>,
}

impl Line {
    /// Hands batches on, as many as the pipeline has a place for; the others wait in their turn, unless they are too large.
    fn hand_on(&mut self, next: Batch, is_last: bool) -> Result<(), Disconnected> {
        self.on_the_way.fetch_add(next.bytes.len(), Ordering::Relaxed);
        self.waiting.push_back(next);
        while let Some(batch) = self.waiting.pop_front() {
            if is_last || self.on_the_way.load(Ordering::Relaxed) >= BYTES_ON_THE_WAY {
                self.batches.send(batch).map_err(|_| Disconnected)?;
                continue;
            }
            match self.batches.try_send(batch) {
                Ok(()) => {}
                Err(TrySendError::Full(batch)) => {
                    self.waiting.push_front(batch);
                    break;
                }
                Err(TrySendError::Disconnected(_)) => return Err(Disconnected),
            }
        }
        Ok(())
    }
}

/// The pipeline is gone.
struct Disconnected;

/// When the programs in the kernel are to look at waiting threads, and when to tell the sums of all.
struct Looks {
    clock: LookClock,
    windows: CallWindows,
    lot: Lot,
    jitter: Jitter,
    next_telling: Instant,
}

impl Looks {
    fn new() -> Self {
        let seed = monotonic_ns();
        let (clock, windows) = (LookClock::new(seed), CallWindows::new(seed.rotate_left(17)));
        let jitter = Jitter::new(seed.rotate_left(34));
        Self { clock, windows, jitter, lot: Lot::new(), next_telling: Instant::now() }
    }

    /// So many times less than usual.
    fn slow_down(&mut self, times: u32) {
        self.clock.slow_down(times);
        self.lot.slow_down(times);
        self.windows.is_paused = times > 1;
    }

    /// How long until something is to be done.
    fn remaining(&self) -> Duration {
        self.clock.remaining().min(self.windows.remaining())
    }

    /// Looks and asks if it is time to; the last time, everybody tells once more. What fails comes with the next pass:
    /// sums only grow.
    fn take(&mut self, sampler: &mut Sampler, is_last: bool) {
        sampler.measure(MEASURED, MEASURE_PAUSE.mul_f64(self.jitter.between(0.5, 1.5)));
        if !is_last && self.clock.remaining().is_zero() {
            let before_ns = thread_cpu_ns();
            if self.lot.is_due() {
                self.lot.saw(sampler.counters().waits);
            }
            let saw_all = sampler.look(self.clock.period_ns(), self.lot.share()).unwrap_or(true);
            let took_ns = thread_cpu_ns().saturating_sub(before_ns);
            self.clock.looked(Duration::from_nanos(took_ns), saw_all);
        }
        if is_last || Instant::now() >= self.next_telling {
            let _ = sampler.tell_times();
            self.next_telling = Instant::now() + TELL_PAUSE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(started_ns: u64, records: &[&[u8]]) -> Batch {
        let mut batch = Batch { started_ns, ..Batch::default() };
        records.iter().for_each(|record| batch.push(1, record));
        batch
    }

    fn line(places: usize) -> (Line, Receiver<Batch>) {
        let (batches, received) = sync_channel(places);
        (Line { batches, on_the_way: Arc::default(), waiting: VecDeque::new() }, received)
    }

    #[test]
    fn while_the_pipeline_is_busy_batches_wait_and_nothing_is_lost() {
        let (mut line, batches) = line(2);
        for pass in 0..5 {
            let next = batch(pass, &[&[pass as u8; 8], &[pass as u8; 3]]);
            assert!(line.hand_on(next, false).is_ok());
        }
        assert_eq!((line.waiting.len(), line.on_the_way.load(Ordering::Relaxed)), (3, 5 * 11));
        let mut received = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(line.hand_on(batch(5, &[]), true).is_ok()));
            received.extend(batches.iter().take(6));
        });
        assert!(received.iter().map(|batch| batch.started_ns).eq(0..6));
        assert!(received[..5].iter().all(|batch| batch.records == [(1, 8), (1, 3)]));
        drop(batches);
        assert!(line.hand_on(batch(6, &[]), false).is_err());
    }

    #[test]
    fn all_that_is_on_the_way_counts_against_the_limit() {
        let (mut line, batches) = line(1);
        let large = || Batch { bytes: vec![0; BYTES_ON_THE_WAY / 4], ..Batch::default() };
        for waiting in [0, 1, 2] {
            assert!(line.hand_on(large(), false).is_ok());
            assert_eq!(line.waiting.len(), waiting);
        }
        // Now the reader has to wait until the pipeline has taken enough.
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| line.hand_on(large(), false).is_ok());
            assert_eq!(
                batches.iter().take(4).map(|batch| batch.bytes.len()).sum::<usize>(),
                BYTES_ON_THE_WAY
            );
            assert!(reader.join().unwrap());
        });
    }
}
