// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a benchmark has no result.

use std::fmt;
use std::io;

/// Why a benchmark has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The kernel, the machine or the rights do not allow it.
    Unavailable(String),
    /// The operation did something else than it should.
    Wrong(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Unavailable(reason) => f.write_str(reason),
            Failure::Wrong(reason) => write!(f, "wrong result: {reason}"),
        }
    }
}

/// Turns a refused call into a reason.
pub trait Available<T> {
    /// `what`: the call, or what was to be done.
    fn available(self, what: &str) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> Available<T> for Result<T, E> {
    fn available(self, what: &str) -> Result<T, Failure> {
        self.map_err(|error| {
            let error: io::Error = error.into();
            Failure::Unavailable(format!("{what}: {error}"))
        })
    }
}

/// Returns [`Failure::Wrong`] unless the condition holds.
pub fn verify(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Failure> {
    match holds {
        true => Ok(()),
        false => Err(Failure::Wrong(otherwise())),
    }
}
