// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carries bytes between a client and the process that answers it over a bridge, and never waits for either.

use rustix::io::Errno;

use super::super::{Connection, State, Went, BYTES};
use super::bridge::Bridge;
use crate::context::Context;
use crate::counts::add;
use crate::transport::Received;

impl Connection {
    /// The loop's end of the bridge to a process.
    pub fn bridge(&self) -> Option<&Bridge> {
        match &self.state {
            State::Lent(lent) => lent.bridge.as_ref(),
            _ => None,
        }
    }

    /// As far as it goes.
    pub(super) fn cross(&mut self, context: &mut Context) -> Went {
        let State::Lent(lent) = &mut self.state else {
            return Went::On;
        };
        let Some(mut bridge) = lent.bridge.take() else {
            return Went::Waits;
        };
        let went = self.carry(&mut bridge, context);
        if let State::Lent(lent) = &mut self.state {
            lent.bridge = Some(bridge);
        }
        went
    }

    fn carry(&mut self, bridge: &mut Bridge, context: &mut Context) -> Went {
        let mut moved = 0;
        while moved < BYTES {
            if self.is_gone {
                bridge.cut();
                return Went::Waits;
            }
            let before = moved;
            if bridge.wants_content() {
                if self.input.is_empty() && self.readable {
                    match self.receive(context) {
                        Received::Bytes(_) | Received::Nothing => {}
                        Received::Paced => return Went::Paced,
                        Received::End => bridge.ends_content(),
                        Received::NotTls | Received::Failed(_) => self.is_gone = true,
                    }
                }
                let taken = bridge.take_content(&self.input);
                self.input.drain(..taken);
                moved += taken as u64;
            }
            moved += bridge.pass_content() as u64;
            if self.writable {
                moved += self.deliver_answer(bridge, context);
            }
            if moved == before && !self.is_gone {
                return Went::Waits;
            }
        }
        Went::Paced
    }

    /// Passes on what the process has sent before the answer broke off, as far as the client takes it: it would have that
    /// from a process with its socket, too.
    pub(super) fn deliver_rest(&mut self, bridge: &mut Bridge, context: &mut Context) {
        let mut delivered = 0;
        while delivered < BYTES && self.writable && !self.is_gone {
            match self.deliver_answer(bridge, context) {
                0 => break,
                length => delivered += length,
            }
        }
    }

    fn deliver_answer(&mut self, bridge: &mut Bridge, context: &mut Context) -> u64 {
        let answer = bridge.answer(&mut context.buffer);
        if answer.is_empty() {
            return 0;
        }
        match self.transport.send(&self.socket, answer, &[], false) {
            Ok(length) => {
                bridge.delivered(length);
                add(&context.counts().bytes, length as u64);
                return length as u64;
            }
            Err(Errno::AGAIN) => self.writable = false,
            Err(_) => self.is_gone = true,
        }
        0
    }
}
