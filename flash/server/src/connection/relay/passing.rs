// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two directions of a relay, as far as the sockets and the buffers allow.

use rustix::io::Errno;

use super::super::exchange::{Failure, Relay};
use super::super::{Connection, BYTES};
use super::Stop;
use crate::context::Context;
use crate::counts::add;
use crate::http::chunked::Passed;
use crate::http::fields::Framing;
use crate::http::method::Method;
use crate::transport::Received;
use crate::upstream::answer::{Head, Malformed, Manner, Step};

impl Connection {
    /// As far as it goes.
    pub(super) fn pass_on(&mut self, relay: &mut Relay, context: &mut Context) -> Stop {
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
        let is_full = |relay: &Relay| relay.to_upstream.as_slice().len() >= relay.settings().buffer;
        let was_full = is_full(relay);
        let mut moved = 0;
        while !relay.is_read && !is_full(relay) {
            if self.input.is_empty() {
                if relay.expects_continue && relay.outlet.status.is_none() {
                    relay.outlet.continues();
                }
                relay.expects_continue = false;
                if !self.readable {
                    break;
                }
                match self.receive(context) {
                    Received::Bytes(length) => {
                        let most = context.options.send_ms;
                        relay.body_comes(length as u64, most, context.now);
                    }
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
        if was_full && !is_full(relay) {
            // The client could not send more until now.
            relay.body_until = context.now + context.options.send_ms;
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
        // A chunked body has no length before its end, and each of its chunks has a few bytes of framing.
        relay.taken += self.input.len() as u64;
        let is_chunked = relay.request.body == Framing::Chunked;
        if is_chunked && relay.taken > relay.settings().body {
            return Err(Failure::LongBody.into());
        }
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
        let is_read = relay.is_read && self.body.is_none();
        let is_sent = is_read && !relay.is_refused && relay.to_upstream.is_empty();
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
            let (rate, now) = (
                self.rules.as_ref().and_then(|rules| rules.rate),
                context.now,
            );
            let most = self.meter.allow(rate, now).map_err(Stop::WaitsUntil)?;
            let was_full = !relay.has_room();
            let bytes = relay.outlet.queue().as_slice();
            let bytes = &bytes[..bytes.len().min(most)];
            match self.transport.send(&self.socket, &[], bytes, false) {
                Ok(sent) => {
                    relay.outlet.queue().advance(sent);
                    self.meter.spend(rate, sent as u64, now);
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
