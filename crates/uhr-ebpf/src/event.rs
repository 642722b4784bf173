//! What the programs tell, in the words of the rest of uhr. The bytes come from uhr's own programs, and are checked all
//! the same.

use crate::abi;
use crate::calls::Calls;
use crate::chance::Chance;

/// One event.
#[derive(Clone, PartialEq, Debug)]
pub enum Event<'a> {
    /// A stack.
    Sample(Sample<'a>),
    /// A wait that has its stack has ended.
    Woken(Woken),
    /// And its thread runs again.
    WaitEnd(WaitEnd),
    /// The sums of a thread.
    Times(Times),
    /// The system calls of a thread.
    Calls(Calls),
}

/// Who and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Head {
    /// CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The CPU that the event came from.
    pub cpu: u32,
    /// Process, in uhr's own pid namespace; 0 if it has no number there.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
}

/// A process's number and a thread's, in uhr's own pid namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Task {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
}

/// Why a stack was taken.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum SampleKind {
    /// A tick of the clock met the thread running.
    Cpu {
        /// The clock's period.
        period_ns: u64,
    },
    /// It touched memory that was not there.
    Fault {
        /// The address.
        address: u64,
        /// It had to wait for a disk.
        is_major: bool,
    },
    /// It was seen waiting, or beginning to.
    Wait {
        /// The number of the wait, among this thread's.
        wait: u32,
        /// How it was chosen.
        chance: Chance,
    },
    /// It ended a wait, and this is what it was doing.
    Waker {
        /// Whose.
        sleeper: u32,
        /// The number of the wait.
        wait: u32,
    },
}

/// The program's registers (x86-64).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer: where [`Sample::stack`] begins.
    pub sp: u64,
    /// Frame pointer, or whatever the code keeps in it.
    pub bp: u64,
    /// 32-bit code.
    pub is_32_bit: bool,
}

/// A frame that was found by a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WalkedFrame {
    /// Where it is.
    pub address: u64,
    /// Whether it was found on the stack as an address to return to; otherwise it is that of an instruction.
    pub is_return: bool,
    /// Whether a frame pointer led there, and no row.
    pub from_bp: bool,
}

/// How far a stack was walked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WalkEnd {
    /// To the thread's first function.
    First,
    /// To memory that could not be read.
    Unreadable,
    /// There are more frames than fit.
    TooDeep,
}

/// A stack.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample<'a> {
    /// Whose stack it is, and when.
    pub head: Head,
    /// Why it was taken.
    pub kind: SampleKind,
    /// The thread was inside the kernel.
    pub in_kernel: bool,
    /// The system call that it was in.
    pub syscall: Option<u32>,
    /// `None` for kernel threads and interrupts.
    pub registers: Option<Registers>,
    /// Kernel addresses of 8 bytes, leaf first.
    pub kernel: &'a [u8],
    /// User addresses, leaf first, where frame pointers were followed.
    pub user: &'a [u8],
    /// There were more.
    pub is_full: bool,
    /// The frames in `user` were found by [`Tables`](crate::Tables), up to here.
    pub walk: Option<WalkEnd>,
    /// They went by the mappings of that moment.
    pub as_of_ns: u64,
    /// They were not, because some of the process's code is not in those tables.
    pub is_of_unknown_code: bool,
    /// Bytes of stack from the stack pointer on.
    pub stack: &'a [u8],
}

/// Who ended a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Waker {
    /// A thread.
    Thread(Task),
    /// An interrupt: a timer, a device.
    Interrupt,
    /// Probably an interrupt, while this thread ran; what ran in it may have been the thread's own doing.
    During(Task),
}

/// The end of a wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Woken {
    /// The thread that waited.
    pub head: Head,
    /// The number of the wait.
    pub wait: u32,
    /// Who ended it, then who had ended that thread's own last wait, and so on.
    pub wakers: Vec<Waker>,
    /// The name of the waker, any bytes.
    pub name: Vec<u8>,
}

/// How the scheduler has a waiting thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum How {
    /// A signal would end it.
    #[default]
    Interruptible,
    /// Nothing but its end will.
    Uninterruptible,
    /// The same, and the kernel counts it as waiting for a disk.
    Disk,
    /// Stopped by a signal or a debugger.
    Stopped,
}

/// What a thread reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum File {
    /// Not looked at.
    #[default]
    Unknown,
    /// A pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A file or a block device.
    Disk,
    /// A terminal or another character device.
    Device,
    /// eventfd, timerfd and the like.
    Other,
}

/// Why a thread waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct Why {
    /// The system call. `None`: a page fault, or the kernel's own reasons.
    pub syscall: Option<u32>,
    /// How the scheduler has it.
    pub how: How,
    /// For reads and writes.
    pub file: File,
    /// It was shorter than [`Chance::LEAST_NS`]. Known when it is over.
    pub is_short: bool,
}

/// A wait that is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitEnd {
    /// The thread, and when it ran again.
    pub head: Head,
    /// When it stopped running.
    pub since_ns: u64,
    /// When it could have run again.
    pub woken_ns: u64,
    /// Its number.
    pub wait: u32,
    /// Why it waited.
    pub why: Why,
}

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It runs.
    Running,
    /// It could.
    Runnable,
    /// It waits.
    Waiting {
        /// Why.
        why: Why,
        /// Since this moment it could run.
        woken_ns: Option<u64>,
    },
}

/// Why sums are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Occasion {
    /// They were asked for.
    Asked,
    /// The thread gets another name, perhaps because it executes a program.
    Renamed,
    /// It has ended.
    Ended,
}

/// The sums of a thread since it was first seen.
#[derive(Clone, PartialEq, Debug)]
pub struct Times {
    /// The thread, and when the sums were read.
    pub head: Head,
    /// Why they are told.
    pub occasion: Occasion,
    /// What it does.
    pub state: State,
    /// Since when; not yet in the sums.
    pub since_ns: u64,
    /// On a CPU.
    pub on_cpu_ns: u64,
    /// Able to run but not running.
    pub runqueue_ns: u64,
    /// Page faults since it began, without a disk and with one.
    pub minor_faults: u64,
    /// See there.
    pub major_faults: u64,
    /// How often it left its CPU.
    pub switches: u32,
    /// Waits that found no sum of their own and are in the last one.
    pub crowded: u32,
    /// Waits of which nobody was seen to end them.
    pub unwoken: u32,
    /// The number of its present or last wait.
    pub wait: u32,
    /// Waits that are over: why, time, number.
    pub waits: Vec<(Why, u64, u32)>,
}

impl<'a> Event<'a> {
    /// Parses one event. `None`: it is not one.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, _) = abi::read::<abi::Head>(bytes)?;
        match head.kind {
            abi::CPU | abi::FAULT | abi::WAIT_STACK | abi::WAKER_STACK => {
                Sample::parse(bytes).map(Self::Sample)
            }
            abi::WOKEN => Some(Self::Woken(woken(&abi::read::<abi::Woken>(bytes)?.0))),
            abi::WAIT_END => Some(Self::WaitEnd(wait_end(&abi::read::<abi::WaitEnd>(bytes)?.0))),
            abi::TIMES | abi::THREAD_END | abi::RENAMED => {
                times(&abi::read::<abi::Times>(bytes)?.0).map(Self::Times)
            }
            abi::COUNTED => Some(Self::Calls(Calls::of(&abi::read::<abi::Calls>(bytes)?.0))),
            _ => None,
        }
    }

    /// The time of an event, without looking at the rest of it.
    pub fn time_ns(bytes: &[u8]) -> Option<u64> {
        abi::read::<abi::Head>(bytes).map(|(head, _)| head.time_ns)
    }

    /// When it happened, and to whom.
    pub fn head(&self) -> Head {
        match self {
            Self::Sample(event) => event.head,
            Self::Woken(event) => event.head,
            Self::WaitEnd(event) => event.head,
            Self::Times(event) => event.head,
            Self::Calls(event) => event.head,
        }
    }
}

pub(crate) fn head(raw: &abi::Head) -> Head {
    Head { time_ns: raw.time_ns, cpu: raw.cpu, pid: raw.pid, tid: raw.tid }
}

fn syscall(raw: u16) -> Option<u32> {
    (raw != abi::NO_SYSCALL).then_some(u32::from(raw))
}

impl<'a> Sample<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (raw, rest) = abi::read::<abi::Sample>(bytes)?;
        let has = |flag: u16| raw.flags & flag != 0;
        let (kernel, rest) = rest.split_at_checked(usize::from(raw.kernel_frames) * 8)?;
        let (user, rest) = rest.split_at_checked(usize::from(raw.user_frames) * 8)?;
        let (stack, _) = rest.split_at_checked(usize::from(raw.copied))?;
        let walk = match raw.ending {
            abi::ON_ITS_WAY => WalkEnd::TooDeep,
            abi::FIRST => WalkEnd::First,
            _ => WalkEnd::Unreadable,
        };
        let (wait, period_ns) = (raw.wait, raw.address);
        let kind = match raw.head.kind {
            abi::CPU => SampleKind::Cpu { period_ns },
            abi::FAULT => SampleKind::Fault { address: raw.address, is_major: has(abi::MAJOR) },
            abi::WAIT_STACK => {
                let lot = f64::from(raw.share) / f64::from(u32::MAX);
                SampleKind::Wait { wait, chance: Chance { is_by_lot: has(abi::AT_SWITCH), lot, period_ns } }
            }
            _ => SampleKind::Waker { sleeper: raw.wait_tid, wait },
        };
        let registers = Registers { ip: raw.ip, sp: raw.sp, bp: raw.bp, is_32_bit: has(abi::IS_32_BIT) };
        Some(Self {
            head: head(&raw.head),
            kind,
            in_kernel: has(abi::IN_KERNEL),
            syscall: syscall(raw.syscall),
            registers: (!has(abi::KERNEL_THREAD) && raw.sp != 0).then_some(registers),
            kernel,
            user: if has(abi::CHAIN | abi::WALKED) { user } else { &[] },
            is_full: has(abi::CHAIN_FULL),
            walk: has(abi::WALKED).then_some(walk),
            as_of_ns: raw.as_of_ns,
            is_of_unknown_code: matches!(raw.ending, abi::NO_SPACE | abi::UNKNOWN_CODE),
            stack,
        })
    }

    /// The frames of a walk, leaf first.
    pub fn frames(&self) -> impl Iterator<Item = WalkedFrame> {
        let words = self.user.chunks_exact(8).filter_map(|bytes| bytes.try_into().ok());
        words.map(u64::from_ne_bytes).map(|word| WalkedFrame {
            address: word & !(abi::INSTRUCTION | abi::FROM_BP),
            is_return: word & abi::INSTRUCTION == 0,
            from_bp: word & abi::FROM_BP != 0,
        })
    }
}

fn woken(raw: &abi::Woken) -> Woken {
    let waker = |task: &abi::Task| match task.tid {
        0 => None,
        u32::MAX => Some(Waker::Interrupt),
        tid => Some(Waker::Thread(Task { pid: task.pid, tid })),
    };
    let first = match (raw.is_interrupt != 0, waker(&raw.waker)) {
        (true, Some(Waker::Thread(task))) => Some(Waker::During(task)),
        (true, _) => Some(Waker::Interrupt),
        (false, first) => first,
    };
    let behind = raw.hops.iter().map(waker);
    let name = raw.name.iter().copied().take_while(|byte| *byte != 0).collect();
    let wakers = std::iter::once(first).chain(behind).map_while(|waker| waker).collect();
    Woken { head: head(&raw.head), wait: raw.wait, wakers, name }
}

fn why(raw: &abi::Why) -> Why {
    let how = match raw.how {
        1 => How::Uninterruptible,
        2 => How::Disk,
        3 => How::Stopped,
        _ => How::Interruptible,
    };
    let file = match raw.file & !abi::SHORT {
        1 => File::Pipe,
        2 => File::Socket,
        3 => File::Disk,
        4 => File::Device,
        5 => File::Other,
        _ => File::Unknown,
    };
    Why { syscall: syscall(raw.syscall), how, file, is_short: raw.file & abi::SHORT != 0 }
}

fn wait_end(raw: &abi::WaitEnd) -> WaitEnd {
    let woken_ns = if raw.woken_ns == 0 { raw.head.time_ns } else { raw.woken_ns.max(raw.since_ns) };
    WaitEnd { head: head(&raw.head), since_ns: raw.since_ns, woken_ns, wait: raw.wait, why: why(&raw.why) }
}

fn times(raw: &abi::Times) -> Option<Times> {
    let state = match raw.state {
        1 => State::Running,
        2 => State::Runnable,
        3 => State::Waiting { why: why(&raw.why), woken_ns: (raw.woken_ns != 0).then_some(raw.woken_ns) },
        _ => return None,
    };
    Some(Times {
        head: head(&raw.head),
        occasion: match raw.head.kind {
            abi::THREAD_END => Occasion::Ended,
            abi::RENAMED => Occasion::Renamed,
            _ => Occasion::Asked,
        },
        state,
        since_ns: raw.since_ns,
        on_cpu_ns: raw.on_cpu_ns,
        runqueue_ns: raw.runqueue_ns,
        minor_faults: raw.minor_faults,
        major_faults: raw.major_faults,
        switches: raw.switches,
        crowded: raw.crowded,
        unwoken: raw.unwoken,
        wait: raw.wait,
        waits: raw
            .slots
            .iter()
            .filter(|slot| slot.count > 0)
            .map(|slot| (why(&slot.why), slot.ns, slot.count))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_bytes_are_no_event() {
        assert_eq!(Event::parse(&[]), None);
        for kind in 0..12_u32 {
            let mut bytes = vec![0xff; 400];
            bytes[..4].copy_from_slice(&kind.to_ne_bytes());
            // Counts that promise more than there is.
            let parsed = Event::parse(&bytes);
            assert!(!matches!(parsed, Some(Event::Sample(_) | Event::Times(_))), "{kind}: {parsed:?}");
        }
    }
}
