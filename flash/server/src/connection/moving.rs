// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a connection goes on in a loop of the next configuration.

use std::sync::Arc;

use super::{Connection, State};
use crate::access::limits::Limits;
use crate::context::Site;

impl Connection {
    pub fn site(&self) -> Site {
        self.site
    }

    /// No other loop can go on with it: a helper's answer will come to this one, or its request is still to be looked at
    /// by the rules of this configuration.
    pub fn is_bound(&self) -> bool {
        match &self.state {
            State::Asked(_) | State::Checking(_) | State::Passing(_) => true,
            State::Sending(sending) => sending.waits,
            State::Lent(_) => self.process().is_none(),
            _ => false,
        }
    }

    /// To the upstream that is answering its request.
    pub fn link(&self) -> Option<usize> {
        match &self.state {
            State::Relaying(relay) => relay.link,
            _ => None,
        }
    }

    pub fn take_link(&mut self) -> Option<usize> {
        match &mut self.state {
            State::Relaying(relay) => relay.link.take(),
            _ => None,
        }
    }

    /// The one that was taken, in this loop. `None`: it has been lost.
    pub fn put_link(&mut self, link: Option<usize>) {
        self.is_gone |= link.is_none();
        if let State::Relaying(relay) = &mut self.state {
            relay.link = link;
        }
    }

    /// Comes from another loop. What it answers now has the rules that it began with. `limits`: of clients, under the
    /// configuration of this loop.
    pub fn arrive(&mut self, site: Site, id: u32, limits: Option<&Arc<Limits>>) {
        let limits = limits.filter(|_| site != Site::Counts);
        let place = self.peer.place.take();
        self.peer.place = limits.and_then(|limits| limits.adopt(place, self.peer.address));
        self.site = site;
        self.id = id;
        self.number = u64::from(id) << 32;
        self.looked_at = u64::MAX;
        self.resumes_at = None;
        (self.readable, self.writable) = (true, true);
        if matches!(self.state, State::Reading) {
            // They keep the directories of the earlier configuration open.
            self.rules = None;
        }
    }
}
