// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes a request on to an upstream, and its answer back. Both directions go on at the same time, as far as the sockets
//! and the buffers allow; what is full is not read into, so who is slower sets the pace.

use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;

use super::{Connection, Next, Site, State, Went, BYTES};
use crate::context::Context;
use crate::counts::add;
use crate::http::chunked::Passed;
use crate::http::request::{Framing, Method, Refusal, Request};
use crate::http::target::Target;
use crate::transport::Received;
use crate::upstream::answer::{Head, Malformed, Manner, Outlet, Queue, Step, WrongLength};
use crate::upstream::http::{self, Client, Field};
use crate::upstream::links::{NoLink, Wants};
use crate::upstream::variables::{variables, Entrance};
use crate::upstream::{fastcgi, records, scripts, Form, Protocol, Reader, Settings, Upstream};

/// Upstreams that one request is sent to.
const TRIES: u32 = 3;

pub struct Relay {
    request: Box<Request>,
    upstream: Arc<Upstream>,
    reader: Reader,
    form: Form,
    /// The protocol that the client wants to change to.
    upgrade: Option<String>,
    /// Without the body. It may have to be sent again.
    head: Vec<u8>,
    link: Option<usize>,
    tries: u32,
    is_connected: bool,
    to_upstream: Queue,
    /// Bytes that this link has taken.
    sent: u64,
    /// Some of the body has been taken from the client, so the request cannot be sent again.
    has_taken_body: bool,
    /// The client waits for a 100.
    expects_continue: bool,
    /// The whole request is in `to_upstream`, or was.
    is_read: bool,
    /// The upstream takes nothing more.
    is_refused: bool,
    received: Vec<u8>,
    outlet: Outlet,
    /// Bytes that the client's socket has taken.
    delivered: u64,
    is_tunnel: bool,
    /// The whole answer is in `outlet`, or was.
    is_answered: bool,
    closes: bool,
    /// When the upstream has done something, or begun to have something to do; and the client.
    upstream_at: u64,
    client_at: u64,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// There is no connection.
    Connect,
    ConnectTime,
    NoLink,
    /// The connection ended without an answer.
    Closed,
    Malformed(Malformed),
    Time,
    BadBody,
    BodyTime,
}

/// Why it does not go on now.
enum Stop {
    Waits,
    Paced,
    Done,
    Failed(Failure),
    /// The client has gone, or the answer that it is getting cannot be finished.
    Cut,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure)
    }
}

impl Failure {
    fn status(self) -> u16 {
        match self {
            Failure::Connect | Failure::Closed | Failure::Malformed(_) => 502,
            Failure::NoLink => 503,
            Failure::ConnectTime | Failure::Time => 504,
            Failure::BadBody => 400,
            Failure::BodyTime => 408,
        }
    }

    /// The upstream, and not the client or the own limit.
    fn is_upstreams(self) -> bool {
        !matches!(self, Failure::NoLink | Failure::BadBody | Failure::BodyTime)
    }
}

impl Relay {
    fn settings(&self) -> &Settings {
        self.upstream.settings()
    }

    /// RFC 9110, 9.2.2: it may be done twice.
    fn is_idempotent(&self) -> bool {
        use Method as M;
        matches!(
            self.request.method,
            M::Get | M::Head | M::Options | M::Put | M::Delete
        )
    }

    /// The request can be sent to another upstream, or again.
    fn can_be_repeated(&self, failure: Failure) -> bool {
        let is_of_link = matches!(
            failure,
            Failure::Connect | Failure::ConnectTime | Failure::Closed
        );
        // A script has begun with its order.
        let is_safe = !self.is_script() && (self.sent == 0 || self.is_idempotent());
        is_of_link && is_safe && !self.has_begun() && !self.has_taken_body && self.tries < TRIES
    }

    /// Bytes of content that the answer may have.
    fn most_content(&self) -> u64 {
        match &self.upstream.plan.protocol {
            Protocol::Cgi(options) => options.output,
            _ => u64::MAX,
        }
    }

    fn is_script(&self) -> bool {
        matches!(self.upstream.plan.protocol, Protocol::Cgi(_))
    }

    /// The client has a part of the answer.
    fn has_begun(&self) -> bool {
        self.outlet.status.is_some() && self.delivered > 0
    }

    /// Has room for bytes of the answer.
    fn has_room(&self) -> bool {
        self.outlet.waiting() < self.settings().buffer
    }

    /// Where bytes for the upstream go.
    fn outward(&mut self, now: u64) -> &mut Vec<u8> {
        if self.to_upstream.is_empty() {
            self.upstream_at = now;
        }
        self.to_upstream.end()
    }

    fn new_reader(&self) -> Reader {
        match &self.upstream.plan.protocol {
            Protocol::Http(_) => {
                let is_head = self.request.method == Method::Head;
                Reader::Http(http::Reader::new(is_head, self.upgrade.is_some()))
            }
            Protocol::FastCgi(_) => Reader::FastCgi(Box::new(fastcgi::Reader::new())),
            Protocol::Cgi(_) => Reader::Cgi(scripts::Reader::default()),
        }
    }
}

impl Connection {
    /// The upstream that answers this request, if files do not.
    pub(super) fn upstream_for(&self, request: &Request) -> Option<Arc<Upstream>> {
        let rules = self
            .rules
            .as_ref()
            .filter(|rules| rules.redirect.is_none())?;
        let is_for_it = !matches!(request.method, Method::Connect | Method::Trace);
        let has_path = matches!(request.target, Target::Path(_));
        let upstream = rules.upstream.as_ref()?;
        let is_answered = match (&upstream.plan.protocol, &request.target) {
            (Protocol::FastCgi(options), Target::Path(path)) => options.script(path).is_some(),
            _ => true,
        };
        (is_for_it && has_path && is_answered).then(|| Arc::clone(upstream))
    }

    /// Everything in front of the body, as the upstream reads it.
    fn head_for(
        &self,
        upstream: &Upstream,
        request: &Request,
        fields: &[Field],
        context: &Context,
    ) -> Result<(Vec<u8>, Form, Option<String>), u16> {
        let Target::Path(path) = &request.target else {
            return Err(404);
        };
        match &upstream.plan.protocol {
            Protocol::Http(options) => {
                let client = Client {
                    address: self.peer,
                    is_secure: !self.transport.is_plain(),
                };
                let upgrade = http::upgrade(request, fields);
                let target = path.forwarded();
                let other = upgrade.as_deref();
                let head = http::head(request, fields, &target, client, options, other);
                let form = match request.body {
                    Framing::Chunked => Form::Chunked,
                    _ => Form::Plain,
                };
                Ok((head, form, upgrade))
            }
            // Programs need CONTENT_LENGTH before the content.
            _ if request.body == Framing::Chunked => Err(411),
            Protocol::Cgi(options) => {
                let entrance = self.entrance(context);
                let script = options.script(path);
                let more = options.variables.as_slice();
                let all = variables(request, path, fields, &script, entrance, None, more);
                Ok((options.order(&script, &all), Form::Plain, None))
            }
            Protocol::FastCgi(options) => {
                let entrance = self.entrance(context);
                let script = options.script(path).ok_or(404u16)?;
                let more = options.variables.as_slice();
                let root = options.scripts.is_some().then_some(options.root.as_path());
                let all = variables(request, path, fields, &script, entrance, root, more);
                let mut head = records::begin(&all);
                if request.body == Framing::None {
                    records::body_ends(&mut head);
                }
                Ok((head, Form::Records, None))
            }
        }
    }

    fn entrance(&self, context: &Context) -> Entrance {
        Entrance {
            client: self.peer,
            is_secure: !self.transport.is_plain(),
            port: self.port(context),
        }
    }

    /// At which the client has connected.
    fn port(&self, context: &Context) -> u16 {
        let Site::Files(number) = self.site else {
            return 0;
        };
        context.shared.ports.get(number).copied().unwrap_or(0)
    }

    pub(super) fn begin_relay(
        &mut self,
        key: usize,
        request: Box<Request>,
        fields: &[Field],
        upstream: Arc<Upstream>,
        context: &mut Context,
    ) {
        add(&context.counts().requests, 1);
        add(&context.counts().upstream_requests, 1);
        let is_zero = |(name, value): &Field| {
            name.eq_ignore_ascii_case("max-forwards") && value.as_slice() == b"0"
        };
        if request.method == Method::Options && fields.iter().any(is_zero) {
            let reply = self.common(&request, context).options();
            return self.reply(Some(request), reply, context);
        }
        let (head, form, upgrade) = match self.head_for(&upstream, &request, fields, context) {
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
            is_refused: false,
            received: Vec::new(),
            outlet: Outlet::default(),
            delivered: 0,
            is_tunnel: false,
            is_answered: false,
            closes: false,
            upstream_at: context.now,
            client_at: context.now,
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
            Stop::Paced => Went::Paced,
            _ => {
                self.cut(context);
                Went::Ended
            }
        }
    }

    /// As far as it goes.
    fn pass_on(&mut self, relay: &mut Relay, context: &mut Context) -> Stop {
        if self.is_gone {
            return Stop::Cut;
        }
        let mut moved = 0;
        loop {
            let before = moved;
            let went = self
                .take_request(relay, context)
                .and_then(|bytes| {
                    moved += bytes;
                    self.fetch_answer(relay, context)
                })
                .and_then(|bytes| {
                    moved += bytes;
                    self.deliver(relay, context)
                });
            match went {
                Ok(bytes) => moved += bytes,
                Err(stop) => return stop,
            }
            if relay.is_answered && relay.outlet.waiting() == 0 {
                return match self.transport.flush(&self.socket) {
                    Ok(()) => Stop::Done,
                    Err(Errno::AGAIN) => {
                        self.writable = false;
                        Stop::Waits
                    }
                    Err(_) => Stop::Cut,
                };
            }
            if moved == before {
                return Stop::Waits;
            }
            if moved > BYTES {
                return Stop::Paced;
            }
        }
    }

    /// From the client to the upstream.
    fn take_request(&mut self, relay: &mut Relay, context: &mut Context) -> Result<u64, Stop> {
        let Some(link) = relay.link else {
            return Ok(0);
        };
        if !relay.is_connected {
            match context.links.is_connected(link) {
                Ok(true) => relay.is_connected = true,
                Ok(false) => return Ok(0),
                Err(_) => return Err(Failure::Connect.into()),
            }
            relay.upstream_at = context.now;
        }
        let mut moved = 0;
        while !relay.is_read && relay.to_upstream.as_slice().len() < relay.settings().buffer {
            if self.input.is_empty() {
                if relay.expects_continue && relay.outlet.status.is_none() {
                    relay.outlet.continues();
                }
                relay.expects_continue = false;
                if !self.readable {
                    break;
                }
                match self.receive(context) {
                    Received::Bytes(_) => relay.client_at = context.now,
                    Received::Nothing => break,
                    Received::Paced => return Err(Stop::Paced),
                    Received::End if relay.is_tunnel => {
                        relay.is_read = true;
                        break;
                    }
                    Received::End | Received::NotTls | Received::Failed(_) => {
                        return Err(Stop::Cut)
                    }
                }
            }
            moved += self.input.len() as u64;
            self.take_input(relay, context)?;
        }
        while !relay.to_upstream.is_empty() && context.links.link(link).writable {
            match context.links.send(link, relay.to_upstream.as_slice()) {
                Ok(sent) => {
                    relay.to_upstream.advance(sent);
                    relay.sent += sent as u64;
                    relay.upstream_at = context.now;
                    moved += sent as u64;
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => {
                    // It may have answered before it closed.
                    relay.to_upstream.clear();
                    relay.is_refused = true;
                    relay.is_read = true;
                }
            }
        }
        let ends = relay.is_tunnel || relay.is_script();
        if ends && relay.is_read && relay.to_upstream.is_empty() {
            context.links.finish(link);
        }
        Ok(moved)
    }

    /// What has been received from the client belongs to the request.
    fn take_input(&mut self, relay: &mut Relay, context: &Context) -> Result<(), Stop> {
        if relay.is_tunnel {
            let input = std::mem::take(&mut self.input);
            relay.outward(context.now).extend_from_slice(&input);
            return Ok(());
        }
        relay.has_taken_body = true;
        let input = std::mem::take(&mut self.input);
        let (form, out) = (relay.form, relay.outward(context.now));
        let passed = self
            .body
            .as_mut()
            .map(|body| body.read(&input, |content| form.content(content, out)));
        match passed {
            Some(Passed::All) => return Ok(()),
            Some(Passed::Wrong) => return Err(Failure::BadBody.into()),
            Some(Passed::Ended(at)) => self.input = input[at..].to_vec(),
            None => self.input = input,
        }
        form.end(relay.outward(context.now));
        self.body = None;
        relay.is_read = true;
        relay.upstream_at = context.now;
        Ok(())
    }

    /// From the upstream into the buffer.
    fn fetch_answer(&mut self, relay: &mut Relay, context: &mut Context) -> Result<u64, Stop> {
        let Some(link) = relay.link.filter(|_| relay.is_connected) else {
            return Ok(0);
        };
        let mut moved = 0;
        while !relay.is_answered && relay.has_room() && context.links.link(link).readable {
            let mut buffer = std::mem::take(&mut context.buffer);
            let room = relay.settings().buffer - relay.outlet.waiting();
            let most = buffer.len().min(room);
            let received = context.links.receive(link, &mut buffer[..most]);
            let read = match received {
                Ok(0) | Err(Errno::CONNRESET | Errno::PIPE) => {
                    self.upstream_ends(relay, received == Ok(0), context)
                }
                Ok(length) => {
                    relay.upstream_at = context.now;
                    moved += length as u64;
                    self.read_answer(relay, &buffer[..length], context)
                }
                Err(Errno::AGAIN | Errno::INTR) => Ok(()),
                Err(Errno::TIMEDOUT) => Err(Failure::Time.into()),
                Err(_) => Err(Failure::Closed.into()),
            };
            context.buffer = buffer;
            read?;
        }
        Ok(moved)
    }

    fn read_answer(
        &self,
        relay: &mut Relay,
        bytes: &[u8],
        context: &mut Context,
    ) -> Result<(), Stop> {
        let before = std::mem::take(&mut relay.received);
        let joined = match before.is_empty() {
            true => None,
            false => Some([&before, bytes].concat()),
        };
        let bytes = joined.as_deref().unwrap_or(bytes);
        if relay.outlet.waiting() == 0 {
            relay.client_at = context.now;
        }
        let mut at = 0;
        loop {
            let (used, step) = match relay.reader.next(&bytes[at..]) {
                Ok(next) => next,
                Err(malformed) => return Err(Failure::Malformed(malformed).into()),
            };
            let here = &bytes[at..];
            at += used;
            match step {
                Step::More => {
                    relay.received = bytes[at..].to_vec();
                    return Ok(());
                }
                Step::Interim(head) => {
                    // The server has sent its own 100, and clients with HTTP/1.0 know none.
                    if relay.request.is_11 && head.status != 100 {
                        relay.outlet.interim(&head);
                    }
                }
                Step::Tunnel(head) => {
                    relay.outlet.tunnel(&head);
                    relay.is_tunnel = true;
                    relay.is_read = false;
                    add(&context.counts().tunnels, 1);
                }
                Step::Head(head) => self.begin_answer(relay, &head, context),
                Step::Content(part) => {
                    relay.outlet.content(&here[part])?;
                    if relay.outlet.content > relay.most_content() {
                        return Err(Failure::Malformed(Malformed("it is too long")).into());
                    }
                }
                Step::Message(part) => log_message(&here[part], context),
                Step::Overloaded => return Err(Failure::NoLink.into()),
                Step::End => {
                    let has_more = at < bytes.len();
                    return self.answer_ends(relay, !has_more, context);
                }
            }
        }
    }

    fn begin_answer(&self, relay: &mut Relay, head: &Head, context: &Context) {
        relay.closes = self.closes(&relay.request, context);
        let rules = self.rules.as_deref();
        let manner = Manner {
            is_head: relay.request.method == Method::Head,
            is_11: relay.request.is_11,
            closes: relay.closes,
            date: &context.date,
            fields: rules.map_or(&[], |rules| rules.fields.as_slice()),
        };
        relay.outlet.head(head, &manner);
        relay.closes |= relay.outlet.ends_with_connection();
    }

    /// The answer is whole. The upstream need not wait for the client to take it.
    fn answer_ends(
        &self,
        relay: &mut Relay,
        is_clean: bool,
        context: &mut Context,
    ) -> Result<(), Stop> {
        relay.outlet.end()?;
        relay.is_answered = true;
        let Some(link) = relay.link.take() else {
            return Ok(());
        };
        context.links.succeeds(link);
        let is_sent = relay.is_read && !relay.is_refused && relay.to_upstream.is_empty();
        match is_clean && is_sent && relay.reader.keeps_connection() {
            true => context.links.put_back(link, context.now),
            false => context.links.close(link),
        }
        Ok(())
    }

    /// The upstream has closed its connection. `is_regular`: and has not reset it.
    fn upstream_ends(
        &self,
        relay: &mut Relay,
        is_regular: bool,
        context: &mut Context,
    ) -> Result<(), Stop> {
        if is_regular && relay.reader.ends() {
            return self.answer_ends(relay, false, context);
        }
        Err(Failure::Closed.into())
    }

    /// From the buffer to the client.
    fn deliver(&mut self, relay: &mut Relay, context: &mut Context) -> Result<u64, Stop> {
        let mut moved = 0;
        while relay.outlet.waiting() > 0 && self.writable {
            let was_full = !relay.has_room();
            let bytes = relay.outlet.queue().as_slice();
            match self.transport.send(&self.socket, &[], bytes, false) {
                Ok(sent) => {
                    relay.outlet.queue().advance(sent);
                    relay.client_at = context.now;
                    relay.delivered += sent as u64;
                    if was_full {
                        // Only now has the upstream something to do again.
                        relay.upstream_at = context.now;
                    }
                    moved += sent as u64;
                }
                Err(Errno::AGAIN) => self.writable = false,
                Err(Errno::INTR) => {}
                Err(_) => return Err(Stop::Cut),
            }
        }
        add(&context.counts().bytes, moved);
        Ok(moved)
    }

    fn relay_done(&mut self, relay: Relay, context: &mut Context) -> Went {
        let status = relay.outlet.status.unwrap_or_default();
        self.log(Some(&relay.request), status, relay.outlet.content, context);
        self.finish(relay.closes || relay.is_tunnel, true, context)
    }

    /// Tries again, or answers with what went wrong; or ends, if the client has a part of an answer.
    fn relay_fails(&mut self, key: usize, failure: Failure, context: &mut Context) -> Went {
        let State::Relaying(mut relay) = std::mem::replace(&mut self.state, State::Reading) else {
            return Went::On;
        };
        self.drop_link(&mut relay, failure, context);
        if relay.outlet.status.is_some() && !relay.has_begun() {
            // Nobody has seen what has come of it.
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
        if failure.status() < 500 {
            let refusal = Refusal::new(failure.status(), "");
            self.refuse(refusal, context);
        } else {
            self.error(failure.status(), relay.request, context);
        }
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
        self.release(context);
    }

    /// The connection ends: the upstream's is not needed any more.
    pub fn release(&mut self, context: &mut Context) {
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
            of_client
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

/// What a program says to who runs the server.
fn log_message(text: &[u8], context: &Context) {
    let Some(messages) = &context.shared.messages else {
        return;
    };
    let text = String::from_utf8_lossy(text);
    for line in text.lines().filter(|line| !line.is_empty()) {
        let line: String = line.chars().filter(|c| !c.is_control()).collect();
        if !messages.put(format!("upstream: {line}\n")) {
            add(&context.counts().lost_log_lines, 1);
        }
    }
}
