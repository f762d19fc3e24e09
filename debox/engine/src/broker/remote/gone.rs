// SPDX-License-Identifier: MIT OR Apache-2.0
//! After a broker has gone: the next one is asked to go on.

use std::time::{Duration, Instant};

use anyhow::Context;

use super::link::{connect, enrol, is_alive};
use super::progress::{FIRST_CHECKPOINT, LONGEST_CHECKPOINT};
use super::RemoteSession;
use crate::broker;
use crate::options::Tap;
use crate::tree;

/// How long the greeting of a new broker is waited for. The limit is short because the command may end meanwhile.
const RETURN_PATIENCE: Duration = Duration::from_secs(2);

impl RemoteSession {
    /// Looks for a new broker and enrols the command's running processes there.
    pub(super) fn come_back(&mut self) {
        // Programs under the user tap keep the slots that they have mapped.
        let (Some(gone), Tap::Kernel) = (&mut self.gone, self.options.tap) else {
            return;
        };
        if self.options.live {
            return;
        }
        let found = broker::socket_path().context("no broker is asked");
        let (options, patience) = (&self.options, self.patience);
        let found = found.and_then(|path| connect(&path, options, RETURN_PATIENCE, patience));
        let enrolled = found.and_then(|(connection, _)| {
            let alive = self.targets.iter().filter(|(_, process)| is_alive(process));
            let alive: Vec<u32> = alive.map(|(pid, _)| *pid).collect();
            let with_children = !options.one_process;
            tree::enrol_all(&alive, with_children, |pid| enrol(&connection, pid, true))?;
            Ok(connection)
        });
        let connection = match enrolled {
            Ok(connection) => connection,
            Err(error) => {
                if !broker::is_absent(&error) {
                    gone.interval = (gone.interval * 2).min(LONGEST_CHECKPOINT);
                }
                gone.next_try = Instant::now() + gone.interval;
                return;
            }
        };
        let until = self.checkpoint.as_ref().map(|last| last.at);
        self.gaps.push(format!(
            "{}; what happened from {:.1} s to {:.1} s is missing. Processes whose parents had ended \
             by then are not monitored any more.",
            gone.how,
            until.unwrap_or_default().as_secs_f64(),
            self.started.elapsed().as_secs_f64()
        ));
        if let Some(mut last) = self.settle() {
            if let Some(past) = self.past.take() {
                last.add_earlier(past);
            }
            self.past = Some(last);
        }
        self.connection = connection;
        self.gone = None;
        let events = self.events.get_mut();
        events.ended.clear();
        events.ended_unlisted.clear();
        self.begin_again();
        self.interval = FIRST_CHECKPOINT;
        self.next_checkpoint = Instant::now() + FIRST_CHECKPOINT;
    }
}
