// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often a client may look.

use std::time::{Duration, Instant};

use anyhow::{ensure, Result};

/// The shortest time between two looks, each of which reads all that has happened since. `debox top` looks ten times a
/// second at most.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// The looks of a client.
#[derive(Default)]
pub(super) struct Looks {
    last: Option<Instant>,
    /// Whether the stacks of sleeping threads may be asked for.
    may_ask_for_tasks: bool,
}

impl Looks {
    /// Fails if the client looks too often.
    pub fn begin(&mut self) -> Result<()> {
        let now = Instant::now();
        let is_too_early = |last: Instant| now.saturating_duration_since(last) < BETWEEN_LOOKS;
        ensure!(
            !self.last.is_some_and(is_too_early),
            "looks are asked for too often"
        );
        self.last = Some(now);
        self.may_ask_for_tasks = true;
        Ok(())
    }

    /// Fails if the stacks were given since the last look.
    pub fn begin_tasks(&mut self) -> Result<()> {
        ensure!(
            std::mem::take(&mut self.may_ask_for_tasks),
            "the request is out of order"
        );
        Ok(())
    }
}
