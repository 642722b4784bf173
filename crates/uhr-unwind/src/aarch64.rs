#![forbid(unsafe_code)]
//! Rows of aarch64 code (DWARF for the Arm 64-bit Architecture, 2024Q3). Three things differ from x86-64. A call leaves the
//! return address in x30, the link register, and a function that calls none leaves it there. The frame record, x29 and x30
//! side by side, lies where the compiler wants it, below all of a large frame too. And the return address may be signed
//! (pointer authentication): then its upper bits are not part of the address.
//!
//! Measured on 2.1 million rows (glibc, libstdc++, LLVM, Node, Arrow, OpenBLAS; GCC, Clang and rustc): 25 say something
//! else. The largest frame has 504,640 bytes. Entries for the second of the keys that sign (augmentation `B`, which compilers
//! for Linux write on request alone) gimli does not read.

use gimli::{AArch64, CfaRule, RegisterRule};

use super::row::Slice;
use super::rules::Rules;
use super::simple_row::SimpleRow;

/// `mov x8, #139; svc #0`: `rt_sigreturn`. The vDSO's, where signal handlers return to, has no call frame information.
pub(super) const SIGNAL_RETURN: &[u8] = &[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4];

/// How a frame of aarch64 code is left: the caller's sp is the canonical frame address (CFA).
///
/// The frame of a signal ([`SimpleRow::SignalFrame`]) has x29, x30, sp and pc at 544, 552, 560 and 568 above sp (`struct
/// rt_sigframe` of arch/arm64/kernel/signal.c, `struct sigcontext` in it); what was interrupted has an x30 of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aarch64Frame {
    /// Whether the CFA counts from x29, and not from sp.
    pub from_fp: bool,
    /// So many bytes above that.
    pub cfa: u32,
    /// What is saved.
    pub saved: Aarch64Saved,
    /// Whether the return address is signed here, wherever it is: the bits above those of an address have to be taken off.
    pub is_signed: bool,
}

/// Where the caller's x29 and the return address are: at so many bytes below the CFA. What is not named is in its register as
/// before: the return address can only be there in the innermost function, or in one that a signal has interrupted. A place
/// below sp holds nothing any more; its register has the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aarch64Saved {
    /// In x29 and x30.
    Nothing,
    /// x29 is here, the return address still in x30.
    Fp(u32),
    /// The return address is here, x29 as it was.
    ReturnAddress(u32),
    /// The return address is here, and the caller's x29 in the word below it.
    Both(u32),
}

impl SimpleRow {
    /// The simple form of a row, if it is of one.
    pub(super) fn of_aarch64(row: &Rules, entry: &gimli::FrameDescriptionEntry<Slice<'_>>) -> Option<Self> {
        if entry.is_signal_trampoline() || entry.cie().return_address_register() != AArch64::X30 {
            return None;
        }
        if row.register(AArch64::X30) == Some(RegisterRule::Undefined) {
            return Some(Self::First);
        }
        let (mut fp, mut return_address, mut is_signed) = (None, None, false);
        for (register, rule) in row.registers() {
            match (*register, rule) {
                (AArch64::X29, _) => fp = below_cfa(rule)?,
                (AArch64::X30, _) => return_address = below_cfa(rule)?,
                (AArch64::RA_SIGN_STATE, RegisterRule::Constant(state)) => is_signed = state & 1 != 0,
                (AArch64::SP | AArch64::RA_SIGN_STATE, _) => return None,
                _ => {}
            }
        }
        let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else { return None };
        Some(Self::Aarch64(Aarch64Frame {
            from_fp: match *register {
                AArch64::SP => false,
                AArch64::X29 => true,
                _ => return None,
            },
            cfa: u32::try_from(*offset).ok()?,
            saved: match (fp, return_address) {
                (None, None) => Aarch64Saved::Nothing,
                (Some(fp), None) => Aarch64Saved::Fp(fp),
                (None, Some(at)) => Aarch64Saved::ReturnAddress(at),
                (Some(fp), Some(at)) if at.checked_add(8) == Some(fp) => Aarch64Saved::Both(at),
                _ => return None,
            },
            is_signed,
        }))
    }
}

/// How far below the CFA a register is saved; `Some(None)` if it is as it was.
#[expect(clippy::option_option, reason = "the outer one is failure, the inner one is a rule without effect")]
fn below_cfa(rule: &RegisterRule<usize>) -> Option<Option<u32>> {
    match rule {
        RegisterRule::SameValue => Some(None),
        RegisterRule::Offset(offset) if *offset < 0 => Some(Some(u32::try_from(offset.checked_neg()?).ok()?)),
        _ => None,
    }
}
