//! The parts of a sample: addresses, registers, a piece of stack.

use perf_event_open_sys::bindings as b;

use super::attr::Periods;
use super::event::EventKind;
use super::fields::Fields;

/// Addresses as they lie in a record, leaf first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Addresses<'a>(&'a [u8]);

impl<'a> Addresses<'a> {
    /// Addresses of 8 bytes each.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// How many there are.
    pub fn len(self) -> usize {
        self.0.len() / 8
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The addresses, leaf first. The first is an instruction pointer, the others are return addresses.
    pub fn iter(self) -> impl Iterator<Item = u64> + 'a {
        self.0.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes))
    }
}

/// The user registers that an unwinder begins with (x86-64).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserRegisters {
    /// The instruction pointer.
    pub ip: u64,
    /// The stack pointer: where [`Sample::stack`] begins.
    pub sp: u64,
    /// The frame pointer, or whatever the code keeps in rbp.
    pub bp: u64,
    /// The thread was in 32-bit code.
    pub is_32_bit: bool,
}

/// One sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample<'a> {
    /// Which event took it.
    pub kind: EventKind,
    /// Where the thread was: a kernel address if `in_kernel`. At a switch, the kernel's own switching code.
    pub ip: u64,
    /// What it stands for: nanoseconds (`Cpu`), page faults, switches. What passed in a thread on a CPU after the last
    /// sample there is in no sample: scale by the count where the sum matters.
    pub period: u64,
    /// Page faults: the address that was touched.
    pub address: Option<u64>,
    /// Another profiler records the same page faults or switches, and the kernel (since 6.3) filled its sample first
    /// and handed us a copy: the call chain may be cut as that profiler wished, and the time may be of its clock
    /// ([`Merger`](super::Merger) puts it right).
    pub is_second_hand: bool,
    /// The event happened in the kernel.
    pub in_kernel: bool,
    /// The kernel's part of the stack, where it may be seen.
    pub kernel_chain: Addresses<'a>,
    /// The user part, followed by frame pointers in the kernel. Empty where stacks are copied instead.
    pub user_chain: Addresses<'a>,
    /// The two chains together are as long as the kernel allows: callers are missing.
    pub chain_is_full: bool,
    /// Registers. `None` for kernel threads and threads past their exit.
    pub user_registers: Option<UserRegisters>,
    /// The copied stack from the stack pointer upwards: only what the kernel could really read. Where frame pointers are
    /// followed, just the words that a function without a frame can have on it.
    pub stack: &'a [u8],
}

/// What the attributes say of samples, and samples do not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SampleShape {
    /// `kernel.perf_event_max_stack`: the most addresses of a call chain.
    pub(super) max_stack: u32,
    pub(super) periods: Periods,
}

/// What stands at the beginning of every sample, before the fields that only some have.
pub(super) struct SampleHead {
    pub(super) id: u64,
    pub(super) ip: u64,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) time_ns: u64,
}

impl SampleHead {
    pub(super) fn parse(fields: &mut Fields<'_>) -> Option<Self> {
        let (id, ip) = (fields.u64()?, fields.u64()?);
        Some(Self { id, ip, pid: fields.u32()?, tid: fields.u32()?, time_ns: fields.u64()? })
    }
}

impl<'a> Sample<'a> {
    /// Parses what follows the head as a sample of `kind`. Gives the CPU too, and the bytes that are left. The order
    /// of fields is that of `perf_output_sample`.
    pub(super) fn parse(
        mut fields: Fields<'a>,
        head: &SampleHead,
        kind: EventKind,
        misc: u16,
        shape: SampleShape,
    ) -> Option<(Self, u32, Fields<'a>)> {
        let address = if kind == EventKind::PageFault { Some(fields.u64()?) } else { None };
        let (cpu, _reserved) = (fields.u32()?, fields.u32()?);
        let count = fields.u64()?;
        let chain = fields.sized(count.checked_mul(8)?)?;
        let (kernel_chain, user_chain) = split_chain(chain);
        let (user_registers, stack) = (registers(&mut fields)?, stack(&mut fields)?);
        let sample = Self {
            kind,
            ip: head.ip,
            period: shape.periods.of(kind),
            address,
            is_second_hand: false,
            in_kernel: u32::from(misc) & b::PERF_RECORD_MISC_CPUMODE_MASK == b::PERF_RECORD_MISC_KERNEL,
            kernel_chain,
            user_chain,
            chain_is_full: kernel_chain.len() + user_chain.len() >= shape.max_stack as usize,
            user_registers,
            stack,
        };
        Some((sample, cpu, fields))
    }
}

/// Cuts a call chain at its markers: each says where the addresses after it were.
fn split_chain(chain: &[u8]) -> (Addresses<'_>, Addresses<'_>) {
    let (mut kernel, mut user) = (Addresses::default(), Addresses::default());
    let words = chain.as_chunks::<8>().0;
    let marker =
        |at: usize| words.get(at).map(|w| u64::from_ne_bytes(*w)).filter(|&w| w >= b::PERF_CONTEXT_MAX);
    let mut at = 0;
    while at < words.len() {
        let Some(context) = marker(at) else {
            at += 1; // Before the first marker: belongs to nobody.
            continue;
        };
        let start = at + 1;
        let end = (start..words.len()).find(|&i| marker(i).is_some()).unwrap_or(words.len());
        let part = Addresses(&chain[start * 8..end * 8]);
        match context {
            b::PERF_CONTEXT_KERNEL => kernel = part,
            b::PERF_CONTEXT_USER => user = part,
            _ => {}
        }
        at = end;
    }
    (kernel, user)
}

/// Registers come in the order of their numbers: bp (6), sp (7), ip (8).
fn registers(fields: &mut Fields<'_>) -> Option<Option<UserRegisters>> {
    let abi = fields.u64()?;
    if abi == u64::from(b::PERF_SAMPLE_REGS_ABI_NONE) {
        return Some(None);
    }
    let (bp, sp, ip) = (fields.u64()?, fields.u64()?, fields.u64()?);
    Some(Some(UserRegisters { ip, sp, bp, is_32_bit: abi == u64::from(b::PERF_SAMPLE_REGS_ABI_32) }))
}

/// The size asked for, the bytes, and how many of them the kernel could read; the last is absent if the first is 0.
fn stack<'a>(fields: &mut Fields<'a>) -> Option<&'a [u8]> {
    let asked = fields.u64()?;
    if asked == 0 {
        return Some(&[]);
    }
    let bytes = fields.sized(asked)?;
    let readable = usize::try_from(fields.u64()?).ok()?;
    bytes.get(..readable)
}
