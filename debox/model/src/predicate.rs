//! Predicates over the record of a call: `syscall == openat && blocked > 1ms && label != "epoll"`.
//!
//! # The language
//!
//! A predicate is made of tests, joined by `&&` and `||` (`&&` binds tighter), negated by `!`, and
//! grouped by parentheses.
//!
//! | fields | what they are | values |
//! | --- | --- | --- |
//! | `syscall` | the call's name as in the report; `(user)`: the time between calls | `openat`, `open*`, `"read (ia32)"` |
//! | `error` | the name of the error that it returned, or `none` | `ENOENT` |
//! | `ret` | the kernel's return value (`-errno` on error) | `0`, `-2`, `0x1000` |
//! | `wall` `cpu` `blocked` `runqueue` `preempted` `irq` | its wall time, and the parts of that | `200us`, `1.5ms`,
//! `2s` |
//! | `throttled` | the part of `runqueue` and `preempted` that a control group's CPU quota caused | as above |
//! | `spin` | the part of its CPU time that was spent spinning for locks | as above |
//! | `longest` | its longest single sleep | as above |
//! | `sleeps` | how often it slept | `3` |
//! | `faults_minor` `faults_major` | page faults that it took | `0` |
//! | `label` `class` | what the call slept on | `"page read"`, `disk` |
//! | `comm` | the thread's name | `"worker*"` |
//! | `cpu_owner` | the process that had the CPU for most of the time in which the call waited for one | `"gzip"` |
//! | `pid` `tid` | process and thread | `4711` |
//! | `arg0` `arg1` `arg2` | the first argument words, unsigned | `3`, `0xffffff9c` |
//! | `restarted` | a piece of a call that the kernel restarts (-512 to -516); written without a comparison | |
//!
//! - Numbers are compared by `==`, `!=`, `<`, `<=`, `>`, `>=`; names by `==` and `!=`. `in (a, b)`
//!   holds if `==` holds for one of the values.
//! - `*` in a name stands for any characters, none included: `syscall == open*`. Names with other
//!   characters than letters, digits and `_*.:/+-@%#` are put in quotes, in which `\"` is a quote
//!   and `\\` a backslash; `*` has its meaning there, too.
//! - Times have a unit: ns, us, ms, s or min. A whole number without one is in nanoseconds.
//! - `label == x` holds if the call slept at a site with that label; `label != x` if it did not: it is always the exact
//!   negation, also for calls that slept at several sites or at none. The same applies to `class`.
//! - `cpu_owner` leaves out what a quota caused. If the call did not wait for a CPU, or if the CPU was idle, `cpu_owner
//!   == x` does not hold and `cpu_owner != x` does. If it is not known who had the CPU, neither is true.
//! - A piece of a restarted call has no error: `error == none`.
//!
//! Unknown values in a record (interrupts that were not measured, a stack without a name) make a test neither true nor
//! false. The predicate then holds only if `&&`, `||` and `!` make it true for either answer; [`Predicate::truth`]
//! returns `None` if it is undecided.

mod check;
mod compile;
mod error;
mod evaluate;
mod expression;
mod fields;
mod parse;
mod print;
mod site_test;
#[cfg(test)]
mod tests;
mod unknown;
mod values;

pub use compile::{Code, Instruction, Program, TooLong, INSTRUCTIONS_MAX, SITE_TESTS_MAX};
pub use error::{Error, TEXT_MAX};
use expression::{Expression, Operator, Test};
pub use fields::{CpuOwner, Field, Fields, Number, Site};

pub use site_test::SiteTest;

/// A predicate over the record of a call, parsed and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Predicate {
    expression: Expression,
}

impl Predicate {
    /// Parses a predicate. The error shows the place and, if there is a similar name, suggests it.
    pub fn parse(text: &str) -> Result<Predicate, Error> {
        let raw = parse::parse(text)?;
        let expression = check::expression(text, &raw)?;
        Ok(Predicate { expression })
    }

    /// Whether the predicate holds for a record; `false` if that is unknown.
    pub fn holds(&self, record: &impl Fields) -> bool {
        self.truth(record) == Some(true)
    }

    /// Like [`Predicate::holds`]; `None` if the result depends on unknown values.
    pub fn truth(&self, record: &impl Fields) -> Option<bool> {
        evaluate::truth(&self.expression, record)
    }

    /// Compiles the predicate for the probes. Fails if it is too long for them, or tests what they cannot evaluate.
    pub fn compile(&self) -> Result<Program, TooLong> {
        compile::compile(&self.expression)
    }

    /// Whether the predicate tests a field: a session that does not measure the field can refuse the predicate.
    pub fn uses(&self, field: Field) -> bool {
        self.expression.tests().any(|test| test.field() == field)
    }

    /// Whether it names the time between calls.
    pub fn names_user_time(&self) -> bool {
        self.expression.tests().any(|test| match test {
            Test::Call { calls, .. } => calls.names_user_time(),
            _ => false,
        })
    }
}

impl std::str::FromStr for Predicate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Predicate, Error> {
        Predicate::parse(text)
    }
}
