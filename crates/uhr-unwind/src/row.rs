#![forbid(unsafe_code)]
//! One row of call frame information, compiled out of the file's bytes: how the caller's registers follow from these.

use gimli::{
    CfaRule, EndianSlice, Evaluation, EvaluationResult, Expression, LittleEndian, Location, RegisterRule,
    UnwindSection, Value,
};

use super::registers::{RIP, RSP, Registers};
use super::rules::Rules;
use super::stack::{Miss, StackWords};

pub(super) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Expressions in call frame information are a handful of operations; a forged one must end too.
const MAX_OPERATIONS: u32 = 256;
const MAX_EXPRESSION_BYTES: usize = 1024;
const ENCODING: gimli::Encoding =
    gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };

/// How the frame of one address is left.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Whether this is the frame that the kernel pushed for a signal: what it returns to is not behind a call.
    pub(super) is_signal_frame: bool,
    /// Whether the address is the last byte that the entry covers: a return address one further is outside.
    pub(super) is_last_byte: bool,
    /// Whether Go's linker wrote it, which says where the return address is, and of rbp nothing, though its code keeps
    /// frame pointers.
    pub(super) is_of_go: bool,
    /// Where the function begins.
    pub(super) function_start: u64,
    cfa: Cfa,
    return_address: Saved,
    saved: Box<[(u8, Saved)]>,
}

#[derive(Clone, Debug)]
enum Cfa {
    From(u8, i64),
    Expression(Box<[u8]>),
}

/// Where the caller's value of a register is.
#[derive(Clone, Debug)]
enum Saved {
    Unknown,
    AtCfa(i64),
    CfaPlus(i64),
    In(u8),
    AtExpression(Box<[u8]>),
    Expression(Box<[u8]>),
    Constant(u64),
}

/// Where a step out of a frame led.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// To this caller.
    Caller(Registers),
    /// Nowhere: this was the thread's first function.
    First,
}

impl Row {
    /// Compiles `row` of `section`. `None` if it has parts that no x86-64 compiler writes.
    pub(super) fn compile<'a, S: UnwindSection<Slice<'a>>>(
        section: &S,
        row: &Rules,
        fde: &gimli::FrameDescriptionEntry<Slice<'a>>,
        address: u64,
    ) -> Option<Self> {
        let return_column = fde.cie().return_address_register();
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => Cfa::From(number(*register)?, *offset),
            CfaRule::Expression(expression) => Cfa::Expression(bytes_of(section, expression)?),
        };
        let mut saved = Vec::new();
        for (register, rule) in row.registers() {
            let Some(register) = number(*register).filter(|&number| number < RIP) else { continue };
            if let Some(place) = Saved::compile(section, rule)? {
                saved.push((register, place));
            }
        }
        // A return address without any rule cannot be found; that it is undefined must be said.
        let return_address = Saved::compile(section, &row.register(return_column)?)??;
        Some(Self {
            is_signal_frame: fde.is_signal_trampoline(),
            is_last_byte: address.wrapping_add(1) == fde.end_address(),
            is_of_go: false,
            function_start: fde.initial_address(),
            cfa,
            return_address,
            saved: saved.into_boxed_slice(),
        })
    }

    /// Whether it says that nothing called this function.
    pub(super) fn ends_the_stack(&self) -> bool {
        matches!(self.return_address, Saved::Unknown)
    }

    /// The caller's registers. A saved register that cannot be read becomes unknown; only the return address must be
    /// found.
    pub(super) fn step(&self, regs: &Registers, stack: &mut StackWords<'_>) -> Result<Step, Miss> {
        if self.ends_the_stack() {
            return Ok(Step::First);
        }
        let cfa = match &self.cfa {
            Cfa::From(register, offset) => {
                regs.get(*register).ok_or(Miss::UnknownRegister)?.wrapping_add_signed(*offset)
            }
            Cfa::Expression(bytes) => evaluate(bytes, None, regs, stack)?,
        };
        let return_address = self.return_address.value(cfa, regs, stack)?;
        if return_address == 0 {
            return Ok(Step::First);
        }
        let mut caller = if self.is_signal_frame { *regs } else { regs.kept_by_callee() };
        caller.set(RIP, Some(return_address));
        caller.set(RSP, Some(cfa));
        for (register, place) in &self.saved {
            // Compilers go on naming the slot of a register that was popped. A slot below the stack pointer holds
            // nothing any more, and the register has its old value already.
            if let Saved::AtCfa(offset) = place
                && cfa.wrapping_add_signed(*offset) < regs.sp()
            {
                continue;
            }
            match place.value(cfa, regs, stack) {
                Ok(value) => caller.set(*register, Some(value)),
                Err(miss) if *register == RSP => return Err(miss),
                Err(_) => caller.set(*register, None),
            }
        }
        Ok(Step::Caller(caller))
    }
}

impl Saved {
    /// The place that a rule names; `Some(None)` for a register that is as it was.
    #[expect(
        clippy::option_option,
        reason = "the outer one is failure, the inner one is a rule without effect"
    )]
    fn compile<'a, S: UnwindSection<Slice<'a>>>(
        section: &S,
        rule: &RegisterRule<usize>,
    ) -> Option<Option<Self>> {
        Some(Some(match rule {
            RegisterRule::Undefined => Self::Unknown,
            RegisterRule::SameValue => return Some(None),
            RegisterRule::Offset(offset) => Self::AtCfa(*offset),
            RegisterRule::ValOffset(offset) => Self::CfaPlus(*offset),
            RegisterRule::Register(register) => Self::In(number(*register)?),
            RegisterRule::Expression(expression) => Self::AtExpression(bytes_of(section, expression)?),
            RegisterRule::ValExpression(expression) => Self::Expression(bytes_of(section, expression)?),
            RegisterRule::Constant(value) => Self::Constant(*value),
            _ => return None,
        }))
    }

    fn value(&self, cfa: u64, regs: &Registers, stack: &mut StackWords<'_>) -> Result<u64, Miss> {
        match self {
            Self::Unknown => Err(Miss::UnknownRegister),
            Self::AtCfa(offset) => stack.word(cfa.wrapping_add_signed(*offset)),
            Self::CfaPlus(offset) => Ok(cfa.wrapping_add_signed(*offset)),
            Self::In(register) => regs.get(*register).ok_or(Miss::UnknownRegister),
            Self::AtExpression(bytes) => {
                let address = evaluate(bytes, Some(cfa), regs, stack)?;
                stack.word(address)
            }
            Self::Expression(bytes) => evaluate(bytes, Some(cfa), regs, stack),
            Self::Constant(value) => Ok(*value),
        }
    }
}

fn number(register: gimli::Register) -> Option<u8> {
    u8::try_from(register.0).ok().filter(|&number| number <= RIP)
}

fn bytes_of<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    expression: &gimli::UnwindExpression<usize>,
) -> Option<Box<[u8]>> {
    let bytes = expression.get(section).ok()?.0.slice();
    (bytes.len() <= MAX_EXPRESSION_BYTES).then(|| bytes.into())
}

/// Evaluates an expression; those of saved registers begin with the CFA on their stack (DWARF 5, 6.4.2.3).
fn evaluate(
    bytes: &[u8],
    cfa: Option<u64>,
    regs: &Registers,
    stack: &mut StackWords<'_>,
) -> Result<u64, Miss> {
    let mut evaluation: Evaluation<Slice<'_>> =
        Expression(EndianSlice::new(bytes, LittleEndian)).evaluation(ENCODING);
    evaluation.set_max_iterations(MAX_OPERATIONS);
    if let Some(cfa) = cfa {
        evaluation.set_initial_value(cfa);
    }
    let mut state = evaluation.evaluate();
    loop {
        state = match state.map_err(|_| Miss::BadRule)? {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let value =
                    number(register).and_then(|number| regs.get(number)).ok_or(Miss::UnknownRegister)?;
                evaluation.resume_with_register(Value::Generic(value))
            }
            EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                let word = stack.word(address)?;
                evaluation.resume_with_memory(Value::Generic(word))
            }
            _ => return Err(Miss::BadRule),
        };
    }
    match evaluation.as_result().last().map(|piece| &piece.location) {
        Some(Location::Address { address }) => Ok(*address),
        _ => Err(Miss::BadRule),
    }
}
