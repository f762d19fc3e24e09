// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is kept of a request: a count of its answer, and a line of the access log.

use super::{Connection, State};
use crate::context::Context;
use crate::counts::add;
use crate::http::request::Request;
use crate::log::Entry;

/// In the log, of a request whose client has got nothing of an answer: nginx has this number for it.
const NO_ANSWER: u16 = 499;

impl Connection {
    /// `bytes`: of the answer's body. `None`: what was answered is no request.
    pub(super) fn record(
        &self,
        request: Option<&Request>,
        status: u16,
        bytes: u64,
        context: &Context,
    ) {
        context.counts().count_answer(status);
        self.log(request, status, bytes, context);
    }

    /// The connection ends: of a request whose answer is not whole, what has been sent.
    pub(super) fn record_unfinished(&self, context: &Context) {
        let (request, status, bytes) = match &self.state {
            State::Reading | State::Lingering(_) => return,
            State::Asked(asked) => (Some(&*asked.request), None, 0),
            State::Checking(request) | State::Passing(request) => (Some(&**request), None, 0),
            State::Sending(sending) => {
                let status = sending.has_begun().then_some(sending.status);
                (sending.request.as_deref(), status, sending.body_sent())
            }
            State::Relaying(relay) => {
                let outlet = &relay.outlet;
                let status = outlet.status.filter(|_| relay.has_begun());
                let bytes = outlet.content.saturating_sub(outlet.waiting() as u64);
                (Some(&*relay.request), status, bytes)
            }
            // It was recorded when it was cut.
            State::Lent(lent) if lent.cut_until.is_some() => return,
            State::Lent(lent) => {
                let status = Some(lent.report.status).filter(|status| *status != 0);
                (Some(&*lent.request), status, lent.report.content)
            }
        };
        match status {
            Some(status) => self.record(request, status, bytes, context),
            None => self.log(request, NO_ANSWER, 0, context),
        }
    }

    fn log(&self, request: Option<&Request>, status: u16, bytes: u64, context: &Context) {
        let Some(log) = &context.shared.log else {
            return;
        };
        let entry = Entry {
            peer: self.peer.address,
            user: request.and_then(|request| request.user.as_deref()),
            time: &context.log_time,
            ms: context.log_ms,
            line: request.map(|request| request.line.as_str()),
            host: request.map(|request| request.host.as_str()),
            status,
            bytes,
            duration: request.map(|_| self.began.elapsed()),
            tls: self.transport.version(),
            referer: request.and_then(|request| request.referer.as_deref()),
            user_agent: request.and_then(|request| request.user_agent.as_deref()),
        };
        if !log.put(entry.text(context.options.log_format)) {
            add(&context.counts().lost_log_lines, 1);
        }
    }
}
