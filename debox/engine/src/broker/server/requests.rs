// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serves the requests of a connection.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

use anyhow::{anyhow, bail, Result};
use nix::sys::socket::MsgFlags;

use super::{Broker, Connection, Next, Stage, FORGET};
use crate::broker::channel;
use crate::broker::cpu;
use crate::broker::listener::reply_to;
use crate::broker::protocol::{self, FrameText, Reply, Request, Wish};
use crate::broker::shared::{find_stack, slots_memory, Kind, Shared};
use crate::kernel::objects;
use crate::random;

impl Broker {
    /// Serves one packet of a connection, at its user's expense.
    pub(super) fn listen_to(&mut self, number: u64) {
        let Some(connection) = self.connections.remove(&number) else {
            return;
        };
        let (owner, before) = (connection.owner, cpu::of_thread());
        self.hear(number, connection);
        let spent = cpu::of_thread().saturating_sub(before);
        self.budget.charge(owner, spent, Instant::now());
    }

    fn hear(&mut self, number: u64, connection: Connection) {
        let flags = MsgFlags::MSG_DONTWAIT;
        let next = match channel::receive(connection.socket.as_fd(), protocol::REQUEST_MAX, flags) {
            Ok(packet) => match protocol::decode::<Request>(&packet.bytes) {
                Some(request) => self.answer(&connection, request, packet.sender),
                None => {
                    let why = "the request is not understood";
                    self.refuse(&connection.socket, &connection.peer, why);
                    Next::Over
                }
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.connections.insert(number, connection);
                return;
            }
            Err(_) => Next::Over,
        };
        self.go_on(number, connection, next);
    }

    pub(super) fn go_on(&mut self, number: u64, connection: Connection, next: Next) {
        match next {
            Next::Stay(stage) => {
                let connection = Connection {
                    stage,
                    ..connection
                };
                self.connections.insert(number, connection);
            }
            Next::Over => self.end(connection),
            Next::Run(wish) => self.begin_run(connection, wish),
        }
    }

    fn answer(
        &mut self,
        connection: &Connection,
        request: Request,
        sender: Option<(i32, u32)>,
    ) -> Next {
        match (&connection.stage, request) {
            (Stage::Greeting, Request::Hello { version }) => {
                if version != protocol::VERSION {
                    let ours = protocol::VERSION;
                    let text = format!("the broker speaks version {ours}, not {version}");
                    self.refuse(&connection.socket, &connection.peer, &text);
                    return Next::Over;
                }
                let Ok(nonce) = random::random() else {
                    return Next::Over;
                };
                let version = protocol::VERSION;
                let reply = Reply::Welcome { version, nonce };
                said(reply_to(&connection.socket, &reply), Stage::Asked(nonce))
            }
            (
                Stage::Asked(expected),
                Request::Enable { nonce, .. } | Request::Run { nonce, .. },
            ) if nonce != *expected || !connection.peer.has_sent(sender) => {
                let why = "the process that asks is not the one that connected";
                self.refuse(&connection.socket, &connection.peer, why);
                Next::Over
            }
            (Stage::Asked(_), Request::Run { wish, .. }) => Next::Run(wish),
            (Stage::Asked(_), Request::Enable { wish, .. }) => {
                let next = self.enable(connection, wish);
                self.or_refused(connection, next)
            }
            (Stage::Greeting, Request::Frames { stack }) => {
                let frames = self.frames(stack);
                let _ = reply_to(&connection.socket, &Reply::Frames(frames));
                Next::Over
            }
            _ => {
                let why = "the request is out of order";
                self.refuse(&connection.socket, &connection.peer, why);
                Next::Over
            }
        }
    }

    pub(super) fn or_refused(&self, connection: &Connection, next: Result<Next>) -> Next {
        next.unwrap_or_else(|error| {
            let why = format!("{error:#}");
            self.refuse(&connection.socket, &connection.peer, &why);
            Next::Over
        })
    }

    pub(super) fn enable(&mut self, connection: &Connection, wish: Wish) -> Result<Next> {
        let (peer, owner) = (&connection.peer, connection.owner);
        let kind = Kind::of(&wish);
        let now = Instant::now();
        let mut slots = self.quota.take(owner, wish.max_threads, now);
        if slots.is_err() {
            self.take_back(); // what left since the last tick
            slots = self.quota.take(owner, wish.max_threads, now);
        }
        let slots = match slots {
            Ok(slots) => slots,
            Err(refusal) => bail!(refusal),
        };
        let memory = self
            .account
            .take(Some(owner), "its slots", slots_memory(slots));
        let memory = memory.map_err(|refusal| anyhow!(refusal));
        let Some(session) = self.sessions.iter_mut().find(|shared| shared.kind == kind) else {
            self.quota.give_back(owner, slots);
            memory?;
            let is_again = false;
            self.load(kind, owner, is_again)?;
            return Ok(Next::Stay(Stage::Waits(wish)));
        };
        let admitted = memory.and_then(|memory| Ok((session.admit(peer, slots)?, memory)));
        let (admitted, memory) = match admitted {
            Ok(admitted) => admitted,
            Err(error) => {
                self.quota.give_back(owner, slots);
                return Err(error);
            }
        };
        let reply = protocol::encode(&Reply::Enabled { slots });
        let given = objects::map_by_id(admitted.slots_id);
        let given = given.and_then(|slots| Ok((slots, self.presence.for_client()?)));
        let sent = given.and_then(|(slots, page)| {
            let descriptors = [slots.as_raw_fd(), page.as_raw_fd()];
            let flags = MsgFlags::MSG_DONTWAIT;
            channel::send(connection.socket.as_fd(), &reply, &descriptors, flags)
        });
        let stage = Stage::Client {
            kind,
            client: admitted.client,
            map: admitted.slots,
            slots_id: admitted.slots_id,
            slots,
            memory,
        };
        if sent.is_err() {
            self.release(owner, stage);
            return Ok(Next::Over);
        }
        Ok(Next::Stay(stage))
    }

    /// The functions of a stack, without their addresses.
    fn frames(&mut self, stack: u64) -> Vec<FrameText> {
        let mut of_runs = self.runs.iter().filter_map(|run| run.terms.stacks.get());
        let found = self.sessions.iter().find_map(|shared| shared.stack(stack));
        let found = found.or_else(|| of_runs.find_map(|table| find_stack(table, stack)));
        let Some(addresses) = found else {
            if self.forgot_shapes.elapsed() > FORGET {
                self.forgot_shapes = Instant::now();
                self.sessions.iter().for_each(Shared::forget_shapes);
            }
            return Vec::new();
        };
        let text = |address: &u64| FrameText::of(self.symbols.kernel(*address));
        addresses.iter().map(text).collect()
    }
}

fn said(sent: io::Result<()>, stage: Stage) -> Next {
    if sent.is_ok() {
        Next::Stay(stage)
    } else {
        Next::Over
    }
}
