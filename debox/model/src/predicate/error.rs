// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong with the text of a predicate.

use std::fmt;
use std::ops::Range;

/// The longest predicate, in bytes.
pub const TEXT_MAX: usize = 4096;

/// What is wrong with the text of a predicate, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    text: String,
    place: Range<usize>,
    message: String,
    pub(super) help: Option<String>,
}

impl Error {
    pub(super) fn new(text: &str, place: Range<usize>, message: impl Into<String>) -> Error {
        Error {
            text: text.to_string(),
            place,
            message: message.into(),
            help: None,
        }
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Error {
        self.help = Some(help.into());
        self
    }

    /// The bytes of the text that are wrong; none at the end of the text.
    pub fn place(&self) -> Range<usize> {
        self.place.clone()
    }

    /// What is wrong, without the text.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    /// The message, the text with a line that marks the place, and help.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |text: &str| -> String {
            let shown = |c: char| if c.is_control() { ' ' } else { c };
            text.chars().map(shown).collect()
        };
        let before = self.text.get(..self.place.start).unwrap_or_default();
        let marked = self.text.get(self.place.clone()).unwrap_or_default();
        let carets = "^".repeat(marked.chars().count().max(1));
        let indent = " ".repeat(before.chars().count());
        writeln!(formatter, "{}", self.message)?;
        writeln!(formatter, "  {}", plain(&self.text))?;
        write!(formatter, "  {indent}{carets}")?;
        match &self.help {
            Some(help) => write!(formatter, "\n{help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}
