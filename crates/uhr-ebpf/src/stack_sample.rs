//! A stack that the programs took: walked in the kernel, or copied to be walked outside.

use crate::abi;

/// Frames of a walk that are kept: half of them from the leaf on, half from the root.
pub const KEPT_FRAMES: usize = 2 * abi::HALF_OF_WALK;

use crate::chance::Chance;
use crate::event::{Head, head, syscall};

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
    /// There are more steps to the root than are made.
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
    /// User addresses, leaf first, where frame pointers were followed. Those of a walk are handed out by [`Self::frames`].
    pub user: &'a [u8],
    /// There were more.
    pub is_full: bool,
    /// The frames in `user` were found by [`Tables`](crate::Tables), up to here.
    pub walk: Option<WalkEnd>,
    /// So many were left out in the middle, behind as many as are kept from there on to the root.
    pub left_out: u32,
    /// They went by the mappings of that moment.
    pub as_of_ns: u64,
    /// They were not, because some of the process's code is not in those tables.
    pub is_of_unknown_code: bool,
    /// Bytes of stack from the stack pointer on.
    pub stack: &'a [u8],
}

impl<'a> Sample<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
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
                let least_ns =
                    if has(abi::FROM_OUTSIDE) { Chance::LEAST_FROM_OUTSIDE_NS } else { Chance::LEAST_NS };
                let is_by_lot = has(abi::AT_SWITCH);
                SampleKind::Wait { wait, chance: Chance { is_by_lot, lot, period_ns, least_ns } }
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
            left_out: raw.left_out,
            as_of_ns: raw.as_of_ns,
            is_of_unknown_code: matches!(raw.ending, abi::NO_SPACE | abi::UNKNOWN_CODE),
            stack,
        })
    }

    /// The frames of a walk, leaf first.
    pub fn frames(&self) -> impl Iterator<Item = WalkedFrame> {
        let (first, ring) = self.user.split_at(self.user.len().min(abi::HALF_OF_WALK * 8));
        // Where nothing was left out it begins at its beginning.
        let (last, middle) = ring.split_at((self.left_out as usize % abi::HALF_OF_WALK * 8).min(ring.len()));
        let words = [first, middle, last].into_iter().flat_map(|part| part.chunks_exact(8));
        words.filter_map(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes).map(|word| WalkedFrame {
            address: word & !(abi::INSTRUCTION | abi::FROM_BP),
            is_return: word & abi::INSTRUCTION == 0,
            from_bp: word & abi::FROM_BP != 0,
        })
    }
}
