// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fetches what the probes have seen, and looks up what it refers to while that still exists.

use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{bail, Result};
use nix::sys::socket::MsgFlags;

use super::RemoteSession;
use crate::broker::channel;
use crate::broker::client;
use crate::broker::probe_data::{Shape, ShapeKey};
use crate::broker::protocol::{self, Reply, Request};
use crate::tables::types;
use crate::trigger::Fired;

impl RemoteSession {
    pub(super) fn ask(&self, request: &Request) -> Result<Reply> {
        match client::ask(&self.connection, request)?.0 {
            Reply::Refused(reason) => bail!("it refuses: {reason}"),
            reply => Ok(reply),
        }
    }

    pub(super) fn take_all(&mut self) -> Result<()> {
        while self.take_in(Duration::ZERO)? {}
        Ok(())
    }

    /// Waits for events for up to `timeout`; returns whether there are more.
    pub(super) fn take_in(&mut self, timeout: Duration) -> Result<bool> {
        let wait_ms = u16::try_from(timeout.as_millis()).unwrap_or(u16::MAX);
        let (ended, call_sites, resources, titles, fired, is_more) =
            match self.ask(&Request::Events { wait_ms })? {
                Reply::Events {
                    ended,
                    call_sites,
                    resources,
                    titles,
                    fired,
                    is_more,
                } => (ended, call_sites, resources, titles, fired, is_more),
                Reply::Stack(stack) => {
                    self.unwind(&stack.message())?;
                    return Ok(true);
                }
                _ => bail!("its answer is out of turn"),
            };
        for call in &fired {
            let event = types::trigger_fired::from(call);
            self.listed.take(Fired::new(&event));
        }
        let events = self.events.get_mut();
        for title in &titles {
            events.titles.take(&types::title_seen::from(title));
        }
        for thread in &ended {
            events.add_ended(&types::thread::from(thread));
        }
        for seen in call_sites.iter().map(types::call_site_seen::from) {
            let wrapper = events.processes.borrow_mut().learn(&seen);
            let answer = Request::Wrapper {
                tgid: seen.tgid,
                ip: seen.ip,
                offset: wrapper.offset,
                rule: wrapper.rule,
            };
            let packet = protocol::encode(&answer);
            channel::send(self.connection.as_fd(), &packet, &[], MsgFlags::empty())?;
        }
        for seen in &resources {
            events.resources.learn(&types::resource_seen::from(seen));
        }
        Ok(is_more)
    }

    /// Unwinds a user stack for the probes, and tells them how to recognise it.
    fn unwind(&self, ask: &[u8]) -> Result<()> {
        let answer = {
            let events = self.events.borrow();
            let mut processes = events.processes.borrow_mut();
            let mut stacks = events.stacks.borrow_mut();
            stacks.take(ask, &mut processes)
        };
        let Some(answer) = answer else { return Ok(()) };
        let packet = protocol::encode(&Request::Shape {
            key: ShapeKey::from(&answer.key),
            shape: Shape::from(&answer.shape),
        });
        channel::send(self.connection.as_fd(), &packet, &[], MsgFlags::empty())?;
        Ok(())
    }
}
