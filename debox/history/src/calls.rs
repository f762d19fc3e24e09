// SPDX-License-Identifier: MIT OR Apache-2.0
//! The records of a history, one by one.

use std::ops::Range;

use anyhow::{Context, Result};
use debox_model::history::Call;

use crate::read::{Batches, File, History};
use crate::rows::{calls, ALL};

impl History {
    /// The rows as records. Slower than columns.
    pub fn calls(&self) -> Rows<'_> {
        Rows::new(self, None)
    }

    /// Like [`History::calls`], without the groups of rows that, by the files' statistics, began
    /// outside `span` (nanoseconds since 1970). Only whole groups are skipped.
    pub fn calls_within(&self, span: Range<i128>) -> Rows<'_> {
        Rows::new(self, Some(span))
    }
}

/// The records of a history, one by one, each with its file.
pub struct Rows<'a> {
    batches: Batches<'a>,
    ready: std::vec::IntoIter<Call>,
    file: Option<&'a File>,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(history: &'a History, span: Option<Range<i128>>) -> Rows<'a> {
        Rows {
            batches: history.batches_within(ALL, span),
            ready: Vec::new().into_iter(),
            file: None,
        }
    }

    /// Rows skipped so far; see [`History::calls_within`].
    pub fn skipped(&self) -> u64 {
        self.batches.skipped()
    }
}

impl<'a> Iterator for Rows<'a> {
    type Item = Result<(&'a File, Call)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let (Some(call), Some(file)) = (self.ready.next(), self.file) {
                return Some(Ok((file, call)));
            }
            let decoded = match self.batches.next()? {
                Ok((file, batch)) => {
                    self.file = Some(file);
                    calls(&batch, file.meta.realtime_offset_ns)
                        .with_context(|| format!("cannot read {}", file.path.display()))
                }
                Err(error) => Err(error),
            };
            match decoded {
                Ok(calls) => self.ready = calls.into_iter(),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
