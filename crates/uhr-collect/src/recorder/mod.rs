//! The recording of one target, from the opened events to a captured recording on disk.

mod kernel_ledger;
mod ledger;
mod opening;
mod refused;

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use uhr_ebpf::Event;
use uhr_model::ModuleId;
use uhr_recording::{Manifest, RecordingWriter, State, Window};

use crate::cgroup::CgroupTarget;
use crate::error::CollectError;
use crate::host::{LoadCounters, clock, host};
use crate::memory_use;
use crate::modules::HeldFile;
use crate::perf::{BeforeOthers, Decoder, Granted, Merger, RingLayout, Thinned, monotonic_ns};
use crate::pipeline::Pipeline;
use crate::procfs;
use crate::reader::{Batch, Reader, Source, Stopped, is_of_programs};
use crate::resident::ResidentPoll;
use crate::tasks::{Followed, Tasks};
use crate::unwind_choice::UnwindChoice;
use kernel_ledger::KernelSide;
use opening::Opened;
pub use refused::SETCAP;

/// How long records may wait before they are looked at, and between two looks at everything that is polled.
const TICK: Duration = Duration::from_millis(10);
/// The same where programs in the kernel do what has to be done in time.
const TICK_WITH_PROGRAMS: Duration = Duration::from_millis(50);
/// A thread that has waited this long without a known stack is looked at from outside.
const OUTSIDE_AFTER_NS: u64 = 5_000_000;
/// Stacks read from outside in one tick, at most: 20 us each, so at most a fifth of a CPU, and only while threads block
/// anew that often.
const OUTSIDE_PER_TICK: usize = 100;
/// Records that wait to be put in order. More than that is handed on unordered, and counted.
const MERGE_BYTES: usize = 64 << 20;

/// What is recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// A child that is held before it executes this program.
    Child {
        /// Its pid.
        pid: u32,
        /// The program.
        program: std::path::PathBuf,
    },
    /// Processes that run already, with all their threads and descendants to come.
    Processes(Vec<u32>),
    /// A control group, with all below it.
    Cgroup(CgroupTarget),
    /// The whole machine.
    Machine,
}

/// What takes the samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SamplerChoice {
    /// uhr's own programs in the kernel where they may be loaded, else perf events.
    Auto,
    /// Linux perf events.
    Perf,
    /// uhr's own eBPF programs.
    Ebpf,
}

/// How it is recorded.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// What.
    pub target: Target,
    /// By what.
    pub sampler: SamplerChoice,
    /// Samples a second and CPU.
    pub frequency: u32,
    /// How user stacks are taken.
    pub unwind: UnwindChoice,
    /// Bytes of stack copied with a sample.
    pub stack_size: u32,
    /// Hold each walk of the kernel against one of user space, and tell how they differ.
    pub check_walks: bool,
    /// Whether system calls are counted and measured all the time. Otherwise uhr's own programs count them now and then.
    pub syscalls: bool,
    /// What recording may cost, as a share of the time of all CPUs.
    pub max_overhead: Option<f64>,
}

/// A recording that is being made.
#[derive(Debug)]
pub struct Recorder {
    manifest: Manifest,
    pipeline: Pipeline,
    reader: Reader,
    /// What the programs in the kernel could not be taken for, or why they were not.
    kernel_side: KernelSide,
    decoder: Decoder,
    merger: Merger,
    resident: ResidentPoll,
    load: LoadCounters,
    granted: Granted,
    /// When the pass before the last over the rings began: everything older has arrived.
    arrived_ns: u64,
    last_flush: Instant,
    corrupt_bytes: u64,
    outside_refused: u64,
    outside_taken: u64,
    /// Threads that had ended before they were attached to.
    gone: u64,
    thinned: Thinned,
}

/// A capture that has ended. Names have still to be looked up; the files that they are in are held open here.
#[derive(Debug)]
pub struct Captured {
    /// The manifest as it was written.
    pub manifest: Manifest,
    /// The files of modules.
    pub held: HashMap<ModuleId, HeldFile>,
}

impl Recorder {
    /// Opens the events and begins the recording in `folder`, which must not exist.
    ///
    /// # Errors
    /// [`CollectError`]: nothing is recorded then, and the folder is not there.
    pub fn start(options: &Options, folder: &Path) -> Result<Self, CollectError> {
        check_proc()?;
        memory_use::keep_small();
        let target = by_process(&options.target)?;
        let threads = threads_of(&target)?;
        let Opened { mut source, settings, kernel_side } = Opened::open(options, &target, &threads)?;
        let granted = source.session.granted().clone();
        let granted_gone = granted.gone as u64;
        // Where many threads are attached to this takes a while, and the recording begins when all are.
        if !matches!(options.target, Target::Child { .. }) && source.sampler.is_none() {
            source
                .session
                .enable()
                .map_err(|source| CollectError::System { step: "enabling the events", source })?;
        }
        let mut manifest = Manifest::new(settings, host(), clock());
        if let Some(sampler) = &source.sampler {
            manifest.window.start_ns = sampler.since_ns();
        }
        let writer = RecordingWriter::create(folder, &manifest)?;
        let start_ns = manifest.window.start_ns;
        let period_ns = 1_000_000_000 / u64::from(manifest.settings.frequency_hz.max(1));
        let mut tasks = Tasks::new(period_ns, granted.kernel_visible, start_ns);
        if source.sampler.is_some() {
            // Of a cgroup a process is known by its first event.
            let is_all = matches!(target, Target::Machine);
            tasks.expect_sums(if is_all { Followed::All } else { Followed::Known });
        }
        let mut pipeline = Pipeline::new(writer, tasks, granted.max_stack as usize);
        pipeline.fault_period = opening::FAULTS_A_SAMPLE;
        pipeline.kernel_tables = source.kernel_tables()?;
        let decoder = source.session.decoder();
        take_in(&mut pipeline, &target, &threads, start_ns);
        granted.unattached.iter().for_each(|&tid| pipeline.tasks.has_no_events(tid));
        let load_pid = match &options.target {
            Target::Child { pid, .. } => *pid,
            Target::Processes(pids) => pids.first().copied().unwrap_or(0),
            Target::Machine | Target::Cgroup(_) => std::process::id(),
        };
        Ok(Self {
            manifest,
            pipeline,
            reader: Reader::start(source)?,
            kernel_side,
            merger: Merger::new(decoder.clone(), MERGE_BYTES),
            decoder,
            resident: ResidentPoll::new(),
            load: LoadCounters::read(load_pid),
            granted,
            arrived_ns: 0,
            last_flush: Instant::now(),
            corrupt_bytes: 0,
            outside_refused: 0,
            outside_taken: 0,
            gone: granted_gone,
            thinned: Thinned::default(),
        })
    }

    /// What the host granted.
    pub fn granted(&self) -> &Granted {
        &self.granted
    }

    /// The manifest so far.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Records until `keep_going` says no (it is asked every few milliseconds) or every target is gone.
    ///
    /// # Errors
    /// [`CollectError::Recording`] if the disk is full or gone. What was written before is kept.
    pub fn run(&mut self, keep_going: &mut dyn FnMut() -> bool) -> Result<(), CollectError> {
        // What waits too long for its turn costs memory, and then samples.
        let _before_others = BeforeOthers::new();
        let tick = if self.pipeline.tasks.has_sums() { TICK_WITH_PROGRAMS } else { TICK };
        while keep_going() {
            match self.reader.receive(tick) {
                Ok(batch) => {
                    let is_over = batch.is_over;
                    self.take(batch);
                    let is_over = is_over || self.is_over();
                    if is_over {
                        break;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.tick()?;
        }
        Ok(())
    }

    /// Ends the capture: stops the events, takes in what is still in the rings, closes what is open.
    ///
    /// # Errors
    /// [`CollectError::Recording`] if the last rows cannot be written.
    pub fn finish(mut self) -> Result<Captured, CollectError> {
        self.pipeline.kernel_programs.look();
        let (batches, stopped) = self.reader.stop();
        let end_ns = stopped.as_ref().map_or_else(monotonic_ns, |stopped| stopped.at_ns);
        // What is still to be taken in may take longer than all before.
        self.manifest.load = self.load.since();
        for batch in batches {
            self.push(batch);
        }
        let (decoder, pipeline) = (&self.decoder, &mut self.pipeline);
        self.merger.finish(&mut |ring, record| hand_over(decoder, pipeline, ring, record));
        self.resident.poll(self.pipeline.tasks.processes(), end_ns, &mut self.pipeline.writer);
        self.pipeline.look_for_names();
        self.pipeline.close_sums(end_ns);
        self.pipeline.calls.finish(end_ns, &mut self.pipeline.writer);
        self.pipeline.tasks.finish(end_ns, &mut self.pipeline.writer);
        let counts = stopped.as_ref().map(|stopped| stopped.source.session.counts()).unwrap_or_default();
        if let Some(Stopped { source, calls_refused, .. }) = stopped {
            let Source { session, sampler, overhead, .. } = source;
            self.kernel_side.kept = overhead.map(|overhead| overhead.kept());
            self.kernel_side.calls_refused = calls_refused;
            self.granted = session.granted().clone();
            self.thinned = session.thinned();
            if let Some(sampler) = &sampler {
                self.kernel_side.counters = sampler.counters();
                self.kernel_side.costs = sampler.costs();
                self.kernel_side.unread = sampler.unread();
                self.kernel_side.left_out = sampler.left_out().collect();
            }
        }
        self.manifest.state = State::Captured;
        self.manifest.window = Window { start_ns: self.manifest.window.start_ns, end_ns };
        self.manifest.ledger =
            if self.pipeline.tasks.has_sums() { self.kernel_ledger() } else { self.ledger(&counts) };
        self.manifest.notes = if self.pipeline.tasks.has_sums() { self.kernel_notes() } else { self.notes() };
        self.manifest.notes.extend(self.refused_in_words());
        self.manifest.cost = self.cost();
        let Pipeline { writer, names, modules, .. } = self.pipeline;
        names.store(&writer)?;
        writer.finish(&self.manifest)?;
        Ok(Captured { manifest: self.manifest, held: modules.into_held() })
    }

    /// Perf events end with their threads; the sideband of the whole machine does not.
    fn is_over(&self) -> bool {
        let is_of_some = matches!(self.manifest.settings.target.as_str(), "command" | "processes");
        is_of_some && self.pipeline.tasks.has_sums() && self.pipeline.tasks.are_gone()
    }

    fn take(&mut self, batch: Batch) {
        let started_ns = batch.started_ns;
        self.pipeline.kernel_programs.look();
        self.push(batch);
        let (decoder, pipeline) = (&self.decoder, &mut self.pipeline);
        self.merger.release(self.arrived_ns, &mut |ring, record| hand_over(decoder, pipeline, ring, record));
        pipeline.update_kernel_tables();
        self.arrived_ns = started_ns;
        if let Some(bytes) = self.merger.spare() {
            self.reader.give_back(bytes);
        }
    }

    fn push(&mut self, batch: Batch) {
        self.corrupt_bytes += batch.corrupt_bytes;
        self.manifest.settings.wait_period_ns =
            self.pipeline.tasks.has_sums().then_some(batch.wait_period_ns);
        for &window in &batch.windows {
            self.pipeline.calls.see_window(window, &mut self.pipeline.writer);
        }
        let records = batch.records.iter().map(|&(ring, length)| (ring as usize, length as usize));
        self.merger.push(batch.bytes, records, |ring, record| {
            Event::time_ns(record).filter(|_| is_of_programs(ring))
        });
        // They were taken in when their FORK records came, for that is why they were to be attached to.
        batch.unattached.iter().for_each(|&tid| self.pipeline.tasks.has_no_events(tid));
        self.gone += batch.gone.len() as u64;
        batch.gone.iter().for_each(|&tid| self.pipeline.tasks.was_gone(tid, &mut self.pipeline.writer));
    }

    fn tick(&mut self) -> Result<(), CollectError> {
        let began = std::mem::take(&mut self.pipeline.began);
        if self.granted.layout == RingLayout::PerThread {
            began.into_iter().for_each(|tid| self.reader.add_thread(tid));
        }
        let now_ns = monotonic_ns();
        if !self.pipeline.tasks.has_sums() {
            let reads = self.pipeline.look_at_waiting(now_ns, OUTSIDE_AFTER_NS, OUTSIDE_PER_TICK);
            self.outside_refused += reads.refused;
            self.outside_taken += reads.taken;
        }
        if self.resident.is_due() {
            self.resident.poll(self.pipeline.tasks.processes(), now_ns, &mut self.pipeline.writer);
        }
        if self.last_flush.elapsed() >= Duration::from_secs(1) || self.pipeline.writer.wants_flush() {
            self.pipeline.look_for_names();
            self.pipeline.tasks.poll_totals(now_ns, &mut self.pipeline.writer);
            self.pipeline.tasks.flush_waits(&mut self.pipeline.writer);
            self.pipeline.modules.trim();
            self.pipeline.sweep_kernel_tables();
            self.pipeline.tasks.end_overdue(self.arrived_ns, &mut self.pipeline.writer);
            self.pipeline.writer.flush()?;
            self.last_flush = Instant::now();
        }
        Ok(())
    }
}

fn hand_over(decoder: &Decoder, pipeline: &mut Pipeline, ring: usize, record: &[u8]) {
    if is_of_programs(ring) {
        match Event::parse(record) {
            Some(event) => pipeline.event(&event),
            None => pipeline.counted.malformed += 1,
        }
        return;
    }
    match decoder.parse(record) {
        Ok(record) => pipeline.handle(&record),
        Err(_) => pipeline.counted.malformed += 1,
    }
}

/// Where `/proc` belongs to another pid namespace, the pids in it are other processes than those in the kernel's records.
fn check_proc() -> Result<(), CollectError> {
    let seen = std::fs::read_link("/proc/self").unwrap_or_default().to_string_lossy().into_owned();
    if seen == std::process::id().to_string() { Ok(()) } else { Err(CollectError::ForeignProc { seen }) }
}

/// Pids as processes with their children (a server's work is done by those): `top -H` shows tids, and a pid may be given
/// twice.
fn by_process(target: &Target) -> Result<Target, CollectError> {
    let Target::Processes(pids) = target else { return Ok(target.clone()) };
    let process = |&pid: &u32| procfs::process_of(pid).ok_or(CollectError::NoSuchProcess { pid });
    let mut processes = procfs::with_descendants(pids.iter().map(process).collect::<Result<_, _>>()?);
    processes.sort_unstable();
    processes.dedup();
    Ok(Target::Processes(processes))
}

/// The threads that live now, of each process.
fn threads_of(target: &Target) -> Result<Vec<(u32, Vec<u32>)>, CollectError> {
    let Target::Processes(pids) = target else { return Ok(Vec::new()) };
    // A process that was there a moment ago may have ended, and one that has ended is there until its parent takes note.
    let is_there =
        |pid: u32, tid: u32| procfs::stat(pid, tid).is_some_and(|stat| !matches!(stat.state, b'Z' | b'X'));
    let threads: Vec<_> = pids.iter().map(|&pid| (pid, procfs::threads(pid))).collect();
    let any_entry = threads.iter().find(|(_, tids)| !tids.is_empty()).map(|(pid, _)| *pid);
    let living = |(pid, tids): &(u32, Vec<u32>)| tids.iter().any(|&tid| is_there(*pid, tid));
    let living: Vec<_> = threads.into_iter().filter(living).collect();
    match (living.is_empty(), any_entry, pids.first()) {
        (true, Some(pid), _) => Err(CollectError::Ended { pid }),
        (true, None, Some(&pid)) => Err(CollectError::NoSuchProcess { pid }),
        _ => Ok(living),
    }
}

fn take_in(pipeline: &mut Pipeline, target: &Target, threads: &[(u32, Vec<u32>)], now_ns: u64) {
    match target {
        Target::Child { pid, .. } => {
            pipeline.tasks.expect_exec(*pid, now_ns, &mut pipeline.writer);
            pipeline.kernel_tables.iter_mut().for_each(|tables| tables.take_in(*pid, now_ns));
        }
        Target::Processes(_) => {
            for (pid, tids) in threads {
                pipeline.tasks.attach(*pid, tids, now_ns, &mut pipeline.writer);
                pipeline.read_maps(*pid, now_ns);
                pipeline.kernel_tables.iter_mut().for_each(|tables| tables.take_in(*pid, now_ns));
            }
        }
        // Processes are taken in when their first record comes.
        Target::Machine | Target::Cgroup(_) => pipeline.tasks.watch_machine(now_ns),
    }
}
