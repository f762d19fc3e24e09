// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection, from one request to the next. Nothing here waits: `drive` returns when the connection cannot go on,
//! and the loop calls it again when the socket is ready, a helper has answered, or the deadline has passed.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{recv, RecvFlags};

use crate::access::limits::Place;
use crate::answer::{Common, Reply};
use crate::candidates::{is_hidden, Candidates};
use crate::context::{Context, Site};
use crate::counts::add;
use crate::descriptors::Taken;
use crate::helpers::{self, Ticket, Want};
use crate::http::chunked::Body;
use crate::http::method::Method;
use crate::http::refusal::Refusal;
use crate::http::request::{Reader, Request};
use crate::http::target::Target;
use crate::meter::Meter;
use crate::sending::Sending;
use crate::sites::Rules;
use crate::transport::Transport;

mod admission;
mod delivery;
mod discard;
mod exchange;
mod lending;
mod loan;
mod lookup;
mod moving;
mod reading;
mod record;
mod relay;
#[cfg(test)]
pub mod tests;
mod written;

use exchange::Way;

/// In the names of events: of what belongs to a connection and is not its client's socket.
pub const SIDE: u64 = 1 << 62;
/// Steps and bytes after which it is another connection's turn.
const STEPS: usize = 16;
const BYTES: u64 = 512 << 10;
/// Bytes of a request's body that are read and discarded. If it is longer, the connection ends with the answer.
const PASSED: u64 = 64 << 10;

/// Who is at the other end.
#[derive(Default)]
pub struct Peer {
    pub address: Option<IpAddr>,
    /// Its place among the connections of its client, if those are limited.
    pub place: Option<Place>,
}

pub struct Connection {
    socket: OwnedFd,
    transport: Transport,
    peer: Peer,
    site: Site,
    /// Of the request that is being answered.
    rules: Option<Arc<Rules>>,
    input: Vec<u8>,
    reader: Reader,
    state: State,
    id: u32,
    /// The rest of the body of the request that is being answered.
    body: Option<Body>,
    passed: u64,
    /// The number of the next question to a helper. It is unique among all connections of the loop, so an answer
    /// that comes too late is dropped.
    number: u64,
    /// While a helper's answer is waited for.
    want: Option<Want>,
    /// The last name that a helper had to look for was there.
    has_found: bool,
    meter: Meter,
    /// For the file of the request that is being answered.
    taken: Option<Taken>,
    /// When the loop will go on with it.
    pub resumes_at: Option<u64>,
    pub readable: bool,
    pub writable: bool,
    /// The kernel reports when the socket takes bytes again: asked for only once it did not, as it takes them at first, and to
    /// report that would be an event for each new connection.
    pub asks_for_room: bool,
    /// The client has ended its side.
    pub has_ended: bool,
    /// The client has reset the connection, or both sides have ended it.
    pub is_gone: bool,
    /// The head of the request that is being answered was complete then.
    began: Instant,
    /// Since when it has nothing to do, if that is so; in the loop's milliseconds, as what follows.
    idle_since: u64,
    pub deadline: u64,
    /// When the loop will look at the deadline.
    pub looked_at: u64,
}

enum State {
    Reading,
    Asked(Box<Asked>),
    /// Waits for a password to be checked.
    Checking(Box<Request>),
    Sending(Box<Sending>),
    /// An upstream answers.
    Relaying(Box<exchange::Relay>),
    /// A process of an application has the socket, or will have it.
    Lent(Box<loan::Lent>),
    /// Discards the request's body before it is answered, as the body may be wrong.
    Passing(Box<Request>),
    /// The last answer has been sent, and what comes after it is discarded, until this time at most.
    Lingering(u64),
}

/// Waits for a helper.
struct Asked {
    request: Box<Request>,
    candidates: Candidates,
}

/// What the loop does with the connection next.
#[derive(Debug, PartialEq)]
pub enum Next {
    Wait,
    /// It could go on, but others should, too.
    Again,
    /// It can go on at this time, in the loop's milliseconds.
    At(u64),
    Close,
}

enum Went {
    On,
    Waits,
    WaitsUntil(u64),
    /// It is time for other connections.
    Paced,
    Ended,
}

impl Connection {
    /// `id`: unique among the connections of the loop.
    pub fn new(
        socket: OwnedFd,
        transport: Transport,
        peer: Peer,
        site: Site,
        id: u32,
        context: &Context,
    ) -> Connection {
        let ms = match transport.is_handshaking() {
            true => context.options.handshake_ms,
            false => context.options.head_ms,
        };
        Connection {
            socket,
            transport,
            peer,
            site,
            rules: None,
            input: Vec::new(),
            reader: Reader::default(),
            state: State::Reading,
            id,
            body: None,
            passed: 0,
            number: u64::from(id) << 32,
            want: None,
            has_found: false,
            meter: Meter::default(),
            taken: None,
            resumes_at: None,
            readable: true,
            writable: true,
            asks_for_room: false,
            has_ended: false,
            is_gone: false,
            began: Instant::now(),
            idle_since: context.now,
            deadline: context.now + ms,
            looked_at: u64::MAX,
        }
    }

    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Between two requests.
    pub fn is_idle(&self) -> bool {
        let is_between = matches!(self.state, State::Reading) && self.input.is_empty();
        is_between && !self.transport.is_handshaking()
    }

    /// Since when it is between two requests, or after its last answer. `None`: it is not, or the next request is there.
    pub fn idle_since(&self) -> Option<u64> {
        let is_after_last = matches!(self.state, State::Lingering(_));
        (is_after_last || self.is_idle()).then_some(self.idle_since)
    }

    /// The client has sent something that has not been received.
    pub fn has_bytes(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        matches!(recv(&self.socket, &mut [0u8; 1], flags), Ok((1.., _)))
    }

    pub fn is_handshaking(&self) -> bool {
        self.transport.is_handshaking()
    }

    /// It has something to send that the socket did not take.
    pub fn needs_room(&self) -> bool {
        !self.writable || self.transport.has_unsent()
    }

    /// Tells the client that the connection ends on purpose, unless an answer is cut off.
    pub fn end(&mut self) {
        use State as S;
        let is_answering = matches!(
            self.state,
            S::Asked(_) | S::Checking(_) | S::Sending(_) | S::Relaying(_) | S::Lent(_)
        );
        if !is_answering {
            self.transport.end(&self.socket);
        }
    }

    /// Goes on as far as possible. `key`: its place in the loop, which helpers' answers name.
    pub fn drive(&mut self, key: usize, context: &mut Context) -> Next {
        if self.writable {
            match self.transport.flush(&self.socket) {
                Ok(()) => {}
                Err(Errno::AGAIN) => self.writable = false,
                Err(_) => return Next::Close,
            }
        }
        for _ in 0..STEPS {
            let went = match &mut self.state {
                // The next request is for the next configuration.
                State::Reading if context.heir(self.site).is_some() => Went::Waits,
                State::Reading => self.read(key, context),
                State::Asked(_) | State::Checking(_) if self.is_gone => Went::Ended,
                State::Asked(_) | State::Checking(_) => Went::Waits,
                State::Sending(_) => self.send(key, context),
                State::Relaying(_) => self.relay(key, context),
                State::Lent(_) => self.lent(context),
                State::Passing(_) => self.pass(key, context),
                State::Lingering(_) => self.linger(context),
            };
            match went {
                Went::On => {}
                Went::Waits => return Next::Wait,
                Went::WaitsUntil(at) => return Next::At(at),
                Went::Paced => return Next::Again,
                Went::Ended => return Next::Close,
            }
        }
        Next::Again
    }

    /// Handles the end of its deadline.
    pub fn expire(&mut self, key: usize, context: &mut Context) -> Next {
        match &self.state {
            State::Reading if self.input.is_empty() => Next::Close,
            State::Reading => {
                self.refuse(Refusal::new(408, "the request did not come"), context);
                self.drive(key, context)
            }
            State::Passing(_) => {
                self.refuse_body(408, context);
                self.drive(key, context)
            }
            State::Asked(_) | State::Checking(_) | State::Sending(_) => {
                // The helper's answer will be too late.
                self.number += 1;
                self.want = None;
                match self.give_up(context) {
                    Went::Ended => Next::Close,
                    _ => self.drive(key, context),
                }
            }
            State::Relaying(_) => self.relay_expires(key, context),
            State::Lent(_) => self.lent_expires(key, context),
            _ => Next::Close,
        }
    }

    /// Takes the answer of a helper.
    pub fn answered(&mut self, ticket: Ticket, result: helpers::Result, context: &mut Context) {
        if ticket.number != self.number {
            return;
        }
        self.number += 1;
        self.want = None;
        match std::mem::replace(&mut self.state, State::Reading) {
            State::Asked(asked) => self.found_by_helper(ticket.connection, *asked, result, context),
            State::Checking(request) => match result {
                helpers::Result::Checked(checked) => {
                    self.checked(ticket.connection, request, *checked, context);
                }
                _ => self.error(500, request, context),
            },
            State::Sending(mut sending) => {
                sending.waits = false;
                sending.brought += 1;
                match result {
                    helpers::Result::Read(bytes) if !bytes.is_empty() => {
                        let bytes = context.keep(&sending, bytes);
                        sending.put(bytes);
                    }
                    // The rest cannot be had, and the head has promised it.
                    helpers::Result::Read(_) | helpers::Result::Failed(_) => sending.fails(),
                    _ => {}
                }
                self.state = State::Sending(sending);
            }
            other => self.state = other,
        }
    }

    fn common<'a>(&'a self, request: &Request, context: &'a Context) -> Common<'a> {
        Common {
            date: &context.date,
            now: context.second,
            closes: self.closes(request, context),
            is_11: request.is_11,
            is_head: request.method == Method::Head,
            rules: self.rules.as_deref(),
        }
    }

    fn closes(&self, request: &Request, context: &Context) -> bool {
        // What follows a CONNECT may be for another server.
        let is_unsure = self.body.is_some() || request.method == Method::Connect;
        !request.keeps_alive || is_unsure || context.ends(self.site)
    }

    /// The body is too long to be read, or the client waits for a 100 and may send it or not. The connection ends
    /// with the answer then, since it is unknown where the next request begins.
    fn answers_before_body(&self, request: &Request) -> bool {
        let is_long = matches!(&self.body, Some(Body::Length(length)) if *length > PASSED);
        is_long || request.expects_continue
    }

    fn begin(&mut self, key: usize, request: Box<Request>, context: &mut Context) {
        add(&context.counts().requests, 1);
        self.deadline = context.now + context.options.helper_ms;
        self.admit(key, request, context);
    }

    /// Answers a request that has passed all that `admit` asks for.
    fn serve(&mut self, key: usize, mut request: Box<Request>, context: &mut Context) {
        // A URL with `https` is for a connection that is secured (RFC 9110, 7.4).
        if request.is_https && !self.transport.is_encrypted() {
            return self.error(421, request, context);
        }
        let rules = self.rules.as_deref();
        let methods = rules.and_then(|rules| rules.access.methods);
        let is_taken = methods.is_none_or(|methods| methods.contain(request.method));
        let way = self.way(&request);
        if let (true, Way::Upstream, Some(rules)) = (is_taken, way, rules) {
            if let Some(upstream) = rules.upstream.clone() {
                let fields = std::mem::take(&mut request.fields);
                if let Some(pool) = upstream.pool.clone() {
                    return self.begin_lending(key, request, &fields, upstream, pool, context);
                }
                return self.begin_relay(key, request, &fields, (upstream, None), context);
            }
        }
        let is_never = matches!(request.method, Method::Connect | Method::Trace)
            || request.target == Target::Server;
        if let (true, false, Some(rules)) = (is_taken, is_never, rules) {
            if let Some(reply) = self.constant(&request, rules, context) {
                return self.reply(Some(request), reply, context);
            }
        }
        if let (Way::Files, Some(status)) = (way, self.missing(&request)) {
            return self.error(status, request, context);
        }
        let path = match (request.method, &request.target) {
            _ if !is_taken => return self.error(405, request, context),
            (Method::Options, _) => {
                let reply = self.common(&request, context).options();
                return self.reply(Some(request), reply, context);
            }
            (Method::Get | Method::Head, Target::Path(path)) => path,
            (_, Target::Path(path)) if way == Way::Either => path,
            _ => return self.error(405, request, context),
        };
        if self.site == Site::Counts {
            return self.own_page(request, context);
        }
        let Some(rules) = &self.rules else {
            return self.error(404, request, context);
        };
        if !rules.files.dotfiles && is_hidden(path) {
            return self.error(404, request, context);
        }
        let candidates = Candidates::of(&request, path, &rules.files);
        self.look_up(key, request, candidates, context);
    }

    fn error(&mut self, status: u16, request: Box<Request>, context: &mut Context) {
        let reply = self.common(&request, context).error(status);
        self.reply(Some(request), reply, context);
    }

    /// Answers a request whose body does not come as it should. The connection ends with it, as the body has no end.
    fn refuse_body(&mut self, status: u16, context: &mut Context) {
        if let State::Passing(request) = std::mem::replace(&mut self.state, State::Reading) {
            self.error(status, request, context);
        }
    }

    /// Answers what is no request, and ends the connection. What was received of it is still in `input`.
    fn refuse(&mut self, refusal: Refusal, context: &mut Context) {
        let is_head = self.input.trim_ascii_start().starts_with(b"HEAD ");
        let reply = Common::of_no_request(&context.date, is_head).error(refusal.status);
        self.reply(None, reply, context);
    }

    /// Answers a request without TLS where TLS is spoken, and ends the connection.
    fn refuse_plain(&mut self, context: &mut Context) {
        let reply = Common::of_no_request(&context.date, false).not_tls();
        self.reply(None, reply, context);
    }

    fn reply(&mut self, request: Option<Box<Request>>, reply: Reply, context: &mut Context) {
        let closes = match &request {
            Some(request) => self.closes(request, context),
            None => true,
        };
        self.deadline = context.now + context.options.send_ms;
        self.state = State::Sending(Box::new(Sending::new(request, reply, closes)));
    }
}
