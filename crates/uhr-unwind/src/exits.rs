#![forbid(unsafe_code)]
//! How a function is left from one of its instructions on, read out of its code: along each way to a `ret`, what is done to the
//! stack pointer says where the return address lies now. A call leaves the stack pointer as it was.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};
use rustc_hash::FxHashSet;

use super::registers::RBP;

/// What one search may take, in instructions that are looked at. A JVM's compiler puts whole programs into one function.
pub(super) const MAX_WORK: usize = 8192;
/// When the first way out is found, others are looked for among as many instructions again, and these: a JVM's compiler makes functions of
/// thousands of instructions, of which nearly all lead to the same.
const FURTHER: usize = 64;
/// What it takes to read a piece of code, in the same measure: about a microsecond.
const READ_WORK: usize = 16;
/// Different ways out that are tried. A call that does not return leads into the function behind it, whose exit is not ours.
const MAX_EXITS: usize = 4;
/// Bytes of a piece of code that is read.
const WINDOW: usize = 1024;
/// The longest instruction.
const MAX_BYTES: usize = 15;

/// A way out of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Exit {
    /// Where, counted from the stack pointer (or from rbp), the return address is.
    pub(super) return_address: i64,
    /// Whether it counts from rbp.
    pub(super) from_bp: bool,
    /// Whether rbp is then another than now, and not popped.
    pub(super) loses_bp: bool,
    /// Whether nothing but this can happen from here on: no branch, no call.
    pub(super) is_straight: bool,
    /// Where each of [`KEPT`] is popped on the way.
    popped: [Option<i32>; KEPT.len()],
}

/// DWARF's numbers of the registers that a function must leave as they were, but for rsp.
const KEPT: [u8; 6] = [3, RBP, 12, 13, 14, 15];

impl Exit {
    /// Registers that are popped on the way, under their DWARF numbers, and where, counted as the return address is.
    pub(super) fn popped(&self) -> impl Iterator<Item = (u8, i64)> {
        KEPT.into_iter().zip(self.popped).filter_map(|(register, at)| Some((register, i64::from(at?))))
    }
}

/// What rbp is on a way out, once the function has gone some of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bp {
    /// As now.
    Same,
    /// So far above the stack pointer of now.
    AboveSp(i64),
    /// Popped.
    Callers,
    Unknown,
}

/// A way out, as far as it was followed.
#[derive(Clone, Copy)]
struct Way {
    at: u64,
    bp: Bp,
    /// `return_address` is where the stack pointer is by now.
    exit: Exit,
}

/// What a search has found, and what it took.
pub(super) struct Search {
    pub(super) exits: Vec<Exit>,
    pub(super) work: usize,
}

/// The ways out of the function from the instruction at `start` on, first those that branch late: compilers put what ends a
/// function behind what it does, and what seldom happens behind that. `read` gets code, as much as there is. It ends when it
/// has taken [`MAX_WORK`].
pub(super) fn exits(start: u64, mut read: impl FnMut(u64, &mut [u8]) -> usize) -> Search {
    let (mut found, mut work) = (Vec::new(), 0);
    let (mut seen, mut infos) = (FxHashSet::default(), InstructionInfoFactory::new());
    let (mut bytes, mut from, mut length) = ([0; WINDOW], 0, 0);
    let mut first = None;
    let nothing_done = Exit { is_straight: true, ..Exit::default() };
    let mut ways = vec![Way { at: start, bp: Bp::Same, exit: nothing_done }];
    while let Some(mut way) = ways.pop() {
        if work >= MAX_WORK {
            break;
        }
        if !seen.insert(way.at) {
            continue;
        }
        work += 1;
        let is_in_window = way.at.checked_sub(from).is_some_and(|at| at + MAX_BYTES as u64 <= length as u64);
        if !is_in_window {
            (from, length, work) = (way.at, read(way.at, &mut bytes), work + READ_WORK);
        }
        let within = (way.at - from) as usize;
        let code = &bytes[within..length.max(within)];
        let instruction = Decoder::with_ip(64, code, way.at, DecoderOptions::NONE).decode();
        if instruction.is_invalid() || !way.follow(&instruction, &mut infos) {
            continue;
        }
        way.at = instruction.next_ip();
        way.exit.is_straight &= matches!(instruction.flow_control(), FlowControl::Next | FlowControl::Return);
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => ways.push(way),
            FlowControl::UnconditionalBranch => {
                ways.push(Way { at: instruction.near_branch_target(), ..way });
            }
            FlowControl::ConditionalBranch => {
                ways.push(Way { at: instruction.near_branch_target(), ..way });
                ways.push(way);
            }
            FlowControl::Return => {
                if let Some(exit) = way.end()
                    && !found.contains(&exit)
                {
                    found.push(exit);
                }
            }
            _ => {}
        }
        first = first.or((!found.is_empty()).then_some(seen.len()));
        if found.len() >= MAX_EXITS || first.is_some_and(|first| seen.len() > 2 * first + FURTHER) {
            break;
        }
    }
    Search { exits: found, work }
}

impl Way {
    /// Does to the stack pointer and to rbp what the instruction does. False: it is not known what that is.
    fn follow(&mut self, instruction: &Instruction, infos: &mut InstructionInfoFactory) -> bool {
        let sp = self.exit.return_address;
        let (to, from) = (instruction.op0_register(), instruction.op1_register());
        match instruction.mnemonic() {
            Mnemonic::Call | Mnemonic::Ret => return true,
            Mnemonic::Pop if instruction.op0_kind() == OpKind::Register => return self.pop(to),
            Mnemonic::Leave => return self.restore_sp(0) && self.pop(Register::RBP),
            Mnemonic::Mov if (to, from) == (Register::RBP, Register::RSP) => return self.set_bp(sp),
            Mnemonic::Mov if (to, from) == (Register::RSP, Register::RBP) => return self.restore_sp(0),
            Mnemonic::Lea if instruction.memory_index() == Register::None => {
                let distance = instruction.memory_displacement64().cast_signed();
                match (to, instruction.memory_base()) {
                    (Register::RSP, Register::RSP) => return self.set_sp(sp.checked_add(distance)),
                    (Register::RSP, Register::RBP) => return self.restore_sp(distance),
                    (Register::RBP, Register::RSP) => {
                        return sp.checked_add(distance).is_some_and(|at| self.set_bp(at));
                    }
                    _ => {}
                }
            }
            Mnemonic::Add | Mnemonic::Sub if to == Register::RSP => {
                let is_immediate =
                    matches!(instruction.op1_kind(), OpKind::Immediate8to64 | OpKind::Immediate32to64);
                let amount =
                    if is_immediate { instruction.immediate(1).cast_signed() } else { return false };
                let is_add = instruction.mnemonic() == Mnemonic::Add;
                return self.set_sp(if is_add { sp.checked_add(amount) } else { sp.checked_sub(amount) });
            }
            _ => {}
        }
        if instruction.is_stack_instruction() {
            return self.set_sp(sp.checked_add(i64::from(instruction.stack_pointer_increment())));
        }
        for used in infos.info(instruction).used_registers() {
            let is_written = !matches!(used.access(), OpAccess::None | OpAccess::Read | OpAccess::CondRead);
            match used.register().full_register() {
                Register::RSP if is_written => return false,
                Register::RBP if is_written => self.bp = Bp::Unknown,
                _ => {}
            }
        }
        true
    }

    fn set_sp(&mut self, sp: Option<i64>) -> bool {
        self.exit.return_address = sp.unwrap_or(i64::MIN);
        sp.is_some()
    }

    fn set_bp(&mut self, at: i64) -> bool {
        self.bp = if self.exit.from_bp { Bp::Unknown } else { Bp::AboveSp(at) };
        true
    }

    /// The stack pointer becomes what rbp is, and `distance` more.
    fn restore_sp(&mut self, distance: i64) -> bool {
        match self.bp {
            Bp::Same => {
                // What was popped before counts from the stack pointer, which is no longer known from rbp.
                let is_straight = self.exit.is_straight;
                self.exit = Exit { from_bp: true, return_address: distance, is_straight, ..Exit::default() };
                true
            }
            Bp::AboveSp(at) => self.set_sp(at.checked_add(distance)),
            Bp::Callers | Bp::Unknown => false,
        }
    }

    fn pop(&mut self, register: Register) -> bool {
        let at = self.exit.return_address;
        let kept = place_in_kept(register);
        // What was pushed on the way is the register's own value.
        let is_saved = self.exit.from_bp || at >= 0;
        if is_saved && let Some(slot) = kept.and_then(|kept| self.exit.popped.get_mut(kept)) {
            // Nobody pops from a stack that is not aligned, or from so large a frame.
            let Some(at) = i32::try_from(at).ok().filter(|at| at % 8 == 0) else { return false };
            *slot = Some(at);
        }
        if register == Register::RBP {
            self.bp = if is_saved { Bp::Callers } else { Bp::Same };
        }
        register != Register::RSP && self.set_sp(at.checked_add(8))
    }

    /// Ends at a `ret`. What that takes off the stack besides is not followed: only V8's code does it, which keeps frame
    /// pointers.
    fn end(self) -> Option<Exit> {
        let exit = Exit { loses_bp: matches!(self.bp, Bp::Unknown | Bp::AboveSp(_)), ..self.exit };
        // A frame does not shrink below the stack pointer.
        (exit.from_bp || exit.return_address >= 0).then_some(exit)
    }
}

/// Where a register stands in [`KEPT`].
fn place_in_kept(register: Register) -> Option<usize> {
    const IN_ORDER: [Register; KEPT.len()] =
        [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];
    IN_ORDER.iter().position(|&kept| kept == register)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: &[u8]) -> Vec<Exit> {
        let search = exits(0x1000, |at, out| {
            let rest = at.checked_sub(0x1000).and_then(|at| code.get(at as usize..)).unwrap_or_default();
            let length = rest.len().min(out.len());
            out[..length].copy_from_slice(&rest[..length]);
            length
        });
        search.exits
    }

    #[test]
    fn straight_ways_out() {
        let cpython = Exit { return_address: 8, ..Exit::default() };
        let straight = |exit: Exit| Exit { is_straight: true, ..exit };
        assert_eq!(of(&[0x48, 0x83, 0xc4, 0x08, 0xc3]), [straight(cpython)]);
        assert_eq!(of(&[0xc2, 0x10, 0x00]), [straight(Exit::default())]); // ret 16
        // The same trampoline at its call: `call *%rcx; add $8,%rsp; ret`, and at its first instruction.
        let at_call = [0xff, 0xd1, 0x48, 0x83, 0xc4, 0x08, 0xc3];
        assert_eq!(of(&at_call), [cpython]);
        let at_start = [&[0x48, 0x83, 0xec, 0x08][..], &at_call].concat();
        assert_eq!(of(&at_start), [Exit::default()]);
        let saved = of(&[0x48, 0x81, 0xc4, 0x00, 0x01, 0, 0, 0x5b, 0x5d, 0x41, 0x5c, 0xc3]);
        assert_eq!(saved[0].return_address, 0x118);
        assert!(saved[0].popped().eq([(3, 0x100), (6, 0x108), (12, 0x110)]));
        // leave; ret
        let leave = of(&[0xc9, 0xc3])[0];
        assert_eq!((leave.return_address, leave.from_bp, leave.popped().next()), (8, true, Some((6, 0))));
        // push %rbp; mov %rsp,%rbp; sub $32,%rsp; leave; ret
        let whole = of(&[0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20, 0xc9, 0xc3]);
        assert_eq!(whole, [straight(Exit::default())]);
    }

    #[test]
    fn ways_that_lead_nowhere() {
        assert_eq!(
            of(&[0x48, 0x83, 0xc4, 0xf8, 0xc3]),
            [],
            "a frame does not shrink below the stack pointer"
        );
        assert_eq!(of(&[0x48, 0x29, 0xc4, 0xc3]), [], "by a register"); // sub %rax,%rsp; ret
        assert_eq!(of(&[0xff, 0xe0]), [], "through a register"); // jmp *%rax
        assert_eq!(of(&[0xeb, 0xfe]), [], "round and round"); // jmp .
        assert_eq!(of(&[0x5b, 0xe8]), [], "cut");
        assert_eq!(of(&[0x58; 2000]), [], "too long");
    }

    #[test]
    fn a_search_takes_what_it_may() {
        // jmp to 4096 further on, without end.
        let far = |_, out: &mut [u8]| {
            out[..5].copy_from_slice(&[0xe9, 0xfb, 0x0f, 0, 0]);
            out.len()
        };
        let mut reads = 0;
        let search = exits(0x1000, |at, out| {
            reads += 1;
            far(at, out)
        });
        assert!(search.exits.is_empty());
        assert!((MAX_WORK..MAX_WORK + 2 * READ_WORK).contains(&search.work), "{}", search.work);
        assert_eq!(reads, search.work / (READ_WORK + 1));
    }

    #[test]
    fn both_sides_of_a_branch() {
        // je +6; add $8,%rsp; pop %rbx; ret; add $40,%rsp; pop %rbp; ret
        let code = [0x74, 0x06, 0x48, 0x83, 0xc4, 0x08, 0x5b, 0xc3, 0x48, 0x83, 0xc4, 0x28, 0x5d, 0xc3];
        let found: Vec<_> =
            of(&code).iter().map(|exit| (exit.return_address, exit.popped().next())).collect();
        assert_eq!(found, [(16, Some((3, 8))), (48, Some((6, 40)))]);
        // xor %ebp,%ebp; ret
        assert!(of(&[0x31, 0xed, 0xc3])[0].loses_bp);
        // push %rbp; xor %ebp,%ebp; pop %rbp; ret
        assert_eq!(of(&[0x55, 0x31, 0xed, 0x5d, 0xc3]), [Exit { is_straight: true, ..Exit::default() }]);
    }
}
