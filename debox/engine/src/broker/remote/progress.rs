// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far a session has come: the results up to some time, and whether its broker is still there.

use std::time::{Duration, Instant};

use crate::broker;
use crate::broker::protocol::FrameText;
use crate::broker::wire::Beside;
use crate::collect::Snapshot;
use crate::tables::types;

/// The results so far are fetched after this time, and then at intervals that double each time, up to the longest.
pub(super) const FIRST_CHECKPOINT: Duration = Duration::from_secs(1);
pub(super) const LONGEST_CHECKPOINT: Duration = Duration::from_secs(16);

/// The results up to some time.
pub(super) struct Checkpoint {
    pub(super) at: Duration,
    /// Without the threads that had ended.
    pub(super) snapshot: Snapshot,
    pub(super) frames: Vec<(u64, FrameText)>,
    /// How many listed threads had ended by then, and the sums of the unlisted ones.
    pub(super) ended: usize,
    pub(super) ended_unlisted: Vec<types::thread>,
    /// The calls that had not returned, and how often triggers had fired.
    pub(super) beside: Beside,
}

/// The state after a broker has gone or does not answer.
pub(super) struct Gone {
    /// The beginning of a sentence.
    pub(super) how: String,
    pub(super) next_try: Instant,
    pub(super) interval: Duration,
}

impl Gone {
    pub(super) fn because(error: &anyhow::Error, patience: Duration) -> Gone {
        let how = if broker::is_silent(error) {
            let seconds = patience.as_secs();
            format!(
                "The broker did not answer for {seconds} s during the run, and was asked no more"
            )
        } else {
            format!("The broker ended during the run ({error:#})")
        };
        Gone {
            how,
            next_try: Instant::now() + FIRST_CHECKPOINT,
            interval: FIRST_CHECKPOINT,
        }
    }
}
