#![forbid(unsafe_code)]
//! Whether the code of a file keeps frame pointers, so that the kernel's own walk of them finds whole stacks.

use gimli::CallFrameInstruction;

use super::entries::Instructions;
use super::module::UnwindModule;
use super::registers::RBP;

/// Functions that are looked at: enough for a share to within 2 %, and a millisecond of work.
const SAMPLED_FUNCTIONS: usize = 2048;
/// From this share on a file counts as built with frame pointers. Files built without, measured on Debian 12, stay below
/// 0.1 (libc 0.05, libstdc++ 0.04, ld.so 0.09: functions with `alloca`); what files with lack is assembler.
const BUILT_WITH: f64 = 0.75;

/// How much of a file's code keeps frame pointers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FramePointers {
    /// As good as all of it.
    Everywhere,
    /// Only this share of the functions that have a frame.
    Missing {
        /// Between 0 and 1.
        share: f64,
    },
    /// The file has no call frame information to tell it by.
    Unknown,
}

impl UnwindModule {
    /// Tells by the call frame information: of the functions that move the stack pointer, how many ever count their
    /// frame from rbp. (Looking at the first instructions instead would miss prologues that compilers move behind an
    /// early exit.) Go keeps frame pointers everywhere, whatever else it was linked with.
    pub fn frame_pointers(&self) -> FramePointers {
        if self.is_go() {
            return FramePointers::Everywhere;
        }
        let (mut with, mut framed) = (0u32, 0u32);
        for entries in self.sections().both() {
            entries.sample(SAMPLED_FUNCTIONS, |entry, instructions| {
                let is_stub = self.is_stub(entry.initial_address()) || entry.is_signal_trampoline();
                let uses_rbp = if is_stub { None } else { counts_from_rbp(instructions) };
                with += u32::from(uses_rbp == Some(true));
                framed += u32::from(uses_rbp.is_some());
            });
            if framed > 0 {
                break;
            }
        }
        if framed == 0 {
            return FramePointers::Unknown;
        }
        let share = f64::from(with) / f64::from(framed);
        if share >= BUILT_WITH { FramePointers::Everywhere } else { FramePointers::Missing { share } }
    }
}

/// Whether a function counts its frame from rbp, or `None` if it never moves the stack pointer.
fn counts_from_rbp(mut instructions: Instructions<'_>) -> Option<bool> {
    let rbp = gimli::Register(u16::from(RBP));
    let mut framed = None;
    while let Ok(Some(instruction)) = instructions.next() {
        match instruction {
            CallFrameInstruction::DefCfaRegister { register }
            | CallFrameInstruction::DefCfa { register, .. }
            | CallFrameInstruction::DefCfaSf { register, .. }
                if register == rbp =>
            {
                return Some(true);
            }
            CallFrameInstruction::DefCfaOffset { .. } | CallFrameInstruction::DefCfaOffsetSf { .. } => {
                framed = Some(false);
            }
            _ => {}
        }
    }
    framed
}
