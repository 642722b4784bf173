//! Opening a session within the host's limits: descriptors decide how rings are laid out, locked memory how big they
//! are. Each limit is found by running into it.

use super::access::{paranoid, setting};
use super::attr::{MAX_STACK_COPY, Wish, stack_copy_bytes};
use super::error::OpenError;
use super::event::EventKind;
use super::granted::{Granted, Limitation, RingLayout};
use super::plan::Plan;
use super::session::{Session, Settings, Stop, Targets, UserStack};
use super::sys::page_bytes;

/// All rings together, where the host allows it.
const ALL_RINGS_BYTES: usize = 64 << 20;

/// Descriptors that uhr needs for other things.
pub(super) const OTHER_DESCRIPTORS: u64 = 128;

/// A session that is being opened.
pub(super) struct Opening<'a> {
    pub(super) pids: &'a [i32],
    pub(super) cpus: &'a [i32],
    pub(super) settings: &'a Settings,
    pub(super) session: Session,
}

impl Opening<'_> {
    /// Opens everything, smaller or laid out otherwise where a limit is met.
    pub(super) fn run(&mut self) -> Result<(), OpenError> {
        if self.needed() + OTHER_DESCRIPTORS > self.session.allowed {
            self.lay_out_per_thread();
        }
        let mut wished = self.wished_bytes();
        self.session.set_ring_bytes(wished);
        loop {
            let stop = match self.attach_all() {
                Ok(()) => break,
                Err(stop) => stop,
            };
            let bytes = self.session.granted.ring_bytes;
            match stop {
                Stop::Memory(_) if bytes / 2 >= self.least_bytes() => self.session.set_ring_bytes(bytes / 2),
                Stop::Descriptors(_) if self.lay_out_per_thread() => {
                    wished = self.wished_bytes();
                    self.session.set_ring_bytes(wished);
                }
                stop => return Err(stop.into_error(bytes)),
            }
            self.session.close_all();
        }
        self.state_limits(wished);
        Ok(())
    }

    /// Descriptors of one ring a CPU.
    fn needed(&self) -> u64 {
        (self.pids.len() * self.cpus.len() * self.session.plan.kinds.len()) as u64
    }

    /// Changes to one ring a thread, if that is another layout and possible: the whole machine and a child that is
    /// still to make its threads cannot be followed so.
    fn lay_out_per_thread(&mut self) -> bool {
        let wish = &mut self.session.plan.wish;
        if self.session.granted.layout == RingLayout::PerThread || wish.whole_machine || wish.enable_on_exec {
            return false;
        }
        // The kernel cannot map a ring of an event that is inherited and on any CPU.
        wish.inherit = false;
        self.session.granted.layout = RingLayout::PerThread;
        let (needed, allowed) = (self.needed(), self.session.allowed);
        self.session.granted.limitations.push(Limitation::PerThread { needed, allowed });
        true
    }

    fn wished_bytes(&self) -> usize {
        let (rings, most) = match (self.session.granted.layout, self.session.plan.wish.user_stack) {
            (RingLayout::PerThread, _) => (self.pids.len(), 512 << 10),
            (RingLayout::PerCpu, UserStack::FramePointers) => (self.cpus.len(), 2 << 20),
            (RingLayout::PerCpu, UserStack::Copy { .. }) => (self.cpus.len(), 8 << 20),
        };
        let fair = (ALL_RINGS_BYTES / rings.max(1)).max(1);
        let fair = fair.next_power_of_two() >> usize::from(!fair.is_power_of_two());
        let wished =
            self.settings.ring_bytes.map_or(fair.min(most), |bytes| bytes.max(1).next_power_of_two());
        wished.max(self.least_bytes())
    }

    /// The smallest ring that is of any use: one sample must fit.
    fn least_bytes(&self) -> usize {
        match self.session.plan.wish.user_stack {
            UserStack::FramePointers => 2 * page_bytes(),
            UserStack::Copy { bytes } => {
                (stack_copy_bytes(bytes) as usize + page_bytes()).next_power_of_two()
            }
        }
    }

    fn attach_all(&mut self) -> Result<(), Stop> {
        match self.session.granted.layout {
            RingLayout::PerCpu => self.attach_by_cpu(),
            RingLayout::PerThread => self.attach_by_thread(),
        }
    }

    fn attach_by_cpu(&mut self) -> Result<(), Stop> {
        let kinds = self.session.plan.kinds.clone();
        let mut rest = self.pids.iter();
        // The sideband of the first living thread carries the rings.
        loop {
            let &pid = rest.next().ok_or(Stop::Gone)?;
            match self.attach_first(pid, &kinds) {
                Err(Stop::Gone) => {
                    self.session.granted.gone += 1;
                    self.session.lanes.clear();
                }
                result => break result?,
            }
        }
        self.session.granted.attached += 1;
        let numbers: Vec<usize> = (0..self.session.lanes.len()).collect();
        for &pid in rest {
            match self.session.open_events(pid, &numbers, &kinds) {
                Err(Stop::Gone) => self.session.granted.gone += 1,
                result => {
                    result?;
                    self.session.granted.attached += 1;
                }
            }
        }
        Ok(())
    }

    fn attach_first(&mut self, pid: i32, kinds: &[EventKind]) -> Result<(), Stop> {
        let mut numbers = Vec::new();
        for &cpu in self.cpus {
            match self.session.add_lane(pid, cpu) {
                // The CPU went offline.
                Err(Stop::NoCpu) => {}
                number => numbers.push(number?),
            }
        }
        if numbers.is_empty() {
            return Err(Stop::NoCpu);
        }
        self.session.open_events(pid, &numbers, &samplers(kinds))?;
        self.session.start_lanes(&numbers)
    }

    fn attach_by_thread(&mut self) -> Result<(), Stop> {
        let kinds = self.session.plan.kinds.clone();
        let mut no_room = None;
        for &pid in self.pids {
            match self.session.attach_alone(pid, &kinds) {
                Ok(()) => self.session.granted.attached += 1,
                Err(Stop::Gone) => self.session.granted.gone += 1,
                // Smaller rings may do for all.
                Err(stop @ Stop::Memory(_)) if self.session.granted.ring_bytes / 2 >= self.least_bytes() => {
                    return Err(stop);
                }
                Err(stop @ (Stop::Memory(_) | Stop::Descriptors(_))) => {
                    self.session.granted.add_unattached(pid.cast_unsigned());
                    no_room = Some(stop);
                }
                Err(stop) => return Err(stop),
            }
        }
        match (self.session.granted.attached, no_room) {
            (0, Some(stop)) => Err(stop),
            (0, None) => Err(Stop::Gone),
            _ => Ok(()),
        }
    }

    fn state_limits(&mut self, wished: usize) {
        let rings = self.session.open_rings();
        let granted = &mut self.session.granted;
        granted.rings = rings;
        // An ordinary user's half or quarter still holds what a reader leaves there in its longest pause.
        if granted.ring_bytes * 8 <= wished {
            let bytes = granted.ring_bytes;
            granted.limitations.push(Limitation::RingsShrunk { wished, bytes });
        }
    }
}

/// The kinds without the sideband.
pub(super) fn samplers(kinds: &[EventKind]) -> Vec<EventKind> {
    kinds.iter().copied().filter(|&kind| kind != EventKind::Sideband).collect()
}

/// The threads as the kernel names them; -1 is all.
pub(super) fn target_pids(targets: Targets<'_>) -> Vec<i32> {
    match targets {
        Targets::Child { pid } => vec![pid.cast_signed()],
        // 0 and negative numbers have other meanings for the kernel.
        Targets::Threads(tids) => tids.iter().map(|tid| tid.cast_signed()).filter(|&tid| tid > 0).collect(),
        Targets::WholeMachine => vec![-1],
    }
}

/// Everything that could be granted.
///
/// CPU samples keep to half of the host's limit. The kernel counts them by tick and stops an event until the next tick
/// as soon as it *reaches* its share: with a limit of 500, asking for 500 gave 78 % of the samples, for 250 all.
pub(super) fn first_wish(targets: Targets<'_>, settings: &Settings) -> Wish {
    let whole_machine = matches!(targets, Targets::WholeMachine);
    let max_frequency = setting("perf_event_max_sample_rate").unwrap_or(u32::MAX).max(1);
    Wish {
        frequency: settings.frequency.min(max_frequency / 2).max(1),
        max_frequency,
        user_stack: settings.user_stack,
        data_mappings: settings.data_mappings,
        switches: !settings.sideband_only,
        inherit: !whole_machine,
        enable_on_exec: matches!(targets, Targets::Child { .. }),
        whole_machine,
        kernel_visible: true,
        build_ids: true,
        lost_counts: true,
        watermark: 0,
    }
}

/// The kinds that are asked for, the sideband last.
pub(super) fn wanted_kinds(settings: &Settings) -> Vec<EventKind> {
    if settings.sideband_only {
        return vec![EventKind::Sideband];
    }
    let mut kinds = vec![EventKind::Cpu];
    kinds.extend(settings.page_faults.then_some(EventKind::PageFault));
    if settings.switch_stacks {
        kinds.extend([EventKind::Switch, EventKind::SwitchThinned]);
    }
    kinds.push(EventKind::Sideband);
    kinds
}

/// What the plan amounts to, before threads are attached.
pub(super) fn granted_by(plan: &Plan, settings: &Settings) -> Granted {
    let (wish, paranoid) = (&plan.wish, paranoid());
    let switch_stacks = plan.kinds.contains(&EventKind::Switch);
    let mut limitations = Vec::new();
    if !wish.kernel_visible {
        limitations.push(Limitation::KernelHidden { paranoid });
    }
    if settings.switch_stacks && !settings.sideband_only && !switch_stacks {
        limitations.push(Limitation::SwitchStacksHidden { paranoid });
    }
    if wish.frequency < settings.frequency {
        let (asked, used, limit) = (settings.frequency, wish.frequency, wish.max_frequency);
        limitations.push(Limitation::FrequencyLowered { asked, used, limit });
    }
    if !wish.build_ids {
        limitations.push(Limitation::NoBuildIds);
    }
    if !wish.lost_counts {
        limitations.push(Limitation::NoLostCounts);
    }
    Granted {
        kernel_visible: wish.kernel_visible,
        switch_stacks,
        page_faults: plan.kinds.contains(&EventKind::PageFault),
        build_ids: wish.build_ids,
        lost_counts: wish.lost_counts,
        layout: RingLayout::PerCpu,
        rings: 0,
        ring_bytes: 0,
        frequency: wish.frequency,
        faults_a_sample: wish.periods().page_faults,
        stack_copy_bytes: match wish.user_stack {
            UserStack::FramePointers => 0,
            UserStack::Copy { bytes } => stack_copy_bytes(bytes).min(MAX_STACK_COPY),
        },
        max_stack: setting("perf_event_max_stack").unwrap_or(127),
        paranoid,
        attached: 0,
        gone: 0,
        unattached: Vec::new(),
        limitations,
    }
}
