// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is kept of an answer that has gone out: a count, and a line of the access log.

use super::Connection;
use crate::context::Context;
use crate::counts::add;
use crate::http::request::Request;
use crate::log::Entry;

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
