// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request of an application, and the loan of its client's socket to a process.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::lending::bridge::Bridge;
use super::written::written;
use crate::http::request::Request;
use crate::upstream::application::pool::{Pool, Process};
use crate::upstream::application::{Options, Report};
use crate::upstream::{Protocol, Upstream};

/// A request of an application.
pub struct Lent {
    pub(in crate::connection) request: Box<Request>,
    pub(in crate::connection) upstream: Arc<Upstream>,
    pub(in crate::connection) pool: Arc<Pool>,
    /// Until a process has it.
    pub(in crate::connection) message: Vec<u8>,
    /// Some of the content is still to be received.
    pub(in crate::connection) has_more: bool,
    /// What the process has in place of the client's socket, if it is not to have that.
    pub(in crate::connection) bridge: Option<Bridge>,
    /// `None`: the request waits for one.
    pub(in crate::connection) process: Option<Process>,
    pub(in crate::connection) number: u64,
    /// What the client's socket had taken when it was lent, where the kernel says it.
    pub(in crate::connection) written: Option<u64>,
    /// What the process has said last.
    pub(in crate::connection) report: Report,
    pub(in crate::connection) began_at: u64,
    pub(in crate::connection) heard_at: u64,
    /// The process is being killed, since it took too long; until then it has to be gone.
    pub(in crate::connection) dies_until: Option<u64>,
    /// The connection is not the client's any more. Until then the process has to have noticed.
    pub(in crate::connection) cut_until: Option<u64>,
}

impl Lent {
    pub(in crate::connection) fn options(&self) -> Option<&Options> {
        match &self.upstream.plan.protocol {
            Protocol::Application(options) => Some(options),
            _ => None,
        }
    }

    /// When something has to have happened.
    pub(in crate::connection) fn deadline(&self) -> u64 {
        let Some(options) = self.options() else {
            return 0;
        };
        match (&self.process, self.dies_until.or(self.cut_until)) {
            (None, _) => self.began_at + options.wait_ms,
            (_, Some(until)) => until,
            _ => (self.began_at + options.time_ms).min(self.heard_at + options.silence_ms),
        }
    }

    /// Nothing of an answer has gone to the client.
    pub(in crate::connection) fn is_untouched(
        &mut self,
        socket: &OwnedFd,
        buffer: &mut [u8],
    ) -> bool {
        if let Some(bridge) = &mut self.bridge {
            return bridge.is_untouched(buffer);
        }
        self.written.is_some() && written(socket) == self.written
    }
}
