// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes of a client that are read and discarded: a request's body, and what comes after the last answer.

use rustix::io::Errno;
use rustix::net::{recv, RecvFlags};

use super::{Connection, State, Went, PASSED};
use crate::context::Context;
use crate::http::chunked::Passed;
use crate::transport::Received;

/// After the last answer, what the client still sends is discarded for so many times `linger_ms`.
pub(super) const LINGERS: u64 = 6;

impl Connection {
    /// Reads the request's body and discards it, then begins to answer.
    pub(super) fn pass(&mut self, key: usize, context: &mut Context) -> Went {
        if !self.input.is_empty() {
            let passed = self.body.as_mut().map(|body| body.pass(&self.input));
            match passed {
                Some(Passed::Wrong) => {
                    self.refuse_body(400, context);
                    return Went::On;
                }
                Some(Passed::All) => {
                    self.passed += self.input.len() as u64;
                    self.input.clear();
                }
                Some(Passed::Ended(at)) => {
                    self.input.drain(..at);
                    self.body = None;
                }
                None => {}
            }
        }
        if self.body.is_none() || self.passed > PASSED {
            if let State::Passing(request) = std::mem::replace(&mut self.state, State::Reading) {
                self.begin(key, request, context);
            }
            return Went::On;
        }
        if !self.readable {
            return Went::Waits;
        }
        match self.receive(context) {
            Received::Bytes(_) => Went::On,
            Received::Nothing => Went::Waits,
            Received::Paced => Went::Paced,
            Received::End | Received::NotTls | Received::Failed(_) => Went::Ended,
        }
    }

    pub(super) fn linger(&mut self, context: &mut Context) -> Went {
        let State::Lingering(until) = self.state else {
            return Went::On;
        };
        if !self.readable {
            return Went::Waits;
        }
        match recv(&self.socket, &mut context.buffer[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => Went::Ended,
            Ok(_) if context.now >= until => Went::Ended,
            Ok(_) => {
                self.deadline = until.min(context.now + context.options.linger_ms);
                Went::On
            }
            Err(Errno::AGAIN) => {
                self.readable = false;
                Went::Waits
            }
            Err(Errno::INTR) => Went::On,
            Err(_) => Went::Ended,
        }
    }
}
