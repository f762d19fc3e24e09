// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of what has no good end: processes that die, take too long or lie, and connections that end meanwhile.

use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use rustix::net::{connect_unspec, shutdown, Shutdown};

use super::super::loan::Lent;
use super::super::{Connection, Next, State, Went};
use crate::context::Context;
use crate::counts::{add, subtract};
use crate::upstream::application::{Options, Report, Source};

/// For a process that is killed to be gone, and for one to give back what is not its client's any more.
const DEATH_MS: u64 = 3000;

impl Connection {
    /// The process has ended, or does not do what it should.
    pub(super) fn lost(&mut self, has_ended: bool, context: &mut Context) -> Went {
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
        if lent.cut_until.is_some() {
            return Went::Ended;
        }
        self.come_back();
        // One that lives may still write.
        if has_ended && lent.is_untouched(&self.socket, &mut context.buffer) {
            lent.request.keeps_alive = false;
            self.error(status, lent.request, context);
            return Went::On;
        }
        self.cut_lent(&mut lent, status, context);
        Went::Ended
    }

    /// The answer cannot be finished. Closing the socket would not end the connection while the process has it, too.
    pub(super) fn cut_lent(&mut self, lent: &mut Lent, status: u16, context: &mut Context) {
        add(&context.counts().cut, 1);
        let Report { content, .. } = lent.report;
        match &mut lent.bridge {
            Some(bridge) => {
                self.deliver_rest(bridge, context);
                bridge.cut();
            }
            None => add(&context.counts().bytes, content),
        }
        self.record(Some(&lent.request), status, content, context);
        if connect_unspec(&self.socket).is_err() {
            let _ = shutdown(&self.socket, Shutdown::Both);
        }
    }

    /// Handles the end of a deadline.
    pub(in crate::connection) fn lent_expires(
        &mut self,
        key: usize,
        context: &mut Context,
    ) -> Next {
        let State::Lent(lent) = &mut self.state else {
            return Next::Wait;
        };
        if lent.deadline() > context.now {
            self.deadline = lent.deadline();
            return Next::Wait;
        }
        if lent.process.is_none() {
            context.queues.leave(&lent.pool, (key, self.id));
            let State::Lent(lent) = std::mem::replace(&mut self.state, State::Reading) else {
                return Next::Wait;
            };
            add(&context.counts().upstream_full, 1);
            self.error(503, lent.request, context);
            return self.drive(key, context);
        }
        let is_own = matches!(
            lent.options(),
            Some(Options {
                source: Source::Command { .. },
                ..
            })
        );
        if lent.dies_until.is_none() && lent.cut_until.is_none() {
            add(&context.counts().upstream_timeouts, 1);
            if !lent.is_untouched(&self.socket, &mut context.buffer) {
                return self.cut_first(context);
            }
            // Once it is dead, it is known whether the client has got something.
            let process = lent.process.as_ref().filter(|_| is_own);
            if process.is_some_and(|process| lent.pool.kill(process)) {
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

    /// The client may be what is slow: the process sees that the connection has ended, and has a moment to go on.
    fn cut_first(&mut self, context: &mut Context) -> Next {
        let State::Lent(mut lent) = std::mem::replace(&mut self.state, State::Reading) else {
            return Next::Wait;
        };
        self.cut_lent(&mut lent, 504, context);
        let until = context.now + DEATH_MS;
        lent.cut_until = Some(until);
        self.deadline = until;
        self.state = State::Lent(lent);
        Next::Wait
    }

    /// The connection ends, or goes on elsewhere: with the request, or without it.
    pub(in crate::connection) fn release_lent(&mut self, key: usize, context: &mut Context) {
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
}
