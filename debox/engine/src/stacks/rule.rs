//! An unwinding rule for one address: where the caller's registers are.
//!
//! A rule is stored separately from its tables, so that these need not stay in memory.

use gimli::{
    CfaRule, Encoding, EndianSlice, Evaluation, EvaluationResult, Expression, LittleEndian,
    Location, RegisterRule, UnwindExpression, UnwindSection, UnwindTableRow, Value,
};

pub(super) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Registers of the x86-64 ABI, by DWARF number; 16 is the return address.
pub(super) const REGISTERS: usize = 17;
pub(super) const RBX: u16 = 3;
pub(super) const RDI: u16 = 5;
pub(crate) const RBP: u16 = 6;
pub(crate) const RSP: u16 = 7;
pub(super) const R10: u16 = 10;
pub(crate) const RETURN_ADDRESS: u16 = 16;

/// The most steps of one expression; those that compilers write take a handful.
const MAX_STEPS: u32 = 1000;
/// The most bytes of one expression.
const MAX_EXPRESSION: usize = 256;

/// Where the frame of a function begins (its "canonical frame address").
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FrameBase {
    Register(u16, i64),
    Expression(Box<[u8]>),
}

/// Where a register of the caller is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Saved {
    Undefined,
    Same,
    /// In memory, at this distance from the frame's base.
    At(i64),
    /// The frame's base plus this distance.
    Is(i64),
    InRegister(u16),
    AtExpression(Box<[u8]>),
    IsExpression(Box<[u8]>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rule {
    pub base: FrameBase,
    pub saved: Vec<(u16, Saved)>,
    /// The frame was interrupted by a signal: the caller's address is not a return address.
    pub is_signal: bool,
    pub encoding: Encoding,
}

impl Rule {
    /// `None` if the row has something that no x86-64 compiler writes.
    pub fn of<'a, S: UnwindSection<Slice<'a>>>(
        section: &S,
        row: &UnwindTableRow<usize>,
        encoding: Encoding,
        is_signal: bool,
    ) -> Option<Rule> {
        let copy = |expression: &UnwindExpression<usize>| -> Option<Box<[u8]>> {
            let bytes = expression.get(section).ok()?.0.slice();
            (bytes.len() <= MAX_EXPRESSION).then(|| bytes.into())
        };
        let base = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                FrameBase::Register(register.0, *offset)
            }
            CfaRule::Expression(expression) => FrameBase::Expression(copy(expression)?),
        };
        let mut saved = Vec::new();
        for (register, rule) in row.registers() {
            if usize::from(register.0) >= REGISTERS {
                continue; // vector and segment registers are not needed for unwinding
            }
            let rule = match rule {
                RegisterRule::Undefined => Saved::Undefined,
                RegisterRule::SameValue => Saved::Same,
                RegisterRule::Offset(offset) => Saved::At(*offset),
                RegisterRule::ValOffset(offset) => Saved::Is(*offset),
                RegisterRule::Register(register) => Saved::InRegister(register.0),
                RegisterRule::Expression(expression) => Saved::AtExpression(copy(expression)?),
                RegisterRule::ValExpression(expression) => Saved::IsExpression(copy(expression)?),
                _ => return None,
            };
            saved.push((register.0, rule));
        }
        Some(Rule {
            base,
            saved,
            is_signal,
            encoding,
        })
    }

    pub fn saved(&self, register: u16) -> Option<&Saved> {
        let found = self.saved.iter().find(|(of, _)| *of == register);
        found.map(|(_, saved)| saved)
    }
}

/// The state that an expression may read.
pub(super) trait Machine {
    fn register(&mut self, number: u16) -> Option<u64>;
    fn memory(&mut self, address: u64) -> Option<u64>;
}

/// The value of an expression; `initial` is on its stack when it begins.
pub(super) fn evaluate(
    bytes: &[u8],
    encoding: Encoding,
    initial: Option<u64>,
    machine: &mut impl Machine,
) -> Option<u64> {
    let expression = Expression(EndianSlice::new(bytes, LittleEndian));
    let mut evaluation: Evaluation<Slice<'_>> = expression.evaluation(encoding);
    evaluation.set_max_iterations(MAX_STEPS);
    if let Some(initial) = initial {
        evaluation.set_initial_value(initial);
    }
    let mut state = evaluation.evaluate().ok()?;
    // Each round supplies one value; the evaluation itself counts its steps.
    for _ in 0..MAX_STEPS {
        state = match state {
            EvaluationResult::Complete => {
                return match evaluation.as_result().last()?.location {
                    Location::Address { address } => Some(address),
                    Location::Value { value } => value.to_u64(u64::MAX).ok(),
                    _ => None,
                };
            }
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = machine.register(register.0)?;
                evaluation
                    .resume_with_register(Value::Generic(value))
                    .ok()?
            }
            EvaluationResult::RequiresMemory {
                address, size: 8, ..
            } => {
                let value = machine.memory(address)?;
                evaluation.resume_with_memory(Value::Generic(value)).ok()?
            }
            _ => return None,
        };
    }
    None
}
