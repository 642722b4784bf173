//! What the programs counted.

use crate::abi;

/// What the programs counted, over all CPUs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Ticks of the clock, and how many of them met a thread of the target, by CPU.
    pub ticks: Vec<(u32, u64, u64)>,
    /// CPU samples that found the ring full.
    pub samples_refused: u64,
    /// Page-fault samples that found it full.
    pub faults_refused: u64,
    /// Stacks and ends of waits that found it full.
    pub waits_refused: u64,
    /// Sums of threads that found it full; the next ones hold them, but not those of a thread that has ended.
    pub times_refused: u64,
    /// Last sums of threads among these.
    pub ends_refused: u64,
    /// Sums of system calls that found it full; the next ones hold them, but not those of a thread that has ended.
    pub calls_refused: u64,
    /// Threads that the kernel had no memory for.
    pub no_storage: u64,
    /// Waits that began.
    pub waits: u64,
    /// Wakers whose stack was not taken, for there were too many at once.
    pub unseen_wakers: u64,
    /// Waits that ended while it was taken.
    pub moved_on: u64,
    /// Looks that left some waiting threads for the next.
    pub postponed: u64,
    /// Sums that changed while they were read; they come with the next reading.
    pub torn: u64,
    /// Stacks that were to be walked by rows, by what became of it (see [`WALKS`]).
    pub walks: [u64; WALKS.len()],
}

/// What became of walks: of each whether the stack was copied instead, and the words for it.
pub const WALKS: [(bool, &str); 11] = [
    (false, "too deep"),
    (false, "to the first function"),
    (false, "to memory that could not be read"),
    (true, "the process was not known yet"),
    (true, "the file's rows were not there yet"),
    (true, "the code was not known"),
    (true, "no call frame information"),
    (true, "a row of another form"),
    (true, "the frame pointer was lost"),
    (true, "the stack pointer did not move"),
    (true, "generated code"),
];

impl Counters {
    /// The sum of what each CPU's own copy holds.
    pub(crate) fn of_cpus(values: &[Vec<u8>]) -> Self {
        let mut counters = Self::default();
        for (cpu, value) in values.iter().enumerate() {
            let Some((own, _)) = abi::read::<abi::Counters>(value) else { continue };
            if own.ticks > 0 {
                counters.ticks.push((cpu as u32, own.ticks, own.samples));
            }
            let refused = |kind: u32| own.refused.get(kind as usize).copied().unwrap_or(0);
            counters.samples_refused += refused(abi::CPU);
            counters.faults_refused += refused(abi::FAULT);
            counters.waits_refused += [abi::WAIT_STACK, abi::WAKER_STACK, abi::WOKEN, abi::WAIT_END]
                .into_iter()
                .map(refused)
                .sum::<u64>();
            counters.times_refused += refused(abi::TIMES) + refused(abi::RENAMED) + refused(abi::THREAD_END);
            counters.ends_refused += refused(abi::THREAD_END);
            counters.calls_refused += refused(abi::COUNTED);
            counters.no_storage += own.no_storage;
            counters.waits += own.waits;
            counters.unseen_wakers += own.unseen_wakers;
            counters.moved_on += own.moved_on;
            counters.postponed += own.postponed;
            counters.torn += own.torn;
            counters.walks.iter_mut().zip(own.walks).for_each(|(sum, own)| *sum += own);
        }
        counters
    }
}
