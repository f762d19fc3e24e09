// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receives requests.

use std::sync::Arc;
use std::time::Instant;

use super::exchange::Way;
use super::{Connection, State, Went};
use crate::context::{Context, Site};
use crate::http::chunked::Body;
use crate::http::fields::fields;
use crate::http::request::{Parsed, Request};
use crate::http::target::Target;
use crate::sites::Rules;
use crate::transport::Received;

impl Connection {
    /// Reads the next request from the bytes received so far, and receives more if needed.
    pub(super) fn read(&mut self, key: usize, context: &mut Context) -> Went {
        loop {
            match self.reader.read(&self.input, context.options.max_head) {
                Parsed::Request(mut request, length) => {
                    self.rules = rules_for(self.site, &mut request, context);
                    let is_relayed = self.way(&request) != Way::Files;
                    if is_relayed {
                        request.fields = fields(&self.input[..length]);
                    }
                    self.input.drain(..length);
                    self.began = Instant::now();
                    self.body = Body::new(request.body);
                    self.passed = 0;
                    if is_relayed {
                        self.begin(key, request, context);
                        return Went::On;
                    }
                    if self.body.is_some() && !self.answers_before_body(&request) {
                        self.deadline = context.now + context.options.head_ms;
                        self.state = State::Passing(request);
                        return Went::On;
                    }
                    self.begin(key, request, context);
                    return Went::On;
                }
                Parsed::Refused(refusal) => {
                    self.refuse(refusal, context);
                    return Went::On;
                }
                Parsed::Incomplete => {}
            }
            if !self.readable {
                if self.input.is_empty() {
                    // An idle connection should cost little.
                    self.input = Vec::new();
                }
                return Went::Waits;
            }
            let was_empty = self.input.is_empty();
            match self.receive(context) {
                Received::End | Received::Failed(_) => return Went::Ended,
                Received::Bytes(_) if was_empty => {
                    self.deadline = context.now + context.options.head_ms;
                }
                Received::Bytes(_) => {}
                Received::NotTls => {
                    self.refuse_plain(context);
                    return Went::On;
                }
                Received::Paced => return Went::Paced,
                Received::Nothing => {}
            }
        }
    }

    /// Receives bytes into `input`.
    pub(super) fn receive(&mut self, context: &mut Context) -> Received {
        let was_handshaking = self.transport.is_handshaking();
        let into = &mut context.buffer[..16 << 10];
        let received = self
            .transport
            .receive(&self.socket, into, &mut context.pace);
        match received {
            Received::Bytes(length) => {
                // The end of the client's side is no new event if it came with these bytes.
                let is_all = length < into.len() && self.transport.is_drained();
                self.readable = !is_all || self.has_ended;
                self.input.extend_from_slice(&into[..length]);
            }
            Received::Nothing => self.readable = false,
            Received::NotTls => context.pace.fails(),
            _ => {}
        }
        if was_handshaking && !self.transport.is_handshaking() {
            self.idle_since = context.now;
            self.deadline = context.now + context.options.head_ms;
        }
        received
    }
}

fn rules_for(site: Site, request: &mut Request, context: &Context) -> Option<Arc<Rules>> {
    let Site::Files(address) = site else {
        return None;
    };
    let hosts = context.shared.hosts.get(address)?;
    let path = match &mut request.target {
        Target::Path(path) => path,
        Target::Server => return hosts.find(&request.host, b"").cloned(),
    };
    let rules = hosts.find(&request.host, &path.name)?;
    if let Some(split) = &path.split {
        let other = hosts.find(&request.host, split);
        path.is_ambiguous = other.is_none_or(|other| !Arc::ptr_eq(rules, other));
    }
    Some(Arc::clone(rules))
}
