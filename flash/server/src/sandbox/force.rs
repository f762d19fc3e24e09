// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which limits are in force.

use std::fmt;

/// A part of the sandbox: in force, in which form; or not, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    On(String),
    Off(String),
}

/// What is in force in a thread, or in all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub landlock: Part,
    pub seccomp: Part,
}

impl Part {
    pub fn is_on(&self) -> bool {
        matches!(self, Part::On(_))
    }

    /// The one that is not in force, if one is not.
    pub fn weaker(self, other: Part) -> Part {
        if self.is_on() {
            other
        } else {
            self
        }
    }
}

impl Status {
    /// Of no thread.
    pub fn off() -> Status {
        let off = || Part::Off("off (--no-sandbox)".to_string());
        Status {
            landlock: off(),
            seccomp: off(),
        }
    }

    /// What is in force in both.
    pub fn weaker(self, other: Status) -> Status {
        Status {
            landlock: self.landlock.weaker(other.landlock),
            seccomp: self.seccomp.weaker(other.seccomp),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |part: &Part| match part {
            Part::On(text) | Part::Off(text) => text.clone(),
        };
        write!(
            out,
            "Landlock: {}; seccomp: {}",
            text(&self.landlock),
            text(&self.seccomp)
        )
    }
}
