//! The thread that empties the rings. It does nothing else, so that a ring of 512 KiB, which holds 31 stack copies of
//! 16 KiB, never waits for an unwinder or a disk.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::CollectError;
use crate::perf::{Attached, Decoder, EventKind, Ladder, Session, hurry_this_thread, monotonic_ns};

/// How long the rings are left alone: at 999 Hz ten stack copies a CPU.
const PAUSE: Duration = Duration::from_millis(10);
/// Batches on the way to the pipeline. When it falls this far behind the reader waits, the rings fill, and the kernel
/// counts what it has to drop: memory stays bounded and nothing is lost unseen. (A batch is at most what the rings hold.)
const BATCHES: usize = 64;

/// Passes without a record after the last target has gone, before that is the end.
const QUIET_PASSES: u32 = 5;

/// What one pass over the rings brought.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// Ring and length of each record.
    records: Vec<(u32, u32)>,
    /// When the pass began.
    pub(crate) started_ns: u64,
    pub(crate) corrupt_bytes: u64,
    /// Threads that could not be attached since the last pass.
    pub(crate) unattached: Vec<u32>,
    /// Threads that had ended before they could be attached.
    pub(crate) gone: Vec<u32>,
    /// Every target is gone: nothing more will come.
    pub(crate) is_over: bool,
}

impl Batch {
    /// Reads the rings. Counts samples of `counted` on the way.
    fn of(session: &mut Session, decoder: &Decoder, counted: EventKind) -> (Self, u64) {
        let (mut batch, mut samples) = (Self::default(), 0);
        let drained = session.drain(&mut |ring, record| {
            samples += u64::from(decoder.may_be_of(record, counted));
            batch.bytes.extend_from_slice(record);
            batch.records.push((ring as u32, record.len() as u32));
        });
        batch.started_ns = drained.started_ns;
        batch.corrupt_bytes = drained.corrupt_bytes;
        (batch, samples)
    }

    /// The records, each with the number of its ring.
    pub(crate) fn records(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let mut rest = self.bytes.as_slice();
        self.records.iter().filter_map(move |&(ring, length)| {
            let (record, behind) = rest.split_at_checked(length as usize)?;
            rest = behind;
            Some((ring as usize, record))
        })
    }
}

enum Order {
    AddThread(u32),
    Stop,
}

/// A session whose events have stopped.
#[derive(Debug)]
pub(crate) struct Stopped {
    pub(crate) session: Session,
    /// When: nothing that happened later is in its rings.
    pub(crate) at_ns: u64,
}

/// The running thread.
#[derive(Debug)]
pub(crate) struct Reader {
    batches: Receiver<Batch>,
    orders: Sender<Order>,
    /// `None` when it was stopped.
    thread: Option<JoinHandle<Stopped>>,
}

impl Reader {
    pub(crate) fn start(session: Session) -> Result<Self, CollectError> {
        let (batch_sender, batches) = sync_channel(BATCHES);
        let (orders, order_receiver) = channel();
        let thread = std::thread::Builder::new()
            .name("uhr-reader".to_owned())
            .spawn(move || read(session, &batch_sender, &order_receiver))
            .map_err(|source| CollectError::System { step: "starting a thread", source })?;
        Ok(Self { batches, orders, thread: Some(thread) })
    }

    pub(crate) fn receive(&self, timeout: Duration) -> Result<Batch, RecvTimeoutError> {
        self.batches.recv_timeout(timeout)
    }

    /// Attaches to a thread that has begun.
    pub(crate) fn add_thread(&self, tid: u32) {
        let _ = self.orders.send(Order::AddThread(tid));
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

fn read(mut session: Session, batches: &SyncSender<Batch>, orders: &Receiver<Order>) -> Stopped {
    // On a busy machine it waits for its turn longer than a ring takes to fill.
    hurry_this_thread();
    let decoder = session.decoder();
    let mut ladder = Ladder::new(session.granted().stack_copy_bytes > 0, monotonic_ns());
    let mut quiet = 0;
    loop {
        let (mut stop, mut unattached, mut gone) = (false, Vec::new(), Vec::new());
        for order in orders.try_iter() {
            match order {
                Order::AddThread(tid) => match session.add_thread(tid) {
                    Ok(Attached::Now) => {}
                    Ok(Attached::NoRoom) => unattached.push(tid),
                    Ok(Attached::Gone) | Err(_) => gone.push(tid),
                },
                Order::Stop => stop = true,
            }
        }
        if stop {
            let _ = session.disable();
        } else {
            let _ = session.wait(PAUSE);
        }
        let at_ns = monotonic_ns();
        let (mut batch, samples) = Batch::of(&mut session, &decoder, ladder.kind());
        if ladder.see(samples, batch.started_ns) && !stop {
            // If the kernel refuses, what is lost is counted.
            let _ = session.thin_switches(ladder.is_thinned());
        }
        (batch.unattached, batch.gone) = (unattached, gone);
        // The last record may be that of a thread that is still to be attached to.
        let is_quiet = session.is_over() && batch.records.is_empty();
        quiet = if is_quiet { quiet + 1 } else { 0 };
        batch.is_over = quiet >= QUIET_PASSES;
        let is_over = batch.is_over;
        // An empty batch says something too: that what came before can be put in order now.
        let gone = batches.send(batch).is_err();
        if stop || gone || is_over {
            return Stopped { session, at_ns };
        }
    }
}
