//! A session: the events of one target and the rings that their records come through.

use std::io;
use std::time::Duration;

use super::access::{Refusal, online_cpus};
use super::decoder::{Decoder, EventIds};
use super::error::OpenError;
use super::event::{Event, EventCounts, EventKind};
use super::granted::{Granted, RingLayout};
use super::lane::Lane;
use super::opening::{
    OTHER_DESCRIPTORS, Opening, first_wish, granted_by, samplers, target_pids, wanted_kinds,
};
use super::plan::{Failed, Plan};
use super::ring::Ring;
use super::sample::SampleShape;
use super::sys::{self, RingPages, Watch, raise_open_files};

/// What to record.
#[derive(Clone, Copy, Debug)]
pub enum Targets<'a> {
    /// A process that has not yet executed its program: everything begins at its exec. Descendants are followed.
    Child {
        /// The process.
        pid: u32,
    },
    /// Running threads. Threads and processes that they make are followed.
    Threads(&'a [u32]),
    /// Every thread of the machine.
    WholeMachine,
}

/// How user stacks are seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UserStack {
    /// The kernel follows frame pointers. Registers and the few bytes on top of the stack are copied all the same: the
    /// caller of a function without a frame is found with them.
    FramePointers,
    /// Registers and so many bytes of stack are copied, to be unwound by uhr. Rounded down to a multiple of 8, at most
    /// 65,520.
    Copy {
        /// Bytes.
        bytes: u32,
    },
}

/// How to record.
#[derive(Clone, Debug)]
pub struct Settings {
    /// CPU samples a second of a running thread.
    pub frequency: u32,
    /// How user stacks are seen.
    pub user_stack: UserStack,
    /// Sample stacks of threads that leave a CPU, where allowed.
    pub switch_stacks: bool,
    /// Sample page faults.
    pub page_faults: bool,
    /// Tell of mappings without code too.
    pub data_mappings: bool,
    /// No samples and no switches, only what processes do: another sampler takes the samples.
    pub sideband_only: bool,
    /// Data bytes of each ring, a power of two. `None`: by kind of stack and number of rings.
    pub ring_bytes: Option<usize>,
    /// Use at most so many descriptors instead of all that are allowed.
    pub descriptors: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            frequency: 999,
            user_stack: UserStack::Copy { bytes: 16 << 10 },
            switch_stacks: true,
            page_faults: true,
            data_mappings: false,
            sideband_only: false,
            ring_bytes: None,
            descriptors: None,
        }
    }
}

/// What one pass over the rings brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drained {
    /// When the pass began. Once the next pass is done, no record older than this can come
    /// ([`Merger::release`](super::Merger::release)).
    pub started_ns: u64,
    /// Records handed out.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes given up because a record's size was impossible.
    pub corrupt_bytes: u64,
}

/// The events of one target and the rings that their records come through. Dropping it closes them.
#[derive(Debug)]
pub struct Session {
    pub(super) plan: Plan,
    ids: EventIds,
    /// By ring number; `None`: closed, free for a new thread.
    pub(super) lanes: Vec<Option<Lane>>,
    watch: Watch,
    /// Counts of events that are closed.
    closed: Vec<EventCounts>,
    pub(super) granted: Granted,
    /// Descriptors that may be used, those for other things included.
    pub(super) allowed: u64,
    is_enabled: bool,
    thinned: Thinned,
    thinned_since_ns: Option<u64>,
}

/// How much of a session passed with stacks of one switch in [`THINNED_TO`](super::THINNED_TO).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Thinned {
    /// How often that began.
    pub times: u32,
    /// How long it was so, in nanoseconds.
    pub total_ns: u64,
}

/// Why a thread could not be attached.
pub(super) enum Stop {
    Gone,
    NoCpu,
    Descriptors(io::Error),
    Memory(io::Error),
    Denied(i32, io::Error),
    System(&'static str, io::Error),
}

impl Stop {
    fn at_open(pid: i32, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ESRCH) => Self::Gone,
            Some(libc::ENODEV) => Self::NoCpu,
            Some(libc::EMFILE | libc::ENFILE) => Self::Descriptors(error),
            Some(libc::EACCES | libc::EPERM | libc::ENOSYS) => Self::Denied(pid, error),
            _ => Self::System("perf_event_open", error),
        }
    }

    fn at_map(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::ENOMEM | libc::EAGAIN) => Self::Memory(error),
            _ => Self::System("mapping a ring buffer", error),
        }
    }

    pub(super) fn into_error(self, ring_bytes: usize) -> OpenError {
        match self {
            Self::Gone | Self::NoCpu => OpenError::TargetGone,
            Self::Descriptors(source) => OpenError::Descriptors { source },
            Self::Memory(source) => OpenError::RingMemory { bytes: ring_bytes, source },
            Self::Denied(pid, source) => match Refusal::explain(&source, pid) {
                Some(refusal) => OpenError::Refused(refusal),
                None => OpenError::System { step: "perf_event_open", source },
            },
            Self::System(step, source) => OpenError::System { step, source },
        }
    }
}

/// What became of a thread that was to be attached later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attached {
    /// It is recorded from now on.
    Now,
    /// It has already ended.
    Gone,
    /// No descriptors or ring memory are left: it is among [`Granted::unattached`].
    NoRoom,
}

impl Session {
    /// Opens events and rings for `targets`: as much as the host grants ([`Session::granted`]). The sideband of
    /// running targets is live from here on, so that no new thread is missed; sampling begins with
    /// [`Session::enable`], or at the exec of a [`Targets::Child`].
    ///
    /// Raises the soft limit of open files. A child that was forked before keeps its own.
    pub fn open(targets: Targets<'_>, settings: &Settings) -> Result<Self, OpenError> {
        let files = raise_open_files()
            .map_err(|source| OpenError::System { step: "reading the limit of open files", source })?;
        let pids = target_pids(targets);
        let cpus = online_cpus();
        if cpus.is_empty() {
            return Err(OpenError::UnknownCpus);
        }
        let wish = first_wish(targets, settings);
        let wanted = wanted_kinds(settings);
        let first_cpu = cpus.first().copied().unwrap_or(0);
        let plan = Plan::find(wish, &wanted, &pids, first_cpu).map_err(|failed| match failed {
            Failed::AllGone => OpenError::TargetGone,
            Failed::Kernel { pid, source } => Stop::at_open(pid, source).into_error(0),
        })?;
        let allowed = settings.descriptors.unwrap_or(u64::MAX).min(files.soft);
        let session = Self::empty(plan, settings, allowed)?;
        let mut opening = Opening { pids: &pids, cpus: &cpus, settings, session };
        opening.run()?;
        Ok(opening.session)
    }

    fn empty(plan: Plan, settings: &Settings, allowed: u64) -> Result<Self, OpenError> {
        let watch = Watch::new().map_err(|source| OpenError::System { step: "epoll_create", source })?;
        let closed = EventKind::ALL.map(|kind| EventCounts::none(kind, plan.wish.lost_counts)).to_vec();
        let granted = granted_by(&plan, settings);
        let (ids, lanes) = (EventIds::default(), Vec::new());
        Ok(Self {
            plan,
            ids,
            lanes,
            watch,
            closed,
            granted,
            allowed,
            is_enabled: false,
            thinned: Thinned::default(),
            thinned_since_ns: None,
        })
    }

    /// What the host granted.
    pub fn granted(&self) -> &Granted {
        &self.granted
    }

    /// A decoder of this session's records. It knows threads that are attached later too.
    pub fn decoder(&self) -> Decoder {
        let (max_stack, periods) = (self.granted.max_stack, self.plan.wish.periods());
        Decoder::new(self.ids.clone(), SampleShape { max_stack, periods })
    }

    /// Begins sampling. Not for a [`Targets::Child`], which begins by itself at its exec.
    pub fn enable(&mut self) -> io::Result<()> {
        self.is_enabled = true;
        let is_due = |event: &&Event| self.is_due(event.kind);
        self.all_events().filter(is_due).try_for_each(|event| sys::enable(&event.fd))
    }

    /// Ends sampling and the sideband. What is in the rings stays readable.
    pub fn disable(&mut self) -> io::Result<()> {
        self.is_enabled = false;
        self.thinned = self.thinned();
        self.thinned_since_ns = None;
        self.all_events().try_for_each(|event| sys::disable(&event.fd))
    }

    /// Takes the stacks of one switch in [`THINNED_TO`](super::THINNED_TO) from now on, or again of every one. Which
    /// one is taken goes by their number alone, not by how long the wait lasts that it begins. For a session that
    /// samples already; does nothing where switches have no stacks.
    ///
    /// Two events, for the kernel passes these two orders on to what a thread's children inherited; a new period
    /// (PERF_EVENT_IOC_PERIOD) it does not.
    pub fn thin_switches(&mut self, thin: bool) -> io::Result<()> {
        if thin == self.is_thinned() || !self.granted.switch_stacks {
            return Ok(());
        }
        if thin {
            self.thinned_since_ns = Some(sys::monotonic_ns());
            self.thinned.times += 1;
        } else {
            self.thinned = self.thinned();
            self.thinned_since_ns = None;
        }
        let (off, on) = if thin {
            (EventKind::Switch, EventKind::SwitchThinned)
        } else {
            (EventKind::SwitchThinned, EventKind::Switch)
        };
        let of = |kind| self.all_events().filter(move |event| event.kind == kind);
        of(off).try_for_each(|event| sys::disable(&event.fd))?;
        of(on).try_for_each(|event| sys::enable(&event.fd))
    }

    /// Whether the stacks of only some switches are taken now.
    pub fn is_thinned(&self) -> bool {
        self.thinned_since_ns.is_some()
    }

    /// How much of the session so far passed so.
    pub fn thinned(&self) -> Thinned {
        let running_ns = self.thinned_since_ns.map_or(0, |since| sys::monotonic_ns().saturating_sub(since));
        Thinned { total_ns: self.thinned.total_ns + running_ns, ..self.thinned }
    }

    /// Waits until a ring is full enough to be worth a pass, at most `timeout`. False: nothing was seen, but there can
    /// still be records. Notices the end of threads, too.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<bool> {
        let mut seen = self.watch.wait(timeout)?;
        let was_seen = !seen.is_empty();
        // An ended event gives its place to the next thread's, which may have ended too.
        while seen.iter().any(|seen| seen.ended) {
            for number in seen.iter().filter(|seen| seen.ended).map(|seen| seen.number as usize) {
                if let Some(Some(lane)) = self.lanes.get_mut(number) {
                    lane.watch_next(number, &self.watch);
                }
            }
            seen = self.watch.wait(Duration::ZERO)?;
        }
        Ok(was_seen)
    }

    /// All recorded threads have ended. Known only from [`Session::wait`]; drain once more after it.
    pub fn is_over(&self) -> bool {
        self.lanes.iter().flatten().all(|lane| lane.is_over)
    }

    /// Hands every record that is in the rings now to `sink`, with its ring's number: whole records, in the order of
    /// each ring.
    pub fn drain(&mut self, sink: &mut impl FnMut(usize, &[u8])) -> Drained {
        let mut drained = Drained { started_ns: sys::monotonic_ns(), records: 0, bytes: 0, corrupt_bytes: 0 };
        for (number, slot) in self.lanes.iter_mut().enumerate() {
            let Some(lane) = slot else { continue };
            let pass = lane.ring.drain(&mut |record| sink(number, record));
            drained.records += pass.records;
            drained.bytes += pass.bytes;
            drained.corrupt_bytes += pass.corrupt_bytes;
            if lane.is_over && self.granted.layout == RingLayout::PerThread {
                // Thousands of short threads must not hold thousands of rings.
                lane.events().iter().for_each(|event| add_counts(&mut self.closed, event));
                *slot = None;
            }
        }
        drained
    }

    /// Rings that are open now.
    pub fn open_rings(&self) -> usize {
        self.lanes.iter().flatten().count()
    }

    /// What the events counted so far, one row for each kind that was opened.
    pub fn counts(&self) -> Vec<EventCounts> {
        let mut counts = self.closed.clone();
        self.all_events().for_each(|event| add_counts(&mut counts, event));
        counts.retain(|row| self.plan.kinds.contains(&row.kind));
        counts
    }

    /// Attaches one more thread, and what it makes from now on. In [`RingLayout::PerThread`] every thread needs it
    /// whose FORK record comes; in [`RingLayout::PerCpu`] only threads that nothing else brought in, or they are
    /// counted twice.
    pub fn add_thread(&mut self, tid: u32) -> Result<Attached, OpenError> {
        match self.attach(tid.cast_signed()) {
            Ok(()) => Ok(Attached::Now),
            Err(Stop::Gone) => Ok(Attached::Gone),
            Err(Stop::Memory(_) | Stop::Descriptors(_)) => {
                self.granted.add_unattached(tid);
                Ok(Attached::NoRoom)
            }
            Err(stop) => Err(stop.into_error(self.granted.ring_bytes)),
        }
    }

    pub(super) fn set_ring_bytes(&mut self, bytes: usize) {
        self.granted.ring_bytes = bytes;
        // A quarter leaves the reader the time in which three quarters fill.
        self.plan.wish.watermark = u32::try_from(bytes / 4).unwrap_or(u32::MAX);
    }

    /// Closes everything, to begin anew.
    pub(super) fn close_all(&mut self) {
        self.lanes.clear();
        (self.granted.attached, self.granted.gone) = (0, 0);
        self.granted.forget_unattached();
    }

    fn all_events(&self) -> impl Iterator<Item = &Event> {
        self.lanes.iter().flatten().flat_map(|lane| lane.events())
    }

    fn attach(&mut self, pid: i32) -> Result<(), Stop> {
        let kinds = self.plan.kinds.clone();
        match self.granted.layout {
            RingLayout::PerCpu => {
                let numbers: Vec<usize> = (0..self.lanes.len()).collect();
                self.open_events(pid, &numbers, &kinds)
            }
            RingLayout::PerThread => self.attach_alone(pid, &kinds),
        }
    }

    pub(super) fn attach_alone(&mut self, pid: i32, kinds: &[EventKind]) -> Result<(), Stop> {
        let used = self.open_rings() * kinds.len();
        if (used + kinds.len()) as u64 + OTHER_DESCRIPTORS > self.allowed {
            return Err(Stop::Descriptors(io::Error::from_raw_os_error(libc::EMFILE)));
        }
        let number = self.add_lane(pid, -1)?;
        let samplers = samplers(kinds);
        let opened = self.open_events(pid, &[number], &samplers).and_then(|()| self.start_lanes(&[number]));
        if opened.is_err()
            && let Some(slot) = self.lanes.get_mut(number)
        {
            *slot = None;
        }
        opened
    }

    /// Opens the sideband of `pid` on `cpu`, still disabled, with a ring of its own. Gives the ring's number.
    pub(super) fn add_lane(&mut self, pid: i32, cpu: i32) -> Result<usize, Stop> {
        let owner = self.open_event(EventKind::Sideband, pid, cpu)?;
        let pages = RingPages::map(&owner.fd, self.granted.ring_bytes).map_err(Stop::at_map)?;
        let number = self.lanes.iter().position(Option::is_none).unwrap_or(self.lanes.len());
        self.watch.add(&owner.fd, number as u64).map_err(|e| Stop::System("epoll_ctl", e))?;
        let lane = Some(Lane::new(cpu, owner, Ring::new(pages)));
        match self.lanes.get_mut(number) {
            Some(slot) => *slot = lane,
            None => self.lanes.push(lane),
        }
        Ok(number)
    }

    /// Opens one event of each kind on each lane's CPU: all of them, or none.
    pub(super) fn open_events(
        &mut self,
        pid: i32,
        numbers: &[usize],
        kinds: &[EventKind],
    ) -> Result<(), Stop> {
        let mut opened = Vec::new();
        for &kind in kinds {
            for &number in numbers {
                let Some(Some(lane)) = self.lanes.get(number) else { continue };
                let event = match self.open_event(kind, pid, lane.cpu) {
                    Err(Stop::NoCpu) => continue,
                    event => event?,
                };
                if let Some(owner) = lane.events().first() {
                    sys::redirect(&event.fd, &owner.fd)
                        .map_err(|e| Stop::System("joining a ring buffer", e))?;
                }
                opened.push((number, event));
            }
        }
        for (number, event) in opened {
            self.start(&event)?;
            if let Some(Some(lane)) = self.lanes.get_mut(number) {
                lane.add(event, number, &self.watch);
            }
        }
        Ok(())
    }

    fn open_event(&self, kind: EventKind, pid: i32, cpu: i32) -> Result<Event, Stop> {
        let fd = sys::open_event(&self.plan.wish.attr(kind), pid, cpu).map_err(|e| Stop::at_open(pid, e))?;
        let event = Event::new(fd, kind).map_err(|e| Stop::System("reading an event's id", e))?;
        self.ids.insert(event.id, kind);
        Ok(event)
    }

    /// Starts an event that should run by now: the sideband always, samplers once they are enabled.
    fn start(&self, event: &Event) -> Result<(), Stop> {
        if self.is_due(event.kind) && !self.plan.wish.enable_on_exec {
            sys::enable(&event.fd).map_err(|e| Stop::System("enabling an event", e))?;
        }
        Ok(())
    }

    fn is_due(&self, kind: EventKind) -> bool {
        match kind {
            EventKind::Sideband => true,
            EventKind::Switch => self.is_enabled && !self.is_thinned(),
            EventKind::SwitchThinned => self.is_enabled && self.is_thinned(),
            EventKind::Cpu | EventKind::PageFault => self.is_enabled,
        }
    }

    pub(super) fn start_lanes(&self, numbers: &[usize]) -> Result<(), Stop> {
        let lanes = numbers.iter().filter_map(|&number| self.lanes.get(number)?.as_ref());
        lanes.filter_map(|lane| lane.events().first()).try_for_each(|owner| self.start(owner))
    }
}

fn add_counts(counts: &mut [EventCounts], event: &Event) {
    if let Some(row) = counts.iter_mut().find(|row| row.kind == event.kind) {
        event.add_counts(row);
    }
}
