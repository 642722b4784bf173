#![forbid(unsafe_code)]
//! Rows in the few forms that nearly all code has, small enough for a table that a program in the kernel searches. What
//! they cannot say is left to [`super::row::Row`], in user space.

use gimli::{CfaRule, Operation, RegisterRule, UnwindExpression, UnwindSection};

use uhr_model::object::Machine;

use super::aarch64::Aarch64Frame;
use super::registers::{RBP, RIP, RSP};
use super::row::Slice;
use super::rules::Rules;

/// How a frame is left. On x86-64 the return address lies right below the canonical frame address (CFA), which is also the
/// caller's stack pointer; the caller's rbp is where `bp` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SimpleRow {
    /// No call frame information covers the address.
    Uncovered,
    /// There is some, which this form cannot say.
    TooComplex,
    /// Nothing called this function.
    First,
    /// The CFA is so many bytes above rsp.
    FromSp {
        /// The distance.
        cfa: i32,
        /// The caller's rbp.
        bp: SavedBp,
    },
    /// The CFA is so many bytes above rbp.
    FromBp {
        /// The distance.
        cfa: i32,
        /// The caller's rbp.
        bp: SavedBp,
    },
    /// The CFA was saved so many bytes above rbp (below, if negative), and the caller's rbp at `bp` bytes above it: of
    /// functions that align their frame.
    SavedAtBp {
        /// Where the CFA is.
        cfa: i32,
        /// Where the caller's rbp is.
        bp: i32,
    },
    /// A stub of 16 bytes of the procedure linkage table, which pushes a word: the CFA is 8 bytes above rsp before, and 16
    /// from this byte of the stub on.
    Plt {
        /// Behind the push: 11, or 9 where the stub begins with a landing pad.
        pushed_at: u8,
    },
    /// The frame that the kernel pushed for a signal: all registers lie at fixed places above the stack pointer.
    SignalFrame,
    /// A frame of aarch64 code.
    Aarch64(Aarch64Frame),
}

/// Where the caller's rbp is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SavedBp {
    /// In rbp.
    Same,
    /// So many bytes above the CFA (below, if negative).
    AtCfa(i32),
    /// Nowhere.
    Lost,
}

impl SimpleRow {
    /// The simple form of a row. It leaves out all registers but the stack pointer, the frame pointer and the return
    /// address: no other is needed by any row of a simple form.
    pub(super) fn of<'a, S: UnwindSection<Slice<'a>>>(
        machine: Machine,
        section: &S,
        row: &Rules,
        entry: &gimli::FrameDescriptionEntry<Slice<'a>>,
    ) -> Self {
        let simple = match machine {
            Machine::X86_64 => Self::of_x86_64(section, row, entry),
            Machine::Aarch64 => Self::of_aarch64(row, entry),
            Machine::Other => None,
        };
        simple.unwrap_or(Self::TooComplex)
    }

    fn of_x86_64<'a, S: UnwindSection<Slice<'a>>>(
        section: &S,
        row: &Rules,
        entry: &gimli::FrameDescriptionEntry<Slice<'a>>,
    ) -> Option<Self> {
        if entry.is_signal_trampoline() {
            return is_glibcs_signal_frame(section, row).then_some(Self::SignalFrame);
        }
        match row.register(entry.cie().return_address_register())? {
            RegisterRule::Undefined => return Some(Self::First),
            RegisterRule::Offset(-8) => {}
            _ => return None,
        }
        let (mut bp, mut sp) = (None, None);
        for (register, rule) in row.registers() {
            match u8::try_from(register.0).ok()? {
                RBP => bp = Some(rule),
                RSP => sp = Some(rule),
                _ => {}
            }
        }
        if !matches!(sp, None | Some(RegisterRule::SameValue | RegisterRule::ValOffset(0))) {
            return None;
        }
        match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                let (cfa, bp) = (i32::try_from(*offset).ok()?, SavedBp::of(bp)?);
                match u8::try_from(register.0).ok()? {
                    RSP => Some(Self::FromSp { cfa, bp }),
                    RBP => Some(Self::FromBp { cfa, bp }),
                    _ => None,
                }
            }
            CfaRule::Expression(expression) => {
                let Some(bp) = bp else {
                    return Some(Self::Plt { pushed_at: pushed_at(section, expression)? });
                };
                let RegisterRule::Expression(bp) = bp else { return None };
                let cfa = saved_at_bp(section, expression, true)?;
                Some(Self::SavedAtBp { cfa, bp: saved_at_bp(section, bp, false)? })
            }
        }
    }
}

impl SavedBp {
    fn of(rule: Option<&RegisterRule<usize>>) -> Option<Self> {
        match rule {
            None | Some(RegisterRule::SameValue) => Some(Self::Same),
            Some(RegisterRule::Offset(offset)) => Some(Self::AtCfa(i32::try_from(*offset).ok()?)),
            Some(RegisterRule::Undefined) => Some(Self::Lost),
            Some(_) => None,
        }
    }
}

const ENCODING: gimli::Encoding =
    gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };

/// The operations of an expression of at most `N`.
fn operations<'a, S: UnwindSection<Slice<'a>>, const N: usize>(
    section: &S,
    expression: &UnwindExpression<usize>,
) -> Option<[Option<Operation<Slice<'a>>>; N]> {
    let mut operations = expression.get(section).ok()?.operations(ENCODING);
    let mut found = [const { None }; N];
    for slot in &mut found {
        *slot = operations.next().ok()?;
    }
    operations.next().ok()?.is_none().then_some(found)
}

/// The place relative to rbp that an expression names, or reads a word from (`is_read`).
fn saved_at_bp<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    expression: &UnwindExpression<usize>,
    is_read: bool,
) -> Option<i32> {
    match operations::<S, 2>(section, expression)? {
        [Some(Operation::RegisterOffset { register, offset, .. }), read] if register.0 == u16::from(RBP) => {
            let reads = match read {
                None => false,
                Some(Operation::Deref { size: 8, .. }) => true,
                Some(_) => return None,
            };
            (reads == is_read).then(|| i32::try_from(offset).ok())?
        }
        _ => None,
    }
}

/// What linkers write for `.plt`: rsp + 8 + ((rip & 15) >= N) * 8 (binutils, `elf_x86_64_eh_frame_lazy_plt`). Gives N.
fn pushed_at<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    expression: &UnwindExpression<usize>,
) -> Option<u8> {
    // breg7 8; breg16 0; lit15; and; litN; ge; lit3; shl; plus
    match expression.get(section).ok()?.0.slice() {
        [0x77, 8, 0x80, 0, 0x3f, 0x1a, number @ 0x30..=0x3f, 0x2a, 0x33, 0x24, 0x22] => Some(number - 0x30),
        _ => None,
    }
}

/// Where the registers are in a signal's frame, from rsp on, as glibc says it: `struct rt_sigframe` without its return
/// address, then `uc_mcontext` (arch/x86/include/asm/sigframe.h, uapi/asm/sigcontext.h).
fn is_glibcs_signal_frame<'a, S: UnwindSection<Slice<'a>>>(section: &S, row: &Rules) -> bool {
    let at_sp = |expression: &UnwindExpression<usize>, is_read: bool, at: i64| {
        let found = operations::<S, 2>(section, expression);
        matches!(
            (&found, is_read),
            (Some([Some(Operation::RegisterOffset { register, offset, .. }), None]), false)
            | (Some([Some(Operation::RegisterOffset { register, offset, .. }), Some(Operation::Deref { size: 8, .. })]), true)
                if register.0 == u16::from(RSP) && *offset == at
        )
    };
    let CfaRule::Expression(cfa) = row.cfa() else { return false };
    let saved = |number: u8, at: i64| match row.register(gimli::Register(u16::from(number))) {
        Some(RegisterRule::Expression(expression)) => at_sp(&expression, false, at),
        _ => false,
    };
    at_sp(cfa, true, 160) && saved(RBP, 120) && saved(RIP, 168)
}
