//! Evaluates a predicate for a record.
//!
//! Unknown values follow Kleene's logic: false and anything is false, true or anything is true.

use super::fields::{error_of, CpuOwner, Fields};
use super::unknown::{both, either};
use super::values::Glob;
use super::{Expression, Operator, Test};

pub(super) fn truth(expression: &Expression, record: &impl Fields) -> Option<bool> {
    match expression {
        Expression::Test(test) => holds(test, record),
        Expression::Not(inner) => truth(inner, record).map(|holds| !holds),
        Expression::And(left, right) => match truth(left, record) {
            Some(false) => Some(false),
            left => both(left, truth(right, record)),
        },
        Expression::Or(left, right) => match truth(left, record) {
            Some(true) => Some(true),
            left => either(left, truth(right, record)),
        },
    }
}

fn holds(test: &Test, record: &impl Fields) -> Option<bool> {
    match test {
        Test::Restarted => Some(record.is_restarted()),
        Test::Number {
            field,
            operator,
            values,
        } => {
            let number = record.number(*field)?;
            Some(values.iter().any(|value| operator.compare(number, *value)))
        }
        Test::Call { operator, calls } => Some(operator.signed(calls.bits.has(record.call()))),
        Test::Error { operator, values } => {
            let error = error_of(record)?;
            Some(operator.signed(values.contains(&error)))
        }
        Test::Comm { operator, names } => {
            let comm = record.comm()?;
            Some(operator.signed(any(names, comm)))
        }
        Test::CpuOwner { operator, names } => match record.cpu_owner() {
            CpuOwner::Unknown => None,
            CpuOwner::Nobody => Some(operator.signed(false)),
            CpuOwner::Named(comm) => Some(operator.signed(any(names, comm))),
        },
        Test::Slept { operator, at } => at.truth(record).map(|slept| operator.signed(slept)),
    }
}

fn any(names: &[Glob], name: &str) -> bool {
    names.iter().any(|glob| glob.matches(name))
}

impl Operator {
    /// The answer of a `==` or `!=` test, given whether `==` holds for one of the values.
    fn signed(self, equals: bool) -> bool {
        match self {
            Operator::NotEqual => !equals,
            _ => equals,
        }
    }

    pub(super) fn compare(self, left: i128, right: i128) -> bool {
        match self {
            Operator::Equal | Operator::In => left == right,
            Operator::NotEqual => left != right,
            Operator::Less => left < right,
            Operator::LessOrEqual => left <= right,
            Operator::Greater => left > right,
            Operator::GreaterOrEqual => left >= right,
        }
    }
}
