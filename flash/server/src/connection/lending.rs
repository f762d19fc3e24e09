// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lends the client's socket to a process of an application, which writes its answer there by itself. The server waits
//! for the process to say that it has answered, and trusts nothing else of what it does. If the process is not to have the
//! client's socket, it gets one end of a bridge in its place.

use std::sync::Arc;

use rustix::io::Errno;

use super::loan::Lent;
use super::written::written;
use super::{Connection, State, Went, SIDE, STEPS};
use crate::context::Context;
use crate::counts::{add, subtract};
use crate::http::fields::Framing;
use crate::http::method::Method;
use crate::http::request::Request;
use crate::http::target::Target;
use crate::sending::Sending;
use crate::stages::Answering;
use crate::upstream::application::pool::{Heard, Pool, Process};
use crate::upstream::application::{Order, Report, Said, Then, EXPECTS, IS_11, IS_HEAD, KEEPS};
use crate::upstream::http::Field;
use crate::upstream::variables::variables;
use crate::upstream::{Protocol, Upstream};

pub mod bridge;
mod crossing;
mod ending;

use bridge::Bridge;

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
        let more = length - read as u64;
        let stage = context.options.stages.stage;
        let is_bridged = self.transport.is_encrypted() || stage.answering == Answering::Relayed;
        let bridge = is_bridged.then(|| {
            let taken = context.shared.spare.take(2).ok_or(Errno::MFILE)?;
            Bridge::new(more, taken)
        });
        let Ok(bridge) = bridge.transpose() else {
            add(&context.counts().refused, 1);
            return self.error(503, request, context);
        };
        self.input.drain(..read);
        let mut lent = Box::new(Lent {
            request,
            upstream,
            pool,
            message,
            has_more: more > 0,
            bridge,
            process: None,
            number: 0,
            written: None,
            report: Report::default(),
            began_at: context.now,
            heard_at: context.now,
            dies_until: None,
            cut_until: None,
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
        let name = SIDE | u64::from(self.id) << 32 | key as u64;
        if context.queues.listen(&process, name).is_err() {
            return false;
        }
        lent.written = written(&self.socket);
        let end = lent.bridge.as_ref().and_then(Bridge::theirs);
        let Ok(number) = process.lend(&mut lent.message, end.unwrap_or(&self.socket)) else {
            context.queues.ignore(&process);
            return false;
        };
        match &mut lent.bridge {
            Some(bridge) => {
                bridge.is_lent();
                if context.queues.cross(bridge.own(), name).is_err() {
                    bridge.cut();
                }
            }
            None => self.transport.lend(),
        }
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
            // Its process would answer a client that has gone.
            return match self.is_gone {
                true => Went::Ended,
                false => Went::Waits,
            };
        };
        for _ in 0..STEPS {
            match process.hear() {
                Heard::Nothing => {
                    self.deadline = lent.deadline();
                    return self.cross(context);
                }
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
        // One that talks without end keeps no other connection waiting.
        self.deadline = lent.deadline();
        Went::Paced
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
        if lent.cut_until.is_some() {
            return Went::Ended;
        }
        if then == Then::Cut {
            self.cut_lent(&mut lent, report.status, context);
            return Went::Ended;
        }
        let is_passed = lent.bridge.as_ref().is_none_or(Bridge::is_passed);
        if then == Then::Keep && is_passed {
            self.body = None;
        }
        let closes = then == Then::Close || self.closes(&lent.request, context);
        if let Some(bridge) = lent.bridge.take() {
            let rest = bridge.rest(&mut context.buffer);
            let (request, content) = (Some(lent.request), report.content);
            let sending = Sending::rest(request, report.status, rest, content, closes);
            self.deadline = context.now + context.options.send_ms;
            self.state = State::Sending(Box::new(sending));
            return Went::On;
        }
        add(&context.counts().bytes, report.content);
        self.record(Some(&lent.request), report.status, report.content, context);
        self.finish(closes, context)
    }

    /// What has happened to the socket meanwhile is not known.
    fn come_back(&mut self) {
        (self.readable, self.writable) = (true, true);
        if self.was_lent() {
            (self.has_ended, self.is_gone) = (true, false);
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
