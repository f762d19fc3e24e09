//! Prints predicates as text that parses to the same predicate.

use std::fmt;

use super::fields::Kind;
use super::values::{self, Glob};
use super::{parse, Expression, Operator, Predicate, Test};

impl fmt::Display for Predicate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expression.print(formatter, 0)
    }
}

impl Expression {
    /// The operator's precedence.
    fn level(&self) -> u8 {
        match self {
            Expression::Or(..) => 1,
            Expression::And(..) => 2,
            Expression::Not(_) | Expression::Test(_) => 3,
        }
    }

    /// In parentheses if it binds less tightly than `least`.
    fn print(&self, to: &mut fmt::Formatter<'_>, least: u8) -> fmt::Result {
        let level = self.level();
        if level < least {
            write!(to, "(")?;
        }
        match self {
            Expression::Test(test) => test.print(to)?,
            Expression::Not(inner) => {
                // A negated expression is a single word, or in parentheses.
                let is_word = matches!(**inner, Expression::Test(Test::Restarted));
                write!(to, "!")?;
                inner.print(to, if is_word { 0 } else { 4 })?;
            }
            Expression::And(left, right) | Expression::Or(left, right) => {
                left.print(to, level)?;
                write!(to, " {} ", if level == 2 { "&&" } else { "||" })?;
                right.print(to, level + 1)?;
            }
        }
        if level < least {
            write!(to, ")")?;
        }
        Ok(())
    }
}

impl Test {
    fn print(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let globs = |names: &[Glob]| names.iter().map(|name| quoted(name.pattern())).collect();
        let (operator, values): (Operator, Vec<String>) = match self {
            Test::Restarted => return write!(to, "restarted"),
            Test::Number {
                field,
                operator,
                values,
            } => {
                let is_time = field.kind() == Kind::Time;
                let print = |value: &i128| match is_time {
                    true => values::print_time(*value),
                    false => value.to_string(),
                };
                (*operator, values.iter().map(print).collect())
            }
            Test::Error { operator, values } => {
                let name = |number: &i32| {
                    let known = values::errors().iter().find(|(_, known)| known == number);
                    known.map_or_else(|| number.to_string(), |(name, _)| name.clone())
                };
                (*operator, values.iter().map(name).collect())
            }
            Test::Call { operator, calls } => (*operator, globs(&calls.names)),
            Test::Comm { operator, names } | Test::CpuOwner { operator, names } => {
                (*operator, globs(names))
            }
            Test::Slept { operator, at } => (*operator, globs(at.globs())),
        };
        write!(to, "{} {} ", self.field().name(), operator.text())?;
        match operator {
            Operator::In => write!(to, "({})", values.join(", ")),
            _ => write!(to, "{}", values.join(", ")),
        }
    }
}

impl Operator {
    pub(super) fn text(self) -> &'static str {
        match self {
            Operator::Equal => "==",
            Operator::NotEqual => "!=",
            Operator::Less => "<",
            Operator::LessOrEqual => "<=",
            Operator::Greater => ">",
            Operator::GreaterOrEqual => ">=",
            Operator::In => "in",
        }
    }
}

fn quoted(name: &str) -> String {
    let is_word = !name.is_empty() && name.chars().all(parse::is_word);
    if is_word || name == crate::calls::USER {
        return name.to_string();
    }
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}
