//! What the kernel is asked for: the attributes of each event.

use perf_event_open_sys::bindings as b;

use super::event::EventKind;
use super::session::UserStack;

/// The largest stack copy that a record can hold with everything else; the kernel refuses 65,528 and more.
pub(super) const MAX_STACK_COPY: u32 = 65_520;

/// The most samples of page faults, and of switches, a second where stacks are cheap (about 140 bytes in the ring).
/// The kernel steers the distance between samples badly for a few of them: a burst of 20,000 faults gave 9 samples at
/// 1,000 a second and 124, evenly spread, at 4,000.
const BURST_FREQUENCY: u32 = 4_000;

/// bp, sp, ip: all that unwinding by `.eh_frame` rows needs on x86-64. Their values come in this order.
const USER_REGISTERS: u64 = 1 << b::PERF_REG_X86_BP | 1 << b::PERF_REG_X86_SP | 1 << b::PERF_REG_X86_IP;

/// Everything that decides the attributes. Found by trying (see `plan.rs`).
#[derive(Clone, Debug)]
pub(super) struct Wish {
    /// Samples a second.
    pub(super) frequency: u32,
    /// The most that the host allows.
    pub(super) max_frequency: u32,
    pub(super) user_stack: UserStack,
    pub(super) data_mappings: bool,
    /// Children of the thread get the events too. Impossible together with "any CPU".
    pub(super) inherit: bool,
    /// Begin when the thread executes a program.
    pub(super) enable_on_exec: bool,
    pub(super) whole_machine: bool,
    pub(super) kernel_visible: bool,
    /// Linux 5.12.
    pub(super) build_ids: bool,
    /// Linux 6.0.
    pub(super) lost_counts: bool,
    /// Wake the reader when so many bytes wait in the ring.
    pub(super) watermark: u32,
}

impl Wish {
    /// The attributes of one event. All share the clock and the leading fields of records, so that they can share a
    /// ring and a record's time is found without knowing its event.
    pub(super) fn attr(&self, kind: EventKind) -> b::perf_event_attr {
        let mut attr = b::perf_event_attr {
            type_: b::PERF_TYPE_SOFTWARE,
            size: size_of::<b::perf_event_attr>() as u32,
            sample_type: self.sample_type(kind),
            read_format: self.read_format(),
            clockid: libc::CLOCK_MONOTONIC,
            ..b::perf_event_attr::default()
        };
        attr.set_disabled(1);
        attr.set_inherit(u64::from(self.inherit));
        attr.set_enable_on_exec(u64::from(self.enable_on_exec));
        attr.set_use_clockid(1);
        attr.set_sample_id_all(1);
        attr.set_exclude_hv(1);
        attr.set_exclude_guest(1);
        attr.set_exclude_kernel(u64::from(!self.kernel_visible));
        attr.set_exclude_callchain_kernel(u64::from(!self.kernel_visible));
        // Wake the reader by bytes: a wake-up for each record would cost more than the record.
        attr.set_watermark(1);
        attr.__bindgen_anon_2.wakeup_watermark = self.watermark;
        if kind == EventKind::Sideband {
            self.set_sideband(&mut attr);
        } else {
            self.set_user_stack(&mut attr);
        }
        self.set_rate(kind, &mut attr);
        attr
    }

    fn sample_type(&self, kind: EventKind) -> u64 {
        let everywhere = b::PERF_SAMPLE_IDENTIFIER
            | b::PERF_SAMPLE_IP
            | b::PERF_SAMPLE_TID
            | b::PERF_SAMPLE_TIME
            | b::PERF_SAMPLE_CPU
            | b::PERF_SAMPLE_PERIOD
            | b::PERF_SAMPLE_CALLCHAIN;
        let more = match kind {
            EventKind::Cpu | EventKind::Sideband => 0,
            EventKind::Switch => b::PERF_SAMPLE_STREAM_ID,
            EventKind::PageFault => b::PERF_SAMPLE_STREAM_ID | b::PERF_SAMPLE_ADDR,
        };
        u64::from(everywhere | more)
    }

    fn read_format(&self) -> u64 {
        let times = b::PERF_FORMAT_TOTAL_TIME_ENABLED | b::PERF_FORMAT_TOTAL_TIME_RUNNING;
        u64::from(if self.lost_counts { times | b::PERF_FORMAT_LOST } else { times })
    }

    fn set_sideband(&self, attr: &mut b::perf_event_attr) {
        // Without `mmap`, `mmap2` alone brings nothing, silently (seen on 6.18).
        attr.set_mmap(1);
        attr.set_mmap2(1);
        attr.set_mmap_data(u64::from(self.data_mappings));
        attr.set_build_id(u64::from(self.build_ids));
        attr.set_comm(1);
        attr.set_comm_exec(1);
        attr.set_task(1);
        attr.set_context_switch(1);
        // These belong to no task: only events of whole CPUs bring them.
        attr.set_ksymbol(u64::from(self.whole_machine));
        attr.set_bpf_event(u64::from(self.whole_machine));
    }

    fn set_user_stack(&self, attr: &mut b::perf_event_attr) {
        let UserStack::Copy { bytes } = self.user_stack else { return };
        attr.sample_type |= u64::from(b::PERF_SAMPLE_REGS_USER | b::PERF_SAMPLE_STACK_USER);
        attr.set_exclude_callchain_user(1);
        attr.sample_regs_user = USER_REGISTERS;
        attr.sample_stack_user = stack_copy_bytes(bytes);
    }

    fn set_rate(&self, kind: EventKind, attr: &mut b::perf_event_attr) {
        match kind {
            // A fixed period catches 99.5 % of the ticks, frequency mode 96 to 99.6 % (measured).
            EventKind::Cpu => {
                attr.config = u64::from(b::PERF_COUNT_SW_CPU_CLOCK);
                attr.__bindgen_anon_1.sample_period = 1_000_000_000 / u64::from(self.frequency.max(1));
                attr.set_exclude_idle(u64::from(self.whole_machine));
            }
            // In frequency mode the period begins at 1, so every fault is taken until they come faster.
            EventKind::PageFault => {
                attr.config = u64::from(b::PERF_COUNT_SW_PAGE_FAULTS);
                attr.__bindgen_anon_1.sample_freq = u64::from(self.burst_frequency());
                attr.set_freq(1);
            }
            EventKind::Switch => {
                attr.config = u64::from(b::PERF_COUNT_SW_CONTEXT_SWITCHES);
                attr.__bindgen_anon_1.sample_freq = u64::from(self.burst_frequency());
                attr.set_freq(1);
            }
            EventKind::Sideband => attr.config = u64::from(b::PERF_COUNT_SW_DUMMY),
        }
    }

    /// A pipe ping-pong switches 400,000 times a second: a stack copy of each would be 6 GB a second. Twice the
    /// frequency of CPU samples is 32 MB a second at worst.
    fn burst_frequency(&self) -> u32 {
        let wished = match self.user_stack {
            UserStack::Copy { .. } => self.frequency.saturating_mul(2),
            UserStack::FramePointers => self.frequency.max(BURST_FREQUENCY),
        };
        wished.min(self.max_frequency)
    }
}

/// The size of stack copy that the kernel takes: a multiple of eight, at most [`MAX_STACK_COPY`].
pub(super) fn stack_copy_bytes(asked: u32) -> u32 {
    (asked & !7).clamp(8, MAX_STACK_COPY)
}
