// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes of a client that are read and discarded: a request's body, and what comes after the last answer.

use rustix::io::Errno;
use rustix::net::{recv, RecvFlags};

use super::{Connection, State, Went, PASSED};
use crate::context::Context;
use crate::http::chunked::Passed;
use crate::http::request::Refusal;
use crate::transport::Received;

/// Bytes that are read and discarded after the last answer, so the client receives the answer and not a reset.
const LINGERED: u64 = 256 << 10;

impl Connection {
    /// Reads the request's body and discards it, then begins to answer.
    pub(super) fn pass(&mut self, key: usize, context: &mut Context) -> Went {
        if !self.input.is_empty() {
            let passed = self.body.as_mut().map(|body| body.pass(&self.input));
            match passed {
                Some(Passed::Wrong) => {
                    self.refuse(Refusal::new(400, "the body is not valid"), context);
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
        let State::Lingering(read) = &mut self.state else {
            return Went::On;
        };
        match recv(&self.socket, &mut context.buffer[..], RecvFlags::empty()) {
            Ok((0, _)) => Went::Ended,
            Ok((length, _)) => {
                *read += length as u64;
                match *read > LINGERED {
                    true => Went::Ended,
                    false => Went::On,
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                self.readable = false;
                Went::Waits
            }
            Err(_) => Went::Ended,
        }
    }
}
