//! The recording of one target, from the opened events to a captured recording on disk.

mod ledger;

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use uhr_model::ModuleId;
use uhr_recording::{Manifest, RecordingWriter, Settings, State, UhrCost, Window};

use crate::error::CollectError;
use crate::host::{LoadCounters, clock, host};
use crate::modules::HeldFile;
use crate::perf::{Decoder, Granted, Merger, RingLayout, Session, Targets, Thinned, UserStack, monotonic_ns};
use crate::pipeline::Pipeline;
use crate::procfs;
use crate::reader::{Batch, Reader, Stopped};
use crate::resident::ResidentPoll;
use crate::tasks::Tasks;
use crate::unwind_choice::{UnwindChoice, choose, modules_of_process, modules_of_program};

/// How long records may wait before they are looked at, and between two looks at everything that is polled.
const TICK: Duration = Duration::from_millis(10);
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
    /// The whole machine.
    Machine,
}

/// How it is recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// What.
    pub target: Target,
    /// Samples a second and CPU.
    pub frequency: u32,
    /// How user stacks are taken.
    pub unwind: UnwindChoice,
    /// Bytes of stack copied with a sample.
    pub stack_size: u32,
}

/// A recording that is being made.
#[derive(Debug)]
pub struct Recorder {
    manifest: Manifest,
    pipeline: Pipeline,
    reader: Reader,
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
        let (frame_pointers, reason) = match options.unwind {
            UnwindChoice::Fp => (true, None),
            UnwindChoice::Dwarf => (false, None),
            UnwindChoice::Auto => {
                let (fp, reason) = choose(&modules_of(&options.target));
                (fp, Some(reason))
            }
        };
        let settings = crate::perf::Settings {
            frequency: options.frequency,
            user_stack: if frame_pointers {
                UserStack::FramePointers
            } else {
                UserStack::Copy { bytes: options.stack_size }
            },
            data_mappings: true,
            ..crate::perf::Settings::default()
        };
        let target = by_process(&options.target)?;
        let threads = threads_of(&target)?;
        let tids: Vec<u32> = threads.iter().flat_map(|(_, tids)| tids.clone()).collect();
        let targets = match &options.target {
            Target::Child { pid, .. } => Targets::Child { pid: *pid },
            Target::Processes(_) => Targets::Threads(&tids),
            Target::Machine => Targets::WholeMachine,
        };
        let mut session = Session::open(targets, &settings)?;
        let granted = session.granted().clone();
        let granted_gone = granted.gone as u64;
        let manifest = Manifest::new(settings_of(options, &granted, frame_pointers, reason), host(), clock());
        let writer = RecordingWriter::create(folder, &manifest)?;
        let start_ns = manifest.window.start_ns;
        let period_ns = 1_000_000_000 / u64::from(granted.frequency.max(1));
        let tasks = Tasks::new(period_ns, granted.kernel_visible);
        let mut pipeline = Pipeline::new(writer, tasks, granted.max_stack as usize);
        let decoder = session.decoder();
        take_in(&mut pipeline, &target, &threads, start_ns);
        granted.unattached.iter().for_each(|&tid| pipeline.tasks.has_no_events(tid));
        if !matches!(options.target, Target::Child { .. }) {
            session
                .enable()
                .map_err(|source| CollectError::System { step: "enabling the events", source })?;
        }
        let load_pid = match &options.target {
            Target::Child { pid, .. } => *pid,
            Target::Processes(pids) => pids.first().copied().unwrap_or(0),
            Target::Machine => std::process::id(),
        };
        Ok(Self {
            manifest,
            pipeline,
            reader: Reader::start(session)?,
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
        while keep_going() {
            match self.reader.receive(TICK) {
                Ok(batch) => {
                    let is_over = batch.is_over;
                    self.take(&batch);
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
        let (batches, stopped) = self.reader.stop();
        let end_ns = stopped.as_ref().map_or_else(monotonic_ns, |stopped| stopped.at_ns);
        for batch in &batches {
            self.push(batch);
        }
        let (decoder, pipeline) = (&self.decoder, &mut self.pipeline);
        self.merger.finish(&mut |record| hand_over(decoder, pipeline, record));
        self.resident.poll(self.pipeline.tasks.processes(), end_ns, &mut self.pipeline.writer);
        self.pipeline.look_for_names();
        self.pipeline.tasks.finish(end_ns, &mut self.pipeline.writer);
        let counts = stopped.as_ref().map(|stopped| stopped.session.counts()).unwrap_or_default();
        if let Some(Stopped { session, .. }) = stopped {
            self.granted = session.granted().clone();
            self.thinned = session.thinned();
        }
        self.manifest.state = State::Captured;
        self.manifest.window = Window { start_ns: self.manifest.window.start_ns, end_ns };
        self.manifest.load = self.load.since();
        self.manifest.ledger = self.ledger(&counts);
        self.manifest.notes = self.notes();
        self.manifest.cost = cost();
        let Pipeline { writer, names, modules, .. } = self.pipeline;
        names.store(&writer)?;
        writer.finish(&self.manifest)?;
        Ok(Captured { manifest: self.manifest, held: modules.into_held() })
    }

    fn take(&mut self, batch: &Batch) {
        self.push(batch);
        let (decoder, pipeline) = (&self.decoder, &mut self.pipeline);
        self.merger.release(self.arrived_ns, &mut |record| hand_over(decoder, pipeline, record));
        self.arrived_ns = batch.started_ns;
    }

    fn push(&mut self, batch: &Batch) {
        self.corrupt_bytes += batch.corrupt_bytes;
        batch.records().for_each(|(ring, record)| self.merger.push(ring, record));
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
        let reads = self.pipeline.look_at_waiting(now_ns, OUTSIDE_AFTER_NS, OUTSIDE_PER_TICK);
        self.outside_refused += reads.refused;
        self.outside_taken += reads.taken;
        if self.resident.is_due() {
            self.resident.poll(self.pipeline.tasks.processes(), now_ns, &mut self.pipeline.writer);
        }
        if self.last_flush.elapsed() >= Duration::from_secs(1) || self.pipeline.writer.wants_flush() {
            self.pipeline.look_for_names();
            self.pipeline.tasks.poll_totals(now_ns, &mut self.pipeline.writer);
            self.pipeline.tasks.flush_waits(&mut self.pipeline.writer);
            self.pipeline.writer.flush()?;
            self.last_flush = Instant::now();
        }
        Ok(())
    }
}

fn hand_over(decoder: &Decoder, pipeline: &mut Pipeline, record: &[u8]) {
    match decoder.parse(record) {
        Ok(record) => pipeline.handle(&record),
        Err(_) => pipeline.counted.malformed += 1,
    }
}

fn settings_of(
    options: &Options,
    granted: &Granted,
    frame_pointers: bool,
    reason: Option<String>,
) -> Settings {
    let (target, command, pids) = match &options.target {
        Target::Child { program, .. } => {
            ("command", Some(program.to_string_lossy().into_owned()), Vec::new())
        }
        Target::Processes(pids) => ("processes", None, pids.clone()),
        Target::Machine => ("machine", None, Vec::new()),
    };
    Settings {
        sampler: "perf".to_owned(),
        frequency_asked_hz: options.frequency,
        frequency_hz: granted.frequency,
        unwind: if frame_pointers { "fp" } else { "dwarf" }.to_owned(),
        unwind_reason: reason,
        stack_size: (!frame_pointers).then_some(granted.stack_copy_bytes),
        kernel_visible: granted.kernel_visible,
        wait_stacks: if granted.switch_stacks { "switch" } else { "outside" }.to_owned(),
        wait_period_ns: None,
        target: target.to_owned(),
        command,
        pids,
    }
}

/// Where `/proc` belongs to another pid namespace, the pids in it are other processes than those in the kernel's records.
fn check_proc() -> Result<(), CollectError> {
    let seen = std::fs::read_link("/proc/self").unwrap_or_default().to_string_lossy().into_owned();
    if seen == std::process::id().to_string() { Ok(()) } else { Err(CollectError::ForeignProc { seen }) }
}

fn modules_of(target: &Target) -> Vec<std::path::PathBuf> {
    match target {
        Target::Child { program, .. } => modules_of_program(program),
        Target::Processes(pids) => pids.iter().flat_map(|&pid| modules_of_process(pid)).collect(),
        Target::Machine => Vec::new(),
    }
}

/// Pids as processes: `top -H` shows tids, and a pid may be given twice.
fn by_process(target: &Target) -> Result<Target, CollectError> {
    let Target::Processes(pids) = target else { return Ok(target.clone()) };
    let process = |&pid: &u32| procfs::process_of(pid).ok_or(CollectError::NoSuchProcess { pid });
    let mut processes = pids.iter().map(process).collect::<Result<Vec<u32>, _>>()?;
    processes.sort_unstable();
    processes.dedup();
    Ok(Target::Processes(processes))
}

/// The threads that live now, of each process.
fn threads_of(target: &Target) -> Result<Vec<(u32, Vec<u32>)>, CollectError> {
    let Target::Processes(pids) = target else { return Ok(Vec::new()) };
    let listed = pids.iter().map(|&pid| match procfs::threads(pid) {
        tids if tids.is_empty() => Err(CollectError::NoSuchProcess { pid }),
        tids => Ok((pid, tids)),
    });
    listed.collect()
}

fn take_in(pipeline: &mut Pipeline, target: &Target, threads: &[(u32, Vec<u32>)], now_ns: u64) {
    match target {
        Target::Child { pid, .. } => pipeline.tasks.expect_exec(*pid, now_ns, &mut pipeline.writer),
        Target::Processes(_) => {
            for (pid, tids) in threads {
                pipeline.tasks.attach(*pid, tids, now_ns, &mut pipeline.writer);
                pipeline.read_maps(*pid, now_ns);
            }
        }
        // Processes are taken in when their first record comes.
        Target::Machine => pipeline.tasks.watch_machine(now_ns),
    }
}

/// uhr's own CPU time, that of ended threads included, and its largest memory so far.
fn cost() -> UhrCost {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak_kb = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    UhrCost {
        cpu_ns: procfs::own_cpu_ns(),
        peak_memory_bytes: peak_kb.unwrap_or(0) * 1024,
        ..UhrCost::default()
    }
}
