//! The circumstances that cells tell apart.

use uhr_model::{StackEnding, WaitKind};

/// Where a cell's observations came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Source {
    /// On CPU, or a page fault: sampled.
    Sampled,
    /// A wait.
    Waiting,
    /// Runnable, but not running.
    Runnable,
    /// A system call that was counted.
    Counted,
}

/// The circumstances of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tag {
    pub(crate) source: Source,
    pub(crate) ending: StackEnding,
    /// Code of the kind of wait, of a page fault ([`fault_code`]), or of how a system call ended ([`errno_code`]).
    pub(crate) kind: u8,
    /// Number of the system call that it was in.
    pub(crate) syscall: Option<u32>,
    /// The CPU that ran it.
    pub(crate) cpu: Option<u16>,
    /// The name of the mapping that a page fault fell on.
    pub(crate) mapping: MappingName,
    /// Row of the wakers: what ended the wait.
    pub(crate) waker: u32,
    /// Node of the stack tree: what the waker was doing.
    pub(crate) waker_node: u32,
    /// A wait without a stack, whose time was given to others of its like that have one.
    pub(crate) is_stood_for: bool,
}

/// What a mapping is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum MappingName {
    /// It has no name, or none was asked for.
    None,
    /// Row of the recording's names.
    Row(u32),
    /// One of so many names that are not told apart.
    Other(u32),
}

impl Tag {
    /// What is always known.
    pub(crate) const fn new(source: Source, ending: StackEnding, kind: u8) -> Self {
        let (mapping, is_stood_for) = (MappingName::None, false);
        Self {
            source,
            ending,
            kind,
            syscall: None,
            cpu: None,
            mapping,
            waker: 0,
            waker_node: 0,
            is_stood_for,
        }
    }

    /// Whether it is a wait for work.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.source == Source::Waiting && WaitKind::from_code(self.kind) == Some(WaitKind::Idle)
    }
}

/// What the code of a page fault tells, each in bits of its own: whether it waited for a disk,
pub(crate) const MAJOR: u8 = 0x80;
/// the size of the page that it brought,
pub(crate) const PAGE: u8 = 0x60;
/// and the kind of memory.
pub(crate) const REGION: u8 = 0x1f;

/// All three in one byte.
pub(super) fn fault_code(region: u8, is_major: bool, page: u8) -> u8 {
    region & REGION | page << PAGE.trailing_zeros() & PAGE | if is_major { MAJOR } else { 0 }
}

/// Of a call that a signal interrupted and that begins again: a number that no error has.
const RESTART: (u16, u8) = (512, 255);

/// An errno in one byte: those of Linux end at 133.
pub(super) fn errno_code(errno: u16) -> u8 {
    if errno == RESTART.0 { RESTART.1 } else { u8::try_from(errno).unwrap_or(RESTART.1 - 1) }
}

/// And back.
pub(crate) fn errno_of(code: u8) -> u16 {
    if code == RESTART.1 { RESTART.0 } else { u16::from(code) }
}

/// Circumstances that few questions ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Details {
    /// The system calls of samples; waits always have theirs.
    pub(crate) syscall: bool,
    pub(crate) cpu: bool,
    /// The names of mappings that page faults fell on.
    pub(crate) mapping: bool,
    pub(crate) waker: WakerDetail,
}

/// What is told of what ended a wait, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum WakerDetail {
    /// Nothing.
    #[default]
    None,
    /// Which thread, or what kind of interrupt.
    Who,
    /// Also who had woken that, and what it was doing.
    Chain,
}

impl Details {
    /// Whether nothing of `others` is missing.
    pub(crate) fn include(self, others: Self) -> bool {
        self.syscall >= others.syscall
            && self.cpu >= others.cpu
            && self.mapping >= others.mapping
            && self.waker >= others.waker
    }

    /// The details of both.
    pub(crate) fn and(self, others: Self) -> Self {
        Self {
            syscall: self.syscall || others.syscall,
            cpu: self.cpu || others.cpu,
            mapping: self.mapping || others.mapping,
            waker: self.waker.max(others.waker),
        }
    }
}
