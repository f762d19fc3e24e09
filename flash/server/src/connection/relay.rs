// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes a request on to an upstream, and its answer back. Both directions go on at the same time, as far as the sockets
//! and the buffers allow; what is full is not read into, so who is slower sets the pace.

use std::sync::Arc;

use rustix::net::sockopt::set_socket_linger;

use super::exchange::{Failure, Relay, TRIES};
use super::{Connection, Next, State, Went};
use crate::context::Context;
use crate::counts::add;
use crate::http::fields::Framing;
use crate::http::method::Method;
use crate::http::request::Request;
use crate::upstream::answer::{Outlet, Queue, WrongLength};
use crate::upstream::http::{self, Field};
use crate::upstream::links::{NoLink, Wants};
use crate::upstream::variables::Script;
use crate::upstream::{Reader, Upstream};

mod asking;
mod passing;

/// Why it does not go on now.
enum Stop {
    Waits,
    Paced,
    Done,
    Failed(Failure),
    /// More would be faster than the client may have it, until this time.
    WaitsUntil(u64),
    /// The client has gone, or the answer that it is getting cannot be finished.
    Cut,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure)
    }
}

impl Connection {
    pub(super) fn begin_relay(
        &mut self,
        key: usize,
        request: Box<Request>,
        fields: &[Field],
        (upstream, script): (Arc<Upstream>, Option<Script>),
        context: &mut Context,
    ) {
        add(&context.counts().upstream_requests, 1);
        let is_zero = |(name, value): &Field| {
            name.eq_ignore_ascii_case("max-forwards") && value.as_slice() == b"0"
        };
        if request.method == Method::Options && fields.iter().any(is_zero) {
            let reply = self.common(&request, context).options();
            return self.reply(Some(request), reply, context);
        }
        if matches!(request.body, Framing::Length(length) if length > upstream.settings().body) {
            return self.error(413, request, context);
        }
        let head = self.head_for(&upstream, &request, fields, script, context);
        let (head, form, upgrade) = match head {
            Ok(head) => head,
            Err(status) => return self.error(status, request, context),
        };
        let reader = Reader::Http(http::Reader::new(false, false));
        let mut relay = Box::new(Relay {
            // Each link has its own.
            reader,
            form,
            expects_continue: request.expects_continue,
            is_read: self.body.is_none(),
            request,
            upstream,
            upgrade,
            head,
            link: None,
            tries: 0,
            is_connected: false,
            to_upstream: Queue::default(),
            sent: 0,
            has_taken_body: false,
            taken: 0,
            is_refused: false,
            received: Vec::new(),
            outlet: Outlet::default(),
            delivered: 0,
            is_tunnel: false,
            is_answered: false,
            closes: false,
            upstream_at: context.now,
            client_at: context.now,
            body_until: context.now + context.options.send_ms,
        });
        let begun = self.try_upstream(key, &mut relay, context);
        self.state = State::Relaying(relay);
        if let Err(failure) = begun {
            self.relay_fails(key, failure, context);
        }
    }

    /// Gets a link, and begins to send the request.
    fn try_upstream(
        &mut self,
        key: usize,
        relay: &mut Relay,
        context: &mut Context,
    ) -> Result<(), Failure> {
        let owner = (key, self.id);
        let mut failure = Failure::NoLink;
        // An earlier upstream may have ended the connection before it had the body, which is still to come.
        relay.is_read = self.body.is_none();
        while relay.tries < TRIES {
            relay.tries += 1;
            let wants = Wants {
                is_sure: !relay.is_idempotent() || !relay.is_read,
                is_new: relay.tries > 1,
            };
            let (upstream, head) = (&relay.upstream, &relay.head);
            match context
                .links
                .take(upstream, owner, wants, head, context.now)
            {
                Ok(link) => {
                    relay.link = Some(link);
                    relay.is_connected = false;
                    relay.sent = 0;
                    relay.is_refused = false;
                    relay.received = Vec::new();
                    relay.reader = relay.new_reader();
                    relay.to_upstream.clear();
                    if !relay.is_script() {
                        relay.to_upstream.push(&relay.head);
                    }
                    relay.upstream_at = context.now;
                    return Ok(());
                }
                Err(NoLink::Full) => return Err(failure),
                Err(NoLink::Failed(_)) => {
                    add(&context.counts().upstream_failures, 1);
                    failure = Failure::Connect;
                }
            }
        }
        Err(failure)
    }

    pub(super) fn relay(&mut self, key: usize, context: &mut Context) -> Went {
        let State::Relaying(mut relay) = std::mem::replace(&mut self.state, State::Reading) else {
            return Went::On;
        };
        let stop = self.pass_on(&mut relay, context);
        self.deadline = Self::relay_deadline(&relay, context);
        match stop {
            Stop::Done => return self.relay_done(*relay, context),
            Stop::Failed(failure) => {
                self.state = State::Relaying(relay);
                return self.relay_fails(key, failure, context);
            }
            _ => self.state = State::Relaying(relay),
        }
        match stop {
            Stop::Waits => Went::Waits,
            Stop::WaitsUntil(at) => Went::WaitsUntil(at),
            Stop::Paced => Went::Paced,
            _ => {
                self.cut(context);
                Went::Ended
            }
        }
    }

    fn relay_done(&mut self, relay: Relay, context: &mut Context) -> Went {
        let status = relay.outlet.status.unwrap_or_default();
        self.record(Some(&relay.request), status, relay.outlet.content, context);
        self.finish(relay.closes || relay.is_tunnel, context)
    }

    /// Tries again, or answers with what went wrong; or ends, if the client has a part of an answer.
    fn relay_fails(&mut self, key: usize, failure: Failure, context: &mut Context) -> Went {
        let State::Relaying(mut relay) = std::mem::replace(&mut self.state, State::Reading) else {
            return Went::On;
        };
        self.drop_link(&mut relay, failure, context);
        if relay.outlet.status.is_some() && !relay.has_begun() {
            // The client has not got any part of this answer.
            relay.outlet = Outlet::default();
        }
        if relay.can_be_repeated(failure) {
            add(&context.counts().upstream_retries, 1);
            if self.try_upstream(key, &mut relay, context).is_ok() {
                self.deadline = Self::relay_deadline(&relay, context);
                self.state = State::Relaying(relay);
                return Went::On;
            }
        }
        if relay.has_begun() {
            self.state = State::Relaying(relay);
            self.cut(context);
            return Went::Ended;
        }
        if failure == Failure::NoLink {
            add(&context.counts().upstream_full, 1);
        }
        let before = relay.outlet.queue().take();
        self.error(failure.status(), relay.request, context);
        self.send_before(before);
        Went::On
    }

    /// Gives the link up, and counts what its address has done. That an unused connection was just being closed is no
    /// failure.
    fn drop_link(&self, relay: &mut Relay, failure: Failure, context: &mut Context) {
        let Some(link) = relay.link.take() else {
            return;
        };
        let was_reused = context.links.link(link).is_reused;
        let is_stale = was_reused && failure == Failure::Closed && !relay.reader.has_head();
        if failure.is_upstreams() && !is_stale {
            add(&context.counts().upstream_failures, 1);
            context.links.fails(link, &relay.upstream, context.now);
        } else {
            context.links.close(link);
        }
    }

    /// The answer cannot be finished, and the client has to see that.
    fn cut(&mut self, context: &mut Context) {
        let State::Relaying(relay) = &mut self.state else {
            return;
        };
        let is_whole = relay.is_answered && relay.outlet.waiting() == 0;
        if !is_whole && !relay.is_tunnel {
            add(&context.counts().cut, 1);
            if relay.outlet.ends_with_connection() {
                // A regular end would be the end of the content.
                let _ = set_socket_linger(&self.socket, Some(std::time::Duration::ZERO));
            }
        }
        self.release_link(context);
    }

    /// The connection ends: the upstream's is not needed any more, and a request that is not answered will not be.
    pub fn release(&mut self, key: usize, context: &mut Context) {
        self.record_unfinished(context);
        self.release_lent(key, context);
        self.release_link(context);
    }

    fn release_link(&mut self, context: &mut Context) {
        if let State::Relaying(relay) = &mut self.state {
            if let Some(link) = relay.link.take() {
                context.links.close(link);
            }
        }
    }

    fn relay_deadline(relay: &Relay, context: &Context) -> u64 {
        let settings = relay.settings();
        let of_client = relay.client_at + context.options.send_ms;
        let client = match relay.outlet.waiting() > 0 || relay.is_answered {
            true => of_client,
            false => u64::MAX,
        };
        if relay.is_answered {
            return client;
        }
        let upstream = if relay.is_tunnel {
            relay.upstream_at.max(relay.client_at) + settings.tunnel_ms
        } else if !relay.is_connected {
            relay.upstream_at + settings.connect_ms
        } else if !relay.to_upstream.is_empty() {
            relay.upstream_at + settings.send_ms
        } else if !relay.is_read {
            of_client.min(relay.body_until)
        } else if relay.has_room() {
            relay.upstream_at + settings.read_ms
        } else {
            u64::MAX
        };
        client.min(upstream)
    }

    /// Handles the end of a deadline.
    pub(super) fn relay_expires(&mut self, key: usize, context: &mut Context) -> Next {
        let State::Relaying(relay) = &self.state else {
            return Next::Wait;
        };
        let deadline = Self::relay_deadline(relay, context);
        if deadline > context.now {
            self.deadline = deadline;
            return Next::Wait;
        }
        let of_client = relay.client_at + context.options.send_ms;
        let is_client_slow = relay.outlet.waiting() > 0 && of_client <= context.now;
        let failure = if is_client_slow || relay.is_answered || relay.is_tunnel {
            None
        } else if !relay.is_connected {
            Some(Failure::ConnectTime)
        } else if relay.to_upstream.is_empty() && !relay.is_read {
            Some(Failure::BodyTime)
        } else {
            add(&context.counts().upstream_timeouts, 1);
            Some(Failure::Time)
        };
        let went = match failure {
            Some(failure) => self.relay_fails(key, failure, context),
            None => {
                self.cut(context);
                Went::Ended
            }
        };
        match went {
            Went::Ended => Next::Close,
            _ => self.drive(key, context),
        }
    }
}

impl From<WrongLength> for Stop {
    fn from(_: WrongLength) -> Stop {
        Failure::Closed.into()
    }
}
