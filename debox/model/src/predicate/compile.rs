//! Compiles predicates for the probes: a few instructions for a stack of truth values.
//!
//! Each instruction tests a field and pushes the answer on the stack, or combines the topmost answers. An
//! answer is true, false or unknown, as in `evaluate.rs`; two words of bits hold the whole stack
//! (debox/probe/trigger.h). The probes do not know labels and classes: each test of a label or class has
//! a number, and the engine supplies the stacks for which it holds.

use std::fmt;

use super::fields::{error_of, CpuOwner, Fields, Kind, Number};
use super::site_test::SiteTest;
use super::unknown::{both, either};
use super::values::{CallBits, Glob};
use super::{Expression, Operator, Test};
use crate::COMM_LEN;

/// Limits of one program.
pub const INSTRUCTIONS_MAX: usize = 32;
pub(super) const CALL_SETS_MAX: usize = 4;
pub(super) const NAMES_MAX: usize = 4;
/// Also the bits of one trigger in an answer (debox/probe/shared.h).
pub const SITE_TESTS_MAX: usize = 8;

/// One step of a program: `operation` determines the meaning of the other fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Instruction {
    pub operation: u8,
    /// The number of a [`Number`], or [`FIELD_ERROR`].
    pub field: u8,
    /// The index of a set of calls, a name, or a test of sites.
    pub index: u16,
    reserved: u32,
    pub value: u64,
}

pub const EQUAL: u8 = 0;
pub const NOT_EQUAL: u8 = 1;
pub const LESS: u8 = 2;
pub const LESS_OR_EQUAL: u8 = 3;
pub const GREATER: u8 = 4;
pub const GREATER_OR_EQUAL: u8 = 5;
/// The call is one of a set.
pub const CALL: u8 = 6;
/// The thread's name matches in the bits of the mask.
pub const COMM: u8 = 7;
/// The call slept at a site for which a test holds.
pub const SITE: u8 = 8;
pub const AND: u8 = 9;
pub const OR: u8 = 10;
pub const NOT: u8 = 11;
pub const RESTARTED: u8 = 12;
/// The name of the process that had the CPU which the call waited for matches in the bits of the mask.
pub const CPU_OWNER: u8 = 13;

/// A field number beside those of [`Number`].
pub const FIELD_ERROR: u8 = 18;

/// Added to values of `ret`, which are compared unsigned.
pub const SIGN: u64 = 1 << 63;

/// A thread's name, as two words, and which bits of them count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct NameBits {
    words: [u64; 2],
    masks: [u64; 2],
}

/// A predicate for the probes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub code: Code,
    /// The tests of [`SITE`] instructions, by their index.
    pub sites: Vec<SiteTest>,
}

/// The program as it is stored in the probes' map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Code {
    pub used: u32,
    reserved: u32,
    pub instructions: [Instruction; INSTRUCTIONS_MAX],
    pub calls: [CallBits; CALL_SETS_MAX],
    pub names: [NameBits; NAMES_MAX],
}

/// Why a predicate cannot be evaluated by the probes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TooLong {
    Instructions(usize),
    CallTests,
    Names,
    SiteTests,
    /// A pattern for the name of a thread or process with `*` elsewhere than at its end.
    Pattern(String),
}

impl fmt::Display for TooLong {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "the predicate is too complex for the probes: ")?;
        match self {
            TooLong::Instructions(count) => write!(
                to,
                "it takes {count} instructions of {INSTRUCTIONS_MAX}; n comparisons take 2n - 1"
            ),
            TooLong::CallTests => write!(
                to,
                "`syscall` is compared more than {CALL_SETS_MAX} times; \
                 `syscall in (a, b, ...)` is one comparison"
            ),
            TooLong::Names => write!(
                to,
                "`comm` and `cpu_owner` are compared with more than {NAMES_MAX} names"
            ),
            TooLong::SiteTests => write!(
                to,
                "`label` and `class` are compared more than {SITE_TESTS_MAX} times; \
                 `label in (a, b, ...)` is one comparison"
            ),
            TooLong::Pattern(pattern) => write!(
                to,
                "`\"{pattern}\"`: they compare the names of threads and processes as a whole, or \
                 their beginning (\"name*\")"
            ),
        }
    }
}

impl std::error::Error for TooLong {}

pub(super) fn compile(expression: &Expression) -> Result<Program, TooLong> {
    let mut compiler = Compiler::default();
    compiler.expression(expression)?;
    let count = compiler.instructions.len();
    if count > INSTRUCTIONS_MAX {
        return Err(TooLong::Instructions(count));
    }
    let mut code = Code {
        used: count as u32,
        reserved: 0,
        instructions: [Instruction::default(); INSTRUCTIONS_MAX],
        calls: [CallBits::default(); CALL_SETS_MAX],
        names: [NameBits::default(); NAMES_MAX],
    };
    code.instructions[..count].copy_from_slice(&compiler.instructions);
    code.calls[..compiler.calls.len()].copy_from_slice(&compiler.calls);
    code.names[..compiler.names.len()].copy_from_slice(&compiler.names);
    Ok(Program {
        code,
        sites: compiler.sites,
    })
}

#[derive(Default)]
struct Compiler {
    instructions: Vec<Instruction>,
    calls: Vec<CallBits>,
    names: Vec<NameBits>,
    sites: Vec<SiteTest>,
}

impl Compiler {
    fn expression(&mut self, expression: &Expression) -> Result<(), TooLong> {
        match expression {
            Expression::Test(test) => self.test(test),
            Expression::Not(inner) => {
                self.expression(inner)?;
                self.join(NOT);
                Ok(())
            }
            Expression::And(left, right) => {
                self.expression(left)?;
                self.expression(right)?;
                self.join(AND);
                Ok(())
            }
            Expression::Or(left, right) => {
                self.expression(left)?;
                self.expression(right)?;
                self.join(OR);
                Ok(())
            }
        }
    }

    fn test(&mut self, test: &Test) -> Result<(), TooLong> {
        match test {
            Test::Restarted => self.push(RESTARTED, 0, 0, 0),
            Test::Number {
                field,
                operator,
                values,
            } => {
                for (index, value) in values.iter().enumerate() {
                    self.push(operator.code(), *field as u8, 0, word(*field, *value));
                    self.join_list(index);
                }
            }
            Test::Error { operator, values } => {
                for (index, value) in values.iter().enumerate() {
                    self.push(operator.code(), FIELD_ERROR, 0, *value as u64);
                    self.join_list(index);
                }
            }
            Test::Call { operator, calls } => {
                let index = place(&mut self.calls, calls.bits, CALL_SETS_MAX);
                self.push(CALL, 0, index.ok_or(TooLong::CallTests)?, 0);
                self.negate(*operator);
            }
            Test::Comm { operator, names } => self.names(COMM, *operator, names)?,
            Test::CpuOwner { operator, names } => self.names(CPU_OWNER, *operator, names)?,
            Test::Slept { operator, at } => {
                let index = place(&mut self.sites, at.clone(), SITE_TESTS_MAX);
                self.push(SITE, 0, index.ok_or(TooLong::SiteTests)?, 0);
                self.negate(*operator);
            }
        }
        Ok(())
    }

    fn names(&mut self, operation: u8, operator: Operator, names: &[Glob]) -> Result<(), TooLong> {
        for (index, name) in names.iter().enumerate() {
            let bits = NameBits::of(name)?;
            let at = place(&mut self.names, bits, NAMES_MAX);
            self.push(operation, 0, at.ok_or(TooLong::Names)?, 0);
            self.join_list(index);
        }
        self.negate(operator);
        Ok(())
    }

    fn push(&mut self, operation: u8, field: u8, index: u16, value: u64) {
        self.instructions.push(Instruction {
            operation,
            field,
            index,
            reserved: 0,
            value,
        });
    }

    fn join(&mut self, operation: u8) {
        self.push(operation, 0, 0, 0);
    }

    /// Joins the answer for a value of a list with those for the values before it.
    fn join_list(&mut self, index: usize) {
        if index > 0 {
            self.join(OR);
        }
    }

    fn negate(&mut self, operator: Operator) {
        if operator == Operator::NotEqual {
            self.join(NOT);
        }
    }
}

/// The index of `item` in `items`, to which it is added if it is missing.
fn place<T: PartialEq>(items: &mut Vec<T>, item: T, most: usize) -> Option<u16> {
    let at = items.iter().position(|known| *known == item);
    let at = at.unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    });
    (at < most).then_some(at as u16)
}

/// A value in the form in which the probes compare it.
fn word(field: Number, value: i128) -> u64 {
    match field.kind() {
        Kind::Signed => value as u64 ^ SIGN,
        _ => value as u64,
    }
}

impl Operator {
    fn code(self) -> u8 {
        match self {
            Operator::Equal | Operator::In => EQUAL,
            Operator::NotEqual => NOT_EQUAL,
            Operator::Less => LESS,
            Operator::LessOrEqual => LESS_OR_EQUAL,
            Operator::Greater => GREATER,
            Operator::GreaterOrEqual => GREATER_OR_EQUAL,
        }
    }
}

impl NameBits {
    fn of(glob: &Glob) -> Result<NameBits, TooLong> {
        let pattern = glob.pattern();
        let (begin, is_whole) = match pattern.strip_suffix('*') {
            Some(begin) => (begin, false),
            None => (pattern, true),
        };
        if begin.contains('*') {
            return Err(TooLong::Pattern(pattern.to_string()));
        }
        let bytes = begin.as_bytes();
        let mut name = [0; COMM_LEN];
        let mut mask = [0; COMM_LEN];
        // No name is longer than the array without its terminating zero.
        let kept = bytes.len().min(COMM_LEN);
        name[..kept].copy_from_slice(&bytes[..kept]);
        mask[..kept].fill(0xff);
        if is_whole {
            mask.fill(0xff);
        }
        let (words, masks) = (as_words(name), as_words(mask));
        Ok(NameBits { words, masks })
    }

    fn matches(&self, comm: &str) -> bool {
        let mut name = [0; COMM_LEN];
        let kept = comm.len().min(COMM_LEN - 1);
        name[..kept].copy_from_slice(&comm.as_bytes()[..kept]);
        let name = as_words(name);
        (0..2).all(|i| (name[i] ^ self.words[i]) & self.masks[i] == 0)
    }
}

fn as_words(bytes: [u8; COMM_LEN]) -> [u64; 2] {
    let word = |at: usize| {
        let mut eight = [0; 8];
        eight.copy_from_slice(&bytes[at..at + 8]);
        u64::from_ne_bytes(eight)
    };
    [word(0), word(8)]
}

impl Program {
    /// What the probes answer for a record.
    pub fn truth(&self, record: &impl Fields) -> Option<bool> {
        let mut stack: Vec<Option<bool>> = Vec::new();
        for instruction in &self.code.instructions[..self.code.used as usize] {
            let answer = match instruction.operation {
                AND | OR => {
                    let (right, left) = (stack.pop()?, stack.pop()?);
                    match instruction.operation {
                        AND => both(left, right),
                        _ => either(left, right),
                    }
                }
                NOT => stack.pop()?.map(|holds| !holds),
                _ => self.test(instruction, record),
            };
            stack.push(answer);
        }
        stack.pop()?
    }

    fn test(&self, instruction: &Instruction, record: &impl Fields) -> Option<bool> {
        let index = usize::from(instruction.index);
        match instruction.operation {
            CALL => Some(self.code.calls[index].has(record.call())),
            COMM => record
                .comm()
                .map(|comm| self.code.names[index].matches(comm)),
            CPU_OWNER => match record.cpu_owner() {
                CpuOwner::Unknown => None,
                CpuOwner::Nobody => Some(false),
                CpuOwner::Named(comm) => Some(self.code.names[index].matches(comm)),
            },
            SITE => self.sites[index].truth(record),
            RESTARTED => Some(record.is_restarted()),
            operation => {
                let left = match instruction.field {
                    FIELD_ERROR => error_of(record)? as u64,
                    number => {
                        let field = Number::ALL[usize::from(number)];
                        word(field, record.number(field)?)
                    }
                };
                let right = instruction.value;
                Some(match operation {
                    EQUAL => left == right,
                    NOT_EQUAL => left != right,
                    LESS => left < right,
                    LESS_OR_EQUAL => left <= right,
                    GREATER => left > right,
                    _ => left >= right,
                })
            }
        }
    }
}
