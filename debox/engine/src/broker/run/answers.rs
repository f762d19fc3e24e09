// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers to a client that takes in records, or looks at what its threads wait for.

use std::os::fd::OwnedFd;

use anyhow::{ensure, Context, Result};

use super::records::Stopped;
use super::Run;
use crate::broker::protocol::{FrameText, Reply};
use crate::broker::wire::look;
use crate::broker::wire::rows::ResourceKey;
use crate::live_tables::LiveTables;
use crate::stack_table::frames_of;
use crate::symbols::Symbols;
use crate::tables::types;

impl Run {
    pub(super) fn records(&mut self) -> Result<Reply> {
        let records = self.records.as_ref();
        let (parts, is_more) = records
            .context("the session keeps no records, so the request is out of order")?
            .take()?;
        // The events that the records refer to were sent before them, and can be fetched from here on.
        self.take_in()?;
        let (lost_calls, lost_sleeps) = self.session.history_lost();
        Ok(Reply::Records {
            parts,
            lost_calls,
            lost_sleeps,
            is_more,
        })
    }

    /// The functions of a kernel stack of this session.
    pub(super) fn place(&mut self, name: u64) -> Result<Reply> {
        let stack = self.session.kernel_stack(name)?.unwrap_or_default();
        let frames = frames_of(&stack);
        Ok(Reply::Place {
            frames: frames
                .iter()
                .map(|address| self.text_of(*address))
                .collect(),
            args: (stack.has_args != 0).then_some(stack.args),
        })
    }

    fn text_of(&mut self, address: u64) -> FrameText {
        let symbols = &mut self.symbols;
        let look_up = || {
            let symbols = symbols.get_or_insert_with(Symbols::default);
            FrameText::of(symbols.kernel(address))
        };
        self.places.entry(address).or_insert_with(look_up).clone()
    }

    /// What the probes saw of a resource that this client's threads waited for.
    pub(super) fn named(&self, key: &ResourceKey) -> Reply {
        let row = self.session.resource_row(&types::resource_key::from(key));
        Reply::Named(Box::new((&row.unwrap_or_default()).into()))
    }

    /// Stops monitoring. What has been seen stays until the last report.
    pub(super) fn stop(&mut self) -> Result<Reply> {
        ensure!(self.stopped.is_none(), "the request is out of order");
        self.session.look_before_stop()?;
        let tasks = self.session.tasks_in_flight()?;
        let at_ns = self.session.stop()?;
        self.stopped = Some(Stopped { at_ns, tasks });
        Ok(Reply::Stopped { at_ns })
    }

    pub(super) fn look(&mut self, connection: &OwnedFd) -> Result<()> {
        ensure!(
            self.session.options().live,
            "the session is not looked at, so the request is out of order"
        );
        self.looks.begin()?;
        self.take_in()?;
        let mut tables = LiveTables::take(&mut self.session)?;
        tables.add_waits(&self.session)?;
        self.send_all(connection, &look::encode(&tables))
    }

    pub(super) fn asleep(&mut self, connection: &OwnedFd, from_ns: u64) -> Result<()> {
        self.looks.begin_tasks()?;
        let tasks = self.session.tasks_in_flight_from(from_ns)?;
        let addresses = tasks.values().flat_map(frames_of_task);
        for address in addresses {
            self.text_of(*address);
        }
        self.send_all(connection, &look::encode_tasks(&tasks, &self.places))
    }
}

fn frames_of_task(task: &types::in_flight) -> &[u64] {
    &task.frames[..(task.depth as usize).min(task.frames.len())]
}
