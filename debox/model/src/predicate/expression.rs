// SPDX-License-Identifier: MIT OR Apache-2.0
//! A parsed predicate.

use super::fields::{Field, Number};
use super::site_test::SiteTest;
use super::values::{CallSet, Glob};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expression {
    Test(Test),
    Not(Box<Expression>),
    And(Box<Expression>, Box<Expression>),
    Or(Box<Expression>, Box<Expression>),
}

impl Expression {
    pub(super) fn tests(&self) -> Box<dyn Iterator<Item = &Test> + '_> {
        match self {
            Expression::Test(test) => Box::new(std::iter::once(test)),
            Expression::Not(inner) => inner.tests(),
            Expression::And(left, right) | Expression::Or(left, right) => {
                Box::new(left.tests().chain(right.tests()))
            }
        }
    }

    /// The negation; a double negation is removed.
    pub(super) fn negated(self) -> Expression {
        match self {
            Expression::Not(inner) => *inner,
            other => Expression::Not(Box::new(other)),
        }
    }
}

/// A comparison of one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Test {
    Number {
        field: Number,
        operator: Operator,
        values: Vec<i128>,
    },
    Call {
        operator: Operator,
        calls: CallSet,
    },
    /// Error numbers; 0 for none.
    Error {
        operator: Operator,
        values: Vec<i32>,
    },
    Comm {
        operator: Operator,
        names: Vec<Glob>,
    },
    CpuOwner {
        operator: Operator,
        names: Vec<Glob>,
    },
    Slept {
        operator: Operator,
        at: SiteTest,
    },
    Restarted,
}

impl Test {
    pub(super) fn field(&self) -> Field {
        match self {
            Test::Number { field, .. } => Field::Number(*field),
            Test::Call { .. } => Field::Syscall,
            Test::Error { .. } => Field::Error,
            Test::Comm { .. } => Field::Comm,
            Test::CpuOwner { .. } => Field::CpuOwner,
            Test::Slept { at, .. } => at.field(),
            Test::Restarted => Field::Restarted,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}
