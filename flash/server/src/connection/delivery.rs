// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends answers, and what follows an answer: the next request, or the end of the connection.

use rustix::io::Errno;
use rustix::net::Shutdown;

use super::discard::LINGERS;
use super::{Connection, State, Went, BYTES};
use crate::context::Context;
use crate::counts::add;
use crate::helpers::Work;
use crate::http::fields::Framing;
use crate::http::method::Method;
use crate::http::request::Request;
use crate::sending::Progress;

impl Connection {
    /// Has these bytes sent before the answer.
    pub(super) fn send_before(&mut self, bytes: Vec<u8>) {
        if let State::Sending(sending) = &mut self.state {
            sending.prepend(bytes);
        }
    }

    pub(super) fn send(&mut self, key: usize, context: &mut Context) -> Went {
        let State::Sending(sending) = &mut self.state else {
            return Went::On;
        };
        if sending.waits && self.is_gone {
            return Went::Ended;
        }
        if sending.waits || !self.writable {
            return Went::Waits;
        }
        let (mut sent_now, now) = (0, context.now);
        let rate = self.rules.as_ref().and_then(|rules| rules.rate);
        // With a rate, the answer may have to wait before its end.
        sending.holds_end = sending.closes && rate.is_none() && !self.transport.is_encrypted();
        let outcome = loop {
            if sent_now >= BYTES {
                break Ok(Progress::Budget);
            }
            let most = match self.meter.allow(rate, now) {
                Ok(most) => most,
                Err(at) => break Ok(Progress::Metered(at)),
            };
            let (transport, buffer) = (&mut self.transport, &mut context.buffer);
            let stage = &mut context.stage;
            match sending.step(transport, &self.socket, stage, buffer, most, now) {
                Ok(Progress::Sent(bytes)) => {
                    sent_now += bytes;
                    self.meter.spend(rate, bytes, now);
                }
                other => break other,
            }
        };
        add(&context.counts().bytes, sent_now);
        add(
            &context.counts().stalls,
            std::mem::take(&mut sending.stalls),
        );
        add(&context.counts().kept, std::mem::take(&mut sending.kept));
        if sent_now > 0 {
            self.deadline = context.now + context.options.send_ms;
        }
        match outcome {
            Ok(Progress::Budget | Progress::Sent(_)) => Went::On,
            Ok(Progress::Metered(at)) => {
                self.deadline = at + context.options.send_ms;
                Went::WaitsUntil(at)
            }
            Ok(Progress::Done) => self.sent(context),
            Ok(Progress::Bring(work)) => {
                let counts = context.counts();
                add(&counts.cold_bytes, 1);
                if matches!(work, Work::Read { .. }) {
                    add(&counts.untold, 1);
                }
                sending.waits = true;
                if self.submit(key, work, 0, context) {
                    self.deadline = context.now + context.options.helper_ms;
                    return Went::Waits;
                }
                self.give_up(context)
            }
            Ok(Progress::Short) => {
                sending.mark_stale();
                add(&context.counts().shortened, 1);
                self.lose_file(context)
            }
            Err(Errno::AGAIN) => {
                self.writable = false;
                Went::Waits
            }
            Err(_) => Went::Ended,
        }
    }

    /// The rest of a file cannot be had. Answers with 500 unless a part of an answer has been sent.
    fn lose_file(&mut self, context: &mut Context) -> Went {
        let Some(request) = self.take_unanswered() else {
            return Went::Ended;
        };
        self.error(500, request, context);
        Went::On
    }

    /// A helper cannot do its part, now or in time. Answers with 503 unless a part of an answer has been sent.
    pub(super) fn give_up(&mut self, context: &mut Context) -> Went {
        let is_slow_client = matches!(&self.state, State::Sending(sending) if !sending.waits);
        let request = match is_slow_client {
            true => None,
            false => self.take_unanswered(),
        };
        let Some(request) = request else {
            return Went::Ended;
        };
        add(&context.counts().refused, 1);
        self.error(503, request, context);
        Went::On
    }

    /// The request, if the client has got nothing of an answer. Otherwise the connection stays as it is: what it has sent
    /// is recorded when it is closed.
    fn take_unanswered(&mut self) -> Option<Box<Request>> {
        if matches!(&self.state, State::Sending(sending) if sending.has_begun()) {
            return None;
        }
        match std::mem::replace(&mut self.state, State::Reading) {
            State::Asked(asked) => Some(asked.request),
            State::Checking(request) => Some(request),
            State::Sending(sending) => sending.request,
            other => {
                self.state = other;
                None
            }
        }
    }

    /// The answer has gone out.
    pub(super) fn sent(&mut self, context: &mut Context) -> Went {
        let State::Sending(sending) = std::mem::replace(&mut self.state, State::Reading) else {
            return Went::On;
        };
        let request = sending.request.as_deref();
        self.record(request, sending.status, sending.body_sent(), context);
        if sending.closes && request.is_some_and(|request| self.is_through_with(request)) {
            if sending.holds_end {
                // Closing alone would drop what is held if the client has sent something after all.
                let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
            }
            return Went::Ended;
        }
        self.finish(sending.closes, context)
    }

    /// Whether the client has said that this was its last request, and has sent all of it: nothing may come for which the
    /// kernel would have to send a reset. A client of HTTP/1.0 has said nothing; with TLS, its word of its end comes.
    fn is_through_with(&self, request: &Request) -> bool {
        let is_whole = request.body == Framing::None && request.method != Method::Connect;
        let is_last = request.is_11 && !request.keeps_alive && self.input.is_empty();
        is_whole && is_last && !self.transport.is_encrypted()
    }

    /// The next request can come, or the connection ends.
    pub(super) fn finish(&mut self, closes: bool, context: &mut Context) -> Went {
        if closes {
            return self.stop_sending(context);
        }
        self.taken = None;
        self.idle_since = context.now;
        self.deadline = context.now + context.options.idle_ms;
        Went::On
    }

    /// Ends the server's side of the connection. The client's side ends when the client closes it, or when it
    /// has sent nothing for a while: if bytes arrive at a closed socket, the kernel sends a reset, and the client may lose the answer (RFC 9112, 9.6).
    pub(super) fn stop_sending(&mut self, context: &mut Context) -> Went {
        self.transport.end(&self.socket);
        if rustix::net::shutdown(&self.socket, Shutdown::Write).is_err() {
            return Went::Ended;
        }
        self.idle_since = context.now;
        self.deadline = context.now + context.options.linger_ms;
        self.input = Vec::new();
        self.body = None;
        self.taken = None;
        self.rules = None;
        self.state = State::Lingering(context.now + LINGERS * context.options.linger_ms);
        Went::On
    }
}
