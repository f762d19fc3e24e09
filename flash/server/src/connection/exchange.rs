// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request that is passed on to an upstream, and what has come of it so far.

use std::sync::Arc;

use crate::http::method::Method;
use crate::http::request::Request;
use crate::upstream::answer::{Malformed, Outlet, Queue};
use crate::upstream::http;
use crate::upstream::{fastcgi, scripts, Form, Protocol, Reader, Settings, Upstream};

/// What a client has to send of a body on average, in bytes per second: as Apache has it.
const SLOWEST: u64 = 500;
/// Upstreams that one request is sent to.
pub(in crate::connection) const TRIES: u32 = 3;

/// Who answers a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::connection) enum Way {
    /// Files, a redirect, or what is always the same.
    Files,
    /// The upstream, whatever there is.
    Upstream,
    /// A file if there is one, and the upstream otherwise.
    Either,
}

pub struct Relay {
    pub(in crate::connection) request: Box<Request>,
    pub(in crate::connection) upstream: Arc<Upstream>,
    pub(in crate::connection) reader: Reader,
    pub(in crate::connection) form: Form,
    /// The protocol that the client wants to change to.
    pub(in crate::connection) upgrade: Option<String>,
    /// Without the body. It may have to be sent again.
    pub(in crate::connection) head: Vec<u8>,
    pub(in crate::connection) link: Option<usize>,
    pub(in crate::connection) tries: u32,
    pub(in crate::connection) is_connected: bool,
    pub(in crate::connection) to_upstream: Queue,
    /// Bytes that this link has taken.
    pub(in crate::connection) sent: u64,
    /// Some of the body has been taken from the client, so the request cannot be sent again.
    pub(in crate::connection) has_taken_body: bool,
    /// Bytes of the body and of its framing.
    pub(in crate::connection) taken: u64,
    /// The client waits for a 100.
    pub(in crate::connection) expects_continue: bool,
    /// The whole request is in `to_upstream`, or was.
    pub(in crate::connection) is_read: bool,
    /// The upstream takes nothing more.
    pub(in crate::connection) is_refused: bool,
    pub(in crate::connection) received: Vec<u8>,
    pub(in crate::connection) outlet: Outlet,
    /// Bytes that the client's socket has taken.
    pub(in crate::connection) delivered: u64,
    pub(in crate::connection) is_tunnel: bool,
    /// The whole answer is in `outlet`, or was.
    pub(in crate::connection) is_answered: bool,
    pub(in crate::connection) closes: bool,
    /// When the upstream has done something, or begun to have something to do; and the client.
    pub(in crate::connection) upstream_at: u64,
    pub(in crate::connection) client_at: u64,
    /// Until then the client has to send more of the body, lest it occupies the upstream with a byte now and then.
    pub(in crate::connection) body_until: u64,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::connection) enum Failure {
    /// There is no connection.
    Connect,
    ConnectTime,
    NoLink,
    /// The connection ended without an answer.
    Closed,
    Malformed(Malformed),
    Time,
    BadBody,
    LongBody,
    BodyTime,
}

impl Failure {
    pub(in crate::connection) fn status(self) -> u16 {
        match self {
            Failure::Connect | Failure::Closed | Failure::Malformed(_) => 502,
            Failure::NoLink => 503,
            Failure::ConnectTime | Failure::Time => 504,
            Failure::BadBody => 400,
            Failure::LongBody => 413,
            Failure::BodyTime => 408,
        }
    }

    /// The upstream, and not the client or the own limit.
    pub(in crate::connection) fn is_upstreams(self) -> bool {
        !matches!(
            self,
            Failure::NoLink | Failure::BadBody | Failure::LongBody | Failure::BodyTime
        )
    }
}

impl Relay {
    pub(in crate::connection) fn settings(&self) -> &Settings {
        self.upstream.settings()
    }

    /// RFC 9110, 9.2.2: it may be done twice.
    pub(in crate::connection) fn is_idempotent(&self) -> bool {
        use Method as M;
        matches!(
            self.request.method,
            M::Get | M::Head | M::Options | M::Put | M::Delete
        )
    }

    /// The request can be sent to another upstream, or again.
    pub(in crate::connection) fn can_be_repeated(&self, failure: Failure) -> bool {
        let is_of_link = matches!(
            failure,
            Failure::Connect | Failure::ConnectTime | Failure::Closed
        );
        // A script has begun with its order.
        let is_safe = !self.is_script() && (self.sent == 0 || self.is_idempotent());
        is_of_link && is_safe && !self.has_begun() && !self.has_taken_body && self.tries < TRIES
    }

    /// Bytes of content that the answer may have.
    pub(in crate::connection) fn most_content(&self) -> u64 {
        match &self.upstream.plan.protocol {
            Protocol::Cgi(options) => options.output,
            _ => u64::MAX,
        }
    }

    pub(in crate::connection) fn is_script(&self) -> bool {
        matches!(self.upstream.plan.protocol, Protocol::Cgi(_))
    }

    /// The client has a part of the answer.
    pub(in crate::connection) fn has_begun(&self) -> bool {
        self.outlet.status.is_some() && self.delivered > 0
    }

    /// Has room for bytes of the answer.
    pub(in crate::connection) fn has_room(&self) -> bool {
        self.outlet.waiting() < self.settings().buffer
    }

    /// Bytes of the body have come. `most`: the client may take so long for the next, in milliseconds.
    pub(in crate::connection) fn body_comes(&mut self, bytes: u64, most: u64, now: u64) {
        self.client_at = now;
        self.body_until = (self.body_until + bytes * 1000 / SLOWEST).min(now + most);
    }

    /// Where bytes for the upstream go.
    pub(in crate::connection) fn outward(&mut self, now: u64) -> &mut Vec<u8> {
        if self.to_upstream.is_empty() {
            self.upstream_at = now;
        }
        self.to_upstream.end()
    }

    pub(in crate::connection) fn new_reader(&self) -> Reader {
        match &self.upstream.plan.protocol {
            // An application writes to the client itself.
            Protocol::Http(_) | Protocol::Application(_) => {
                let is_head = self.request.method == Method::Head;
                Reader::Http(http::Reader::new(is_head, self.upgrade.is_some()))
            }
            Protocol::FastCgi(_) => Reader::FastCgi(Box::new(fastcgi::Reader::new())),
            Protocol::Cgi(_) => Reader::Cgi(scripts::Reader::default()),
        }
    }
}
