//! Loads the programs, attaches them, and reads what they tell.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, IntoRawFd};
use std::time::{Duration, Instant};

use libbpf_rs::{Iter, Link, MapCore, MapFlags, Object};

use crate::abi;
use crate::calls::{Counter, Counting};
use crate::clock::{Source, set_period};
use crate::cost::{Meter, ProgramCost};
use crate::counters::Counters;
use crate::error::LoadError;
use crate::loading::{Loaded, load};
use crate::options::{Options, Scope};
use crate::outside::Outside;
use crate::probe;
use crate::programs::Programs;
use crate::ring::Ring;
use crate::tables::Tables;

/// The running sampler. Dropping it leaves nothing behind: programs, maps and events live as long as its descriptors.
#[derive(Debug)]
pub struct Sampler {
    // Order matters on drop: what is attached goes before the programs.
    links: Vec<Link>,
    look: Option<Link>,
    tell_times: Option<Link>,
    mark: Option<Link>,
    /// Takes out what is kept for tasks that are over, where the kernel does not; as long as anything is asked for.
    free: Option<Link>,
    /// Threads that there had been no memory for when targets were last marked.
    unmarked: u64,
    object: Object,
    /// Of stacks, and of everything else.
    rings: [Ring; RINGS],
    /// The clocks of the CPUs.
    clocks: Vec<File>,
    meter: Meter,
    pub(crate) counter: Counter,
    /// What marks uhr's own calls that measure what counting costs.
    pub(crate) calibration: u64,
    /// What the clock of waits was last set to: its period, and the share of the lot.
    waits: (u64, u32),
    since_ns: u64,
    next_window: Instant,
    missing: Vec<(String, String)>,
    walks_by_rows: bool,
    /// Reads stacks of waits where the programs cannot.
    outside: Option<Outside>,
}

/// Rings that events come through.
pub const RINGS: usize = 2;
/// The one of stacks.
const STACKS: usize = 0;

impl Sampler {
    /// Loads the programs for `options` and attaches them. Sampling has begun when this returns.
    ///
    /// # Errors
    /// [`LoadError`]: nothing stays attached then.
    pub fn start(options: &Options) -> Result<Self, LoadError> {
        probe::check_rights()?;
        let Loaded { object, programs, missing, walks_by_rows } = load(options)?;
        let ring = |(name, bytes): (&str, u32)| {
            let map = object.maps().find(|map| map.name() == name);
            let map = map.ok_or_else(|| LoadError::at("finding the ring")(io::ErrorKind::NotFound.into()))?;
            Ring::open(map.as_fd(), bytes as usize).map_err(LoadError::at("mapping the ring buffer"))
        };
        let [stacks, events] = options.rings().map(ring);
        let rings = [stacks?, events?];
        let mut sampler = Self {
            links: Vec::new(),
            look: None,
            tell_times: None,
            mark: None,
            free: None,
            unmarked: 0,
            object,
            rings,
            clocks: Vec::new(),
            meter: Meter::default(),
            counter: Counter::default(),
            calibration: options.calibration,
            waits: (0, 0),
            since_ns: 0,
            next_window: Instant::now(),
            missing,
            walks_by_rows,
            outside: (programs == Programs::Older).then(|| Outside::new(options.copy_bytes)),
        };
        sampler.attach_tasks(options)?;
        sampler.attach_events(options)?;
        Ok(sampler)
    }

    /// Since when threads are added up, in nanoseconds of CLOCK_MONOTONIC.
    pub fn since_ns(&self) -> u64 {
        self.since_ns
    }

    /// Whether stacks are walked by rows in the kernel.
    pub fn walks_by_rows(&self) -> bool {
        self.walks_by_rows
    }

    /// What the walker goes by, to be filled. They serve as long as the sampler runs.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn tables(&self) -> io::Result<Tables> {
        Tables::of(&self.object)
    }

    /// Programs that this kernel did not take, each with the reason.
    pub fn missing(&self) -> &[(String, String)] {
        &self.missing
    }

    /// Whether the stacks of waits can be taken.
    pub fn can_look(&self) -> bool {
        self.look.is_some()
    }

    fn attach_tasks(&mut self, options: &Options) -> Result<(), LoadError> {
        // Who is made from now on is followed, and only then those are marked who are there; what was made during one pass
        // by a thread that the pass had not reached is found by the next.
        self.free = self.has("on_free").then(|| self.attach("on_free")).transpose()?;
        for name in ["on_fork", "on_rename", "on_switch", "on_waking"] {
            let link = self.attach(name)?;
            self.links.push(link);
        }
        let marks: Vec<(u32, u32)> = match &options.scope {
            Scope::Command { pid } => vec![(*pid, 2)],
            // Some of them may have been made while the programs were loaded.
            Scope::Processes(pids) => {
                (options.family)(pids.clone()).into_iter().map(|pid| (pid, 1)).collect()
            }
            Scope::Cgroup { .. } | Scope::Machine => Vec::new(),
        };
        for (pid, how) in marks {
            self.update("wanted", &pid.to_ne_bytes(), &how.to_ne_bytes())
                .map_err(LoadError::at("naming the targets"))?;
        }
        let mark = self.attach("mark")?;
        self.attach_calls(options)?;
        self.since_ns = monotonic_ns();
        self.counter.is_always = options.counting == Counting::Always;
        self.counter.is_on = self.counter.is_always;
        self.turn().map_err(LoadError::at("setting the start"))?;
        for _ in 0..2 {
            run_iterator(&mark).map_err(LoadError::at("marking the targets"))?;
        }
        self.mark = Some(mark);
        self.tell_times = Some(self.attach("tell_times")?);
        self.look = self.attach("look").ok();
        Ok(())
    }

    /// What counts system calls all the time; of windows only what tells their sums.
    fn attach_calls(&mut self, options: &Options) -> Result<(), LoadError> {
        let is_optional = options.counting == Counting::InWindows;
        let names: &[&'static str] = match options.counting {
            Counting::InWindows => &["on_last_call"],
            Counting::Always => &["on_last_call", "on_exit", "on_enter"],
        };
        let links = names.iter().map(|name| self.attach(name)).collect::<Result<Vec<_>, _>>();
        match links.and_then(|links| Ok((links, self.attach("tell_calls")?))) {
            Ok((links, tell)) => {
                self.links.extend(links);
                self.counter.tell = Some(tell);
                Ok(())
            }
            Err(_) if is_optional => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn attach_events(&mut self, options: &Options) -> Result<(), LoadError> {
        let period_ns = 1_000_000_000 / u64::from(options.frequency.max(1));
        let wanted = [
            ("on_tick", Source::Clock { period_ns }),
            ("on_fault", Source::MinorFaults { period: options.fault_period }),
            ("on_major_fault", Source::MajorFaults),
        ];
        for (name, source) in wanted {
            for &cpu in &options.cpus {
                let event = match source.open(cpu) {
                    Ok(event) => event,
                    // The CPU went offline.
                    Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
                    Err(error) => return Err(LoadError::at("perf_event_open")(error)),
                };
                if matches!(source, Source::Clock { .. }) {
                    self.clocks.extend(event.try_clone());
                }
                self.attach_event(name, event)?;
            }
        }
        Ok(())
    }

    fn attach_event(&mut self, name: &'static str, event: File) -> Result<(), LoadError> {
        let Some(program) =
            self.object.progs_mut().find(|program| program.name() == name && program.autoload())
        else {
            return Ok(());
        };
        // libbpf closes the descriptor with the link.
        let link = program
            .attach_perf_event(event.into_raw_fd())
            .map_err(LoadError::bpf("attaching a program to a perf event"))?;
        self.links.push(link);
        Ok(())
    }

    fn has(&self, name: &str) -> bool {
        self.object.progs().any(|program| program.name() == name)
    }

    pub(crate) fn attach(&self, name: &'static str) -> Result<Link, LoadError> {
        let missing =
            || LoadError::Unsupported { program: name.to_owned(), reason: "it was not loaded".to_owned() };
        let program = self.object.progs_mut().find(|program| program.name() == name && program.autoload());
        program
            .ok_or_else(missing)?
            .attach()
            .map_err(|error| LoadError::Unsupported { program: name.to_owned(), reason: error.to_string() })
    }

    /// Looks once at the threads that wait, as the clock of waits, whose mean period is `period_ns`. From now on one wait
    /// in so many (`lot`, a share) has its stack taken as it begins. Says whether it came to the last thread; if not, the
    /// next look goes on there.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn look(&mut self, period_ns: u64, lot: f64) -> io::Result<bool> {
        let Some(look) = &self.look else { return Ok(true) };
        self.waits = (period_ns, (lot.clamp(0.0, 1.0) * f64::from(u32::MAX)) as u32);
        self.turn()?;
        run_iterator(look)?;
        if let Some(outside) = &mut self.outside {
            self.rings[STACKS].drain(&mut |event| outside.take(event));
        }
        let place = self.map(".data.cursor");
        let place = place.and_then(|map| map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten());
        let cursor = place.as_deref().and_then(abi::read::<abi::Cursor>);
        Ok(cursor.is_none_or(|(cursor, _)| cursor.next == 0))
    }

    /// Sets what the programs go by.
    pub(crate) fn turn(&self) -> io::Result<()> {
        self.turn_from(self.since_ns)
    }

    /// The same; what threads do that are marked now, they have done since `start_ns`.
    fn turn_from(&self, start_ns: u64) -> io::Result<()> {
        let (period_ns, share) = self.waits;
        let counting = if self.counter.is_on { self.counter.windows.max(1) } else { 0 };
        let pass_ns = monotonic_ns();
        let dial = abi::Dial { start_ns, period_ns, pass_ns, taken: 0, share, counting, unused: 0 };
        self.update(".data.dial", &0_u32.to_ne_bytes(), abi::bytes(&dial))
    }

    /// Programs that the kernel did not run on some occasions, because they were at work on that CPU already, and how many.
    pub fn left_out(&self) -> impl Iterator<Item = (String, u64)> {
        let programs = self.object.progs().filter(libbpf_rs::ProgramImpl::autoload);
        programs.filter_map(|program| {
            let stats = probe::run_stats(program.as_fd()).filter(|stats| stats.left_out > 0)?;
            Some((program.name().to_string_lossy().into_owned(), stats.left_out))
        })
    }

    /// Makes targets of the threads that were not when they began. In a burst of new threads the kernel can run out of
    /// the memory that it keeps ready.
    fn mark_late(&mut self) -> io::Result<()> {
        let left_out = self.left_out().find(|(program, _)| program == "on_fork");
        let unmarked = self.counters().no_storage + left_out.map_or(0, |(_, count)| count);
        if let Some(mark) = self.mark.as_ref().filter(|_| unmarked > self.unmarked) {
            self.turn_from(monotonic_ns())?;
            run_iterator(mark)?;
            self.turn()?;
        }
        self.unmarked = unmarked;
        Ok(())
    }

    /// Makes the programs tell the sums of all threads that did something since the last time.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn tell_times(&mut self) -> io::Result<()> {
        self.mark_late()?;
        self.tell_times.as_ref().map_or(Ok(()), run_iterator)
    }

    /// Lets the clocks of the CPUs tick so often a second from now on; each sample says with which period it was taken.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn set_frequency(&self, hertz: u32) -> io::Result<()> {
        self.clocks.iter().try_for_each(|clock| set_period(clock, 1_000_000_000 / u64::from(hertz.max(1))))
    }

    /// Detaches what samples and what sums. Sums can still be told, and events read.
    pub fn stop(&mut self) {
        self.meter.end(&self.object);
        self.links.clear();
        self.clocks.clear();
        if self.counter.window.is_none() {
            self.counter.is_on = false;
            let _ = self.turn();
        }
    }

    /// Bytes of events that are there.
    pub fn waiting_bytes(&self) -> usize {
        self.rings.iter().map(Ring::waiting_bytes).sum()
    }

    /// Hands out the events that are there, each with the number of its ring, of [`RINGS`].
    pub fn drain(&mut self, sink: &mut dyn FnMut(usize, &[u8])) {
        if let Some(outside) = &mut self.outside {
            outside.hand_out(&mut |event| sink(STACKS, event));
        }
        for (number, ring) in self.rings.iter_mut().enumerate() {
            ring.drain(&mut |event| sink(number, event));
        }
    }

    /// What the programs counted.
    pub fn counters(&self) -> Counters {
        let values = self
            .map("counters")
            .and_then(|map| map.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten());
        Counters::of_cpus(&values.unwrap_or_default())
    }

    /// Lets the kernel measure the programs for a moment, now and then: `length` in every `distance`. To be called often.
    pub fn measure(&mut self, length: Duration, distance: Duration) {
        if self.meter.window().is_some_and(|open| open >= length) {
            self.meter.end(&self.object);
            self.next_window = Instant::now() + distance;
        } else if self.meter.window().is_none() && Instant::now() >= self.next_window {
            // Without CAP_SYS_ADMIN the kernel refuses, and the cost stays unknown.
            let _ = self.meter.begin(&self.object);
            self.next_window = Instant::now() + distance;
        }
    }

    /// Of waits that the clock met, where their stacks are read from outside: those that were read too late, and those that
    /// may not be read.
    pub fn unread(&self) -> (u64, u64) {
        self.outside.as_ref().map_or((0, 0), |outside| (outside.late, outside.refused))
    }

    /// What each program cost while it was measured, and how long that was in all. `None`: it never was.
    pub fn costs(&self) -> Option<(Vec<ProgramCost>, Duration)> {
        self.meter.costs().map(|(costs, measured)| (costs.to_vec(), measured))
    }

    fn map(&self, name: &str) -> Option<libbpf_rs::Map<'_>> {
        self.object.maps().find(|map| map.name() == name)
    }

    fn update(&self, map: &str, key: &[u8], value: &[u8]) -> io::Result<()> {
        let map = self.map(map).ok_or(io::ErrorKind::NotFound)?;
        map.update(key, value, MapFlags::ANY).map_err(|error| io::Error::other(error.to_string()))
    }
}

/// Reads an iterator to its end, which makes its program run for every task.
pub(crate) fn run_iterator(link: &Link) -> io::Result<()> {
    let mut iterator = Iter::new(link).map_err(|error| io::Error::other(error.to_string()))?;
    let mut nothing = [0; 64];
    while iterator.read(&mut nothing)? > 0 {}
    Ok(())
}

pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to a live timespec; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
