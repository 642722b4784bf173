//! What the programs tell, in the words of the rest of uhr. The bytes come from uhr's own programs, and are checked all
//! the same.

use crate::abi;
use crate::calls::Calls;
use crate::stack_sample::Sample;

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
    /// It was shorter than [`Chance::LEAST_NS`](crate::Chance::LEAST_NS). Known when it is over.
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

pub(crate) fn syscall(raw: u16) -> Option<u32> {
    (raw != abi::NO_SYSCALL).then_some(u32::from(raw))
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
