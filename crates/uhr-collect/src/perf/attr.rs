//! What the kernel is asked for: the attributes of each event.

use perf_event_open_sys::bindings as b;

use super::event::EventKind;
use super::session::UserStack;

/// The largest stack copy that a record can hold with everything else; the kernel refuses 65,528 and more.
pub(super) const MAX_STACK_COPY: u32 = 65_520;

/// One page fault in so many is sampled where stacks are copied. A program that touches memory as fast as it can makes
/// 1,000,000 faults a second: copies of 16 KiB are then 260 MB a second. A touched area of 64 MiB gives 268 samples,
/// evenly spread. A prime, so that no loop over pages keeps step with it. (The kernel's own choice of a distance, its
/// frequency mode, gave 8 to 20 samples of 16,384 faults on a busy machine.)
const FAULTS_A_COPY: u64 = 61;

/// The same where frame pointers are followed: a sample is then about 140 bytes.
const FAULTS_A_CHAIN: u64 = 17;

/// One switch in so many is sampled while a program switches too often. A pipe ping-pong switches 400,000 times a
/// second: 13,000 copies of 16 KiB, 210 MB a second, instead of 6.5 GB.
pub const THINNED_TO: u64 = 31;

/// What is copied of the stack where frame pointers are followed: enough for the return address of a function that has
/// no frame, which a chain of frame pointers passes over. libc's system calls have up to 40 bytes above it.
const LEAF_BYTES: u32 = 64;

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
    /// The sideband tells of switches.
    pub(super) switches: bool,
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
        // The thinned event waits until it is asked for.
        attr.set_enable_on_exec(u64::from(self.enable_on_exec && kind != EventKind::SwitchThinned));
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
        // Not PERF_SAMPLE_PERIOD: a software event that has it takes a sample of *every* occurrence, whatever its period
        // is (`perf_swevent_event`). Periods are fixed here, so they are known without.
        let everywhere = b::PERF_SAMPLE_IDENTIFIER
            | b::PERF_SAMPLE_IP
            | b::PERF_SAMPLE_TID
            | b::PERF_SAMPLE_TIME
            | b::PERF_SAMPLE_CPU
            | b::PERF_SAMPLE_CALLCHAIN;
        let more = if kind == EventKind::PageFault { b::PERF_SAMPLE_ADDR } else { 0 };
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
        attr.set_context_switch(u64::from(self.switches));
        // These belong to no task: only events of whole CPUs bring them.
        attr.set_ksymbol(u64::from(self.whole_machine));
        attr.set_bpf_event(u64::from(self.whole_machine));
    }

    fn set_user_stack(&self, attr: &mut b::perf_event_attr) {
        attr.sample_type |= u64::from(b::PERF_SAMPLE_REGS_USER | b::PERF_SAMPLE_STACK_USER);
        attr.sample_regs_user = USER_REGISTERS;
        attr.sample_stack_user = match self.user_stack {
            UserStack::Copy { bytes } => stack_copy_bytes(bytes),
            UserStack::FramePointers => LEAF_BYTES,
        };
        attr.set_exclude_callchain_user(u64::from(self.user_stack != UserStack::FramePointers));
    }

    fn set_rate(&self, kind: EventKind, attr: &mut b::perf_event_attr) {
        attr.__bindgen_anon_1.sample_period = self.periods().of(kind);
        let config = match kind {
            EventKind::Cpu => {
                attr.set_exclude_idle(u64::from(self.whole_machine));
                b::PERF_COUNT_SW_CPU_CLOCK
            }
            EventKind::PageFault => b::PERF_COUNT_SW_PAGE_FAULTS,
            EventKind::Switch | EventKind::SwitchThinned => b::PERF_COUNT_SW_CONTEXT_SWITCHES,
            EventKind::Sideband => b::PERF_COUNT_SW_DUMMY,
        };
        attr.config = u64::from(config);
    }

    /// What a sample of each kind stands for. Fixed, for frequency mode is unfit for all of them: of the clock's ticks
    /// it caught 96 to 99.6 %, a fixed period 99.5 % (measured); for the others see the constants.
    pub(super) fn periods(&self) -> Periods {
        let page_faults = match self.user_stack {
            UserStack::Copy { .. } => FAULTS_A_COPY,
            UserStack::FramePointers => FAULTS_A_CHAIN,
        };
        Periods { cpu_ns: 1_000_000_000 / u64::from(self.frequency.max(1)), page_faults }
    }
}

/// How many occurrences, or nanoseconds, a sample of each kind stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Periods {
    pub(super) cpu_ns: u64,
    pub(super) page_faults: u64,
}

impl Periods {
    pub(super) fn of(self, kind: EventKind) -> u64 {
        match kind {
            EventKind::Cpu => self.cpu_ns,
            EventKind::PageFault => self.page_faults,
            EventKind::Switch => 1,
            EventKind::SwitchThinned => THINNED_TO,
            EventKind::Sideband => 0,
        }
    }
}

/// The size of stack copy that the kernel takes: a multiple of eight, at most [`MAX_STACK_COPY`].
pub(super) fn stack_copy_bytes(asked: u32) -> u32 {
    (asked & !7).clamp(8, MAX_STACK_COPY)
}
