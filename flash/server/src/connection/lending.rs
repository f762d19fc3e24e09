// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lends the client's socket to a process of an application, which writes its answer there by itself. The server waits
//! for the process to say that it has answered, and trusts nothing else of what it does.

use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use rustix::net::{connect_unspec, shutdown, Shutdown};

use super::written::written;
use super::{Connection, Next, State, Went};
use crate::context::Context;
use crate::counts::{add, subtract};
use crate::http::request::{Framing, Method, Request};
use crate::http::target::Target;
use crate::upstream::application::pool::{Heard, Pool, Process};
use crate::upstream::application::{
    Options, Order, Report, Said, Source, Then, EXPECTS, IS_11, IS_HEAD, KEEPS,
};
use crate::upstream::http::Field;
use crate::upstream::variables::variables;
use crate::upstream::{Protocol, Upstream};

/// For a process that is killed to be gone.
const DEATH_MS: u64 = 3000;

/// A request of an application.
pub(super) struct Lent {
    request: Box<Request>,
    upstream: Arc<Upstream>,
    pool: Arc<Pool>,
    /// Until a process has it.
    message: Vec<u8>,
    /// Some of the content is still to be received.
    has_more: bool,
    /// `None`: the request waits for one.
    process: Option<Process>,
    number: u64,
    /// What the client's socket had taken when it was lent, where the kernel says it.
    written: Option<u64>,
    /// What the process has said last.
    report: Report,
    began_at: u64,
    heard_at: u64,
    /// The process is being killed, since it took too long; until then it has to be gone.
    dies_until: Option<u64>,
}

impl Lent {
    fn options(&self) -> Option<&Options> {
        match &self.upstream.plan.protocol {
            Protocol::Application(options) => Some(options),
            _ => None,
        }
    }

    /// When something has to have happened.
    fn deadline(&self) -> u64 {
        let Some(options) = self.options() else {
            return 0;
        };
        match (&self.process, self.dies_until) {
            (None, _) => self.began_at + options.wait_ms,
            (_, Some(until)) => until,
            _ => (self.began_at + options.time_ms).min(self.heard_at + options.silence_ms),
        }
    }

    /// Nothing of an answer has gone to the client.
    fn is_untouched(&self, connection: &Connection) -> bool {
        self.written.is_some() && written(&connection.socket) == self.written
    }
}

impl Connection {
    pub(super) fn begin_lending(
        &mut self,
        key: usize,
        request: Box<Request>,
        fields: &[Field],
        upstream: Arc<Upstream>,
        pool: Arc<Pool>,
        context: &mut Context,
    ) {
        add(&context.counts().upstream_requests, 1);
        let length = match request.body {
            Framing::None => 0,
            Framing::Length(length) => length,
            // As for other programs: they need CONTENT_LENGTH before the content.
            Framing::Chunked => return self.error(411, request, context),
        };
        let read = self
            .input
            .len()
            .min(usize::try_from(length).unwrap_or(usize::MAX));
        let message = self.message(&request, fields, &upstream, (length, read), context);
        let Some(message) = message else {
            return self.error(431, request, context);
        };
        self.input.drain(..read);
        let mut lent = Box::new(Lent {
            request,
            upstream,
            pool,
            message,
            has_more: length > read as u64,
            process: None,
            number: 0,
            written: None,
            report: Report::default(),
            began_at: context.now,
            heard_at: context.now,
            dies_until: None,
        });
        if !lent.has_more {
            self.body = None;
        }
        while let Some(process) = context.queues.take(&lent.pool) {
            if self.lend(key, &mut lent, process, context) {
                break;
            }
        }
        if lent.process.is_none() && !context.queues.enter(&lent.pool, (key, self.id)) {
            add(&context.counts().upstream_full, 1);
            return self.error(503, lent.request, context);
        }
        self.deadline = lent.deadline();
        self.state = State::Lent(lent);
    }

    fn message(
        &self,
        request: &Request,
        fields: &[Field],
        upstream: &Upstream,
        (length, read): (u64, usize),
        context: &Context,
    ) -> Option<Vec<u8>> {
        let (Protocol::Application(options), Target::Path(path)) =
            (&upstream.plan.protocol, &request.target)
        else {
            return None;
        };
        let (script, entrance) = (options.script(path), self.entrance(context));
        let more = options.variables.as_slice();
        let variables = variables(request, path, fields, &script, entrance, None, more);
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        let keeps = request.keeps_alive && !context.ends(self.site);
        let is_head = request.method == Method::Head;
        let order = Order {
            flags: flag(keeps, KEEPS)
                | flag(request.expects_continue, EXPECTS)
                | flag(request.is_11, IS_11)
                | flag(is_head, IS_HEAD),
            variables: &variables,
            length,
            content: &self.input[..read],
            fields: &self.own_fields(context),
            patience_ms: context.options.send_ms,
        };
        order.message()
    }

    /// What the server wants to have in the head of each answer.
    fn own_fields(&self, context: &Context) -> Vec<u8> {
        let mut lines = format!("Date: {}\r\nServer: flash\r\n", context.date);
        let rules = self.rules.as_deref();
        for (name, value) in rules.map_or(&[][..], |rules| rules.fields.as_slice()) {
            lines.extend([name, ": ", value, "\r\n"]);
        }
        lines.into_bytes()
    }

    /// False: the process has just ended.
    fn lend(
        &mut self,
        key: usize,
        lent: &mut Lent,
        mut process: Process,
        context: &mut Context,
    ) -> bool {
        let name = u64::from(self.id) << 32 | key as u64;
        if context.queues.listen(&process, name).is_err() {
            return false;
        }
        lent.written = written(&self.socket);
        let Ok(number) = process.lend(&mut lent.message, &self.socket) else {
            context.queues.ignore(&process);
            return false;
        };
        self.transport.lend();
        lent.message = Vec::new();
        lent.number = number;
        lent.process = Some(process);
        (lent.began_at, lent.heard_at) = (context.now, context.now);
        add(&context.counts().lent, 1);
        true
    }

    /// A process is free for this request. Returns it if the request does not wait any more.
    pub fn gets(&mut self, key: usize, process: Process, context: &mut Context) -> Option<Process> {
        let State::Lent(mut lent) = std::mem::replace(&mut self.state, State::Reading) else {
            return Some(process);
        };
        let mut left = Some(process);
        if lent.process.is_none() {
            if let Some(process) = left.take() {
                let is_lent = self.lend(key, &mut lent, process, context);
                // Those that wait behind it come first now, and the next process may be for this one.
                let stays = is_lent || context.queues.enter(&lent.pool, (key, self.id));
                if !stays {
                    add(&context.counts().upstream_full, 1);
                    self.error(503, lent.request, context);
                    return None;
                }
            }
        }
        self.deadline = lent.deadline();
        self.state = State::Lent(lent);
        left
    }

    pub(super) fn lent(&mut self, context: &mut Context) -> Went {
        let State::Lent(lent) = &mut self.state else {
            return Went::On;
        };
        let Some(process) = &lent.process else {
            // Its process would answer nobody.
            return match self.is_gone {
                true => Went::Ended,
                false => Went::Waits,
            };
        };
        loop {
            match process.hear() {
                Heard::Nothing => break,
                Heard::Said(Said::Progress(report)) if report.number == lent.number => {
                    lent.report = report;
                    lent.heard_at = context.now;
                }
                Heard::Said(Said::Done(report, then)) if report.number == lent.number => {
                    return self.returned(report, then, context);
                }
                Heard::End => return self.lost(true, context),
                Heard::Said(_) | Heard::Garbage => return self.lost(false, context),
            }
        }
        self.deadline = lent.deadline();
        Went::Waits
    }

    /// The process has answered.
    fn returned(&mut self, report: Report, then: Then, context: &mut Context) -> Went {
        let State::Lent(mut lent) = std::mem::replace(&mut self.state, State::Reading) else {
            return Went::On;
        };
        if let Some(process) = lent.process.take() {
            subtract(&context.counts().lent, 1);
            context.queues.ignore(&process);
            lent.pool.put(process);
        }
        self.come_back();
        lent.report = report;
        if then == Then::Cut {
            self.cut_lent(&lent, report.status, context);
            return Went::Ended;
        }
        if then == Then::Keep {
            self.body = None;
        }
        add(&context.counts().bytes, report.content);
        self.record(Some(&lent.request), report.status, report.content, context);
        let closes = then == Then::Close || self.closes(&lent.request, context);
        self.finish(closes, context)
    }

    /// What has happened to the socket meanwhile is not known.
    fn come_back(&mut self) {
        (self.readable, self.writable, self.is_gone) = (true, true, false);
    }

    /// The process has ended, or does not do what it should.
    fn lost(&mut self, has_ended: bool, context: &mut Context) -> Went {
        let State::Lent(mut lent) = std::mem::replace(&mut self.state, State::Reading) else {
            return Went::On;
        };
        let status = match lent.deadline() <= context.now || lent.dies_until.is_some() {
            true => 504,
            false => 502,
        };
        add(&context.counts().upstream_failures, 1);
        if let Some(process) = lent.process.take() {
            subtract(&context.counts().lent, 1);
            context.queues.ignore(&process);
        }
        self.come_back();
        // One that lives may still write.
        if has_ended && lent.is_untouched(self) {
            lent.request.keeps_alive = false;
            self.error(status, lent.request, context);
            return Went::On;
        }
        self.cut_lent(&lent, status, context);
        Went::Ended
    }

    /// The answer cannot be finished. Closing the socket would not end the connection while the process has it, too.
    fn cut_lent(&mut self, lent: &Lent, status: u16, context: &mut Context) {
        add(&context.counts().cut, 1);
        let Report { content, .. } = lent.report;
        add(&context.counts().bytes, content);
        self.record(Some(&lent.request), status, content, context);
        if connect_unspec(&self.socket).is_err() {
            let _ = shutdown(&self.socket, Shutdown::Both);
        }
    }

    /// Handles the end of a deadline.
    pub(super) fn lent_expires(&mut self, key: usize, context: &mut Context) -> Next {
        let State::Lent(lent) = &mut self.state else {
            return Next::Wait;
        };
        if lent.deadline() > context.now {
            self.deadline = lent.deadline();
            return Next::Wait;
        }
        let Some(process) = &lent.process else {
            context.queues.leave(&lent.pool, (key, self.id));
            let State::Lent(lent) = std::mem::replace(&mut self.state, State::Reading) else {
                return Next::Wait;
            };
            add(&context.counts().upstream_full, 1);
            self.error(503, lent.request, context);
            return self.drive(key, context);
        };
        let is_own = matches!(
            lent.options(),
            Some(Options {
                source: Source::Command { .. },
                ..
            })
        );
        if lent.dies_until.is_none() {
            add(&context.counts().upstream_timeouts, 1);
            // Once it is dead, it is known whether the client has got something.
            if is_own && lent.pool.kill(process) {
                let until = context.now + DEATH_MS;
                lent.dies_until = Some(until);
                self.deadline = until;
                return Next::Wait;
            }
        }
        match self.lost(false, context) {
            Went::Ended => Next::Close,
            _ => self.drive(key, context),
        }
    }

    /// The connection ends, or goes on elsewhere: with the request, or without it.
    pub(super) fn release_lent(&mut self, key: usize, context: &mut Context) {
        if let State::Lent(lent) = &mut self.state {
            match lent.process.take() {
                Some(process) => {
                    subtract(&context.counts().lent, 1);
                    context.queues.ignore(&process);
                    let _ = connect_unspec(&self.socket);
                }
                None => context.queues.leave(&lent.pool, (key, self.id)),
            }
        }
        if self.was_lent() {
            // A process may have had it wait at its end.
            let _ = set_socket_linger(&self.socket, None::<Duration>);
        }
    }

    pub fn was_lent(&self) -> bool {
        self.transport.was_lent()
    }

    /// That has its socket now.
    pub fn process(&self) -> Option<&Process> {
        match &self.state {
            State::Lent(lent) => lent.process.as_ref(),
            _ => None,
        }
    }
}
