//! One connection, from one request to the next. Nothing here waits: `drive` returns when the connection cannot go on,
//! and the loop calls it again when the socket is ready, a helper has answered, or the deadline has passed.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::access::limits::Place;
use crate::answer::{Common, Form, Reply};
use crate::candidates::{is_hidden, Candidates, Role};
use crate::context::{Context, Site};
use crate::counts::add;
use crate::files::{Kind, Lookup};
use crate::helpers::{self, Job, Ticket, Work};
use crate::http::chunked::Body;
use crate::http::request::{Method, Parsed, Reader, Refusal, Request};
use crate::http::target::Target;
use crate::log::Entry;
use crate::meter::Meter;
use crate::sending::{Progress, Sending};
use crate::sites::Rules;
use crate::transport::{Received, Transport};

/// Steps and bytes after which it is another connection's turn.
const STEPS: usize = 16;
const BYTES: u64 = 512 << 10;
/// Bytes of a request's body that are read and discarded. If it is longer, the connection ends with the answer.
const PASSED: u64 = 64 << 10;

mod admission;
mod discard;

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
    /// The rest of the body of the request that is being answered.
    body: Option<Body>,
    passed: u64,
    /// The number of the next question to a helper. It is unique among all connections of the loop, so an answer
    /// that comes too late is dropped.
    number: u64,
    /// The last name that a helper had to look for did not exist.
    has_missed: bool,
    meter: Meter,
    /// When the loop will go on with it.
    pub resumes_at: Option<u64>,
    pub readable: bool,
    pub writable: bool,
    /// In the loop's milliseconds.
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
    /// Discards the request's body before it is answered, as the body may be wrong.
    Passing(Box<Request>),
    /// The last answer has been sent; so many bytes that came after it have been discarded.
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
            body: None,
            passed: 0,
            number: u64::from(id) << 32,
            has_missed: false,
            meter: Meter::default(),
            resumes_at: None,
            readable: true,
            writable: true,
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

    pub fn is_handshaking(&self) -> bool {
        self.transport.is_handshaking()
    }

    /// Tells the client that the connection ends on purpose, unless an answer is cut off.
    pub fn end(&mut self) {
        if !matches!(
            self.state,
            State::Asked(_) | State::Checking(_) | State::Sending(_)
        ) {
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
                State::Reading => self.read(key, context),
                State::Asked(_) | State::Checking(_) => Went::Waits,
                State::Sending(_) => self.send(key, context),
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
            State::Reading | State::Passing(_) => {
                self.refuse(Refusal::new(408, "the request did not come"), context);
                self.drive(key, context)
            }
            State::Asked(_) | State::Checking(_) | State::Sending(_) => {
                // The helper's answer will be too late.
                self.number += 1;
                match self.give_up(context) {
                    Went::Ended => Next::Close,
                    _ => self.drive(key, context),
                }
            }
            _ => Next::Close,
        }
    }

    /// Takes the answer of a helper.
    pub fn answered(&mut self, ticket: Ticket, result: helpers::Result, context: &mut Context) {
        if ticket.number != self.number {
            return;
        }
        self.number += 1;
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
                    helpers::Result::Read(bytes) if !bytes.is_empty() => sending.put(bytes),
                    // The rest cannot be had, and the head has promised it.
                    helpers::Result::Read(_) | helpers::Result::Failed(_) => sending.fails(),
                    _ => {}
                }
                self.state = State::Sending(sending);
            }
            other => self.state = other,
        }
    }

    fn found_by_helper(
        &mut self,
        key: usize,
        asked: Asked,
        result: helpers::Result,
        context: &mut Context,
    ) {
        let Asked {
            request,
            mut candidates,
        } = asked;
        match result {
            helpers::Result::Opened(at, lookup) => {
                self.has_missed = matches!(lookup, Lookup::Missing);
                candidates.skip(at);
                self.found(key, request, candidates, lookup, context);
            }
            helpers::Result::Listed(page) => {
                let common = self.common(&request, context);
                let reply = common.page("text/html; charset=utf-8", page);
                self.reply(Some(request), reply, context);
            }
            _ => self.error(500, request, context),
        }
    }

    /// Reads the next request from the bytes received so far, and receives more if needed.
    fn read(&mut self, key: usize, context: &mut Context) -> Went {
        loop {
            match self.reader.read(&self.input, context.options.max_head) {
                Parsed::Request(request, length) => {
                    self.input.drain(..length);
                    self.body = Body::new(request.body);
                    self.passed = 0;
                    if self.body.is_some() && !self.answers_before_body(&request) {
                        self.deadline = context.now + context.options.head_ms;
                        self.state = State::Passing(request);
                        return Went::On;
                    }
                    self.begin(key, request, context);
                    return Went::On;
                }
                Parsed::Refused(refusal) => {
                    self.refuse(refusal, context);
                    return Went::On;
                }
                Parsed::Incomplete => {}
            }
            if !self.readable {
                return Went::Waits;
            }
            let was_empty = self.input.is_empty();
            match self.receive(context) {
                Received::End | Received::Failed(_) => return Went::Ended,
                Received::Bytes(_) if was_empty => {
                    self.deadline = context.now + context.options.head_ms;
                }
                Received::Bytes(_) => {}
                Received::NotTls => {
                    self.refuse_plain(context);
                    return Went::On;
                }
                Received::Paced => return Went::Paced,
                Received::Nothing => {
                    if self.input.is_empty() {
                        // An idle connection should cost little.
                        self.input = Vec::new();
                    }
                    return Went::Waits;
                }
            }
        }
    }

    /// Receives bytes into `input`.
    fn receive(&mut self, context: &mut Context) -> Received {
        let was_handshaking = self.transport.is_handshaking();
        let into = &mut context.buffer[..16 << 10];
        let received = self
            .transport
            .receive(&self.socket, into, &mut context.pace);
        match received {
            Received::Bytes(length) => self.input.extend_from_slice(&into[..length]),
            Received::Nothing => self.readable = false,
            Received::NotTls => context.pace.fails(),
            _ => {}
        }
        if was_handshaking && !self.transport.is_handshaking() {
            self.deadline = context.now + context.options.head_ms;
        }
        received
    }

    fn common<'a>(&'a self, request: &Request, context: &'a Context) -> Common<'a> {
        Common {
            date: &context.date,
            closes: self.closes(request, context),
            is_11: request.is_11,
            is_head: request.method == Method::Head,
            rules: self.rules.as_deref(),
        }
    }

    fn closes(&self, request: &Request, context: &Context) -> bool {
        // What follows a CONNECT may be for another server.
        let is_unsure = self.body.is_some() || request.method == Method::Connect;
        !request.keeps_alive || is_unsure || context.is_ending
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
        self.rules = rules_for(self.site, &request, context);
        self.admit(key, request, context);
    }

    /// Answers a request that has passed all that `admit` asks for.
    fn serve(&mut self, key: usize, request: Box<Request>, context: &mut Context) {
        let access = self.rules.as_ref().map(|rules| &rules.access);
        let is_taken = access.is_none_or(|access| access.methods.contain(request.method));
        let path = match (request.method, &request.target) {
            _ if !is_taken => return self.error(405, request, context),
            (Method::Options, _) => {
                let reply = self.common(&request, context).options();
                return self.reply(Some(request), reply, context);
            }
            (Method::Get | Method::Head, Target::Path(path)) => path,
            _ => return self.error(405, request, context),
        };
        if self.site == Site::Counts {
            return self.counts_page(request, context);
        }
        let Some(rules) = &self.rules else {
            return self.error(404, request, context);
        };
        if let Some(redirect) = &rules.redirect {
            let reply = self.common(&request, context).redirect(redirect);
            return self.reply(Some(request), reply, context);
        }
        if !rules.files.dotfiles && is_hidden(path) {
            return self.error(404, request, context);
        }
        let candidates = Candidates::of(&request, path, &rules.files);
        self.look_up(key, request, candidates, context);
    }

    fn counts_page(&mut self, request: Box<Request>, context: &mut Context) {
        let is_it = matches!(&request.target, Target::Path(path) if path.name == b"metrics");
        if !is_it {
            return self.error(404, request, context);
        }
        let page = context.shared.counts_page().into_bytes();
        let kind = "text/plain; version=0.0.4; charset=utf-8";
        let reply = self.common(&request, context).page(kind, page);
        self.reply(Some(request), reply, context);
    }

    fn look_up(
        &mut self,
        key: usize,
        request: Box<Request>,
        mut candidates: Candidates,
        context: &mut Context,
    ) {
        let Some(rules) = &self.rules else {
            return self.error(404, request, context);
        };
        let root = Arc::clone(&rules.root);
        loop {
            match root.open_cached(candidates.name()) {
                Some(Lookup::Missing) if candidates.skip(1) => {}
                Some(lookup) => return self.found(key, request, candidates, lookup, context),
                None => break,
            }
        }
        add(&context.counts().cold_names, 1);
        let names = candidates.names();
        let work = Work::Open { root, names };
        self.ask(key, request, candidates, work, context);
    }

    /// Hands the work to a helper.
    fn ask(
        &mut self,
        key: usize,
        request: Box<Request>,
        candidates: Candidates,
        work: Work,
        context: &mut Context,
    ) {
        let is_taken = self.submit(key, work, context);
        if !is_taken {
            add(&context.counts().refused, 1);
            return self.error(503, request, context);
        }
        self.deadline = context.now + context.options.helper_ms;
        self.state = State::Asked(Box::new(Asked {
            request,
            candidates,
        }));
    }

    fn submit(&mut self, key: usize, work: Work, context: &Context) -> bool {
        let ticket = Ticket {
            connection: key,
            number: self.number,
        };
        let answer_to = Arc::clone(&context.inbox);
        let job = Job {
            ticket,
            work,
            answer_to,
        };
        context.shared.helpers.submit(job, self.has_missed)
    }

    /// Answers with the candidate that was found.
    fn found(
        &mut self,
        key: usize,
        request: Box<Request>,
        mut candidates: Candidates,
        lookup: Lookup,
        context: &mut Context,
    ) {
        let Target::Path(path) = &request.target else {
            return self.error(404, request, context);
        };
        let file = match lookup {
            Lookup::Found(file) => file,
            Lookup::Missing => return self.error(404, request, context),
            Lookup::Forbidden => return self.error(403, request, context),
            Lookup::Busy => return self.error(503, request, context),
            Lookup::Failed(_) => return self.error(500, request, context),
        };
        match (candidates.role(), file.kind) {
            (Role::File(coding), Kind::Regular) => {
                let common = self.common(&request, context);
                let form = Form {
                    name: candidates.plain_name(),
                    coding,
                    may_be_coded: self
                        .rules
                        .as_ref()
                        .is_some_and(|rules| rules.files.precompressed),
                };
                let reply = common.file(&request, &file, &form);
                self.reply(Some(request), reply, context);
            }
            // It has the name of a compressed file and is none.
            (Role::File(Some(_)), _) if candidates.skip(1) => {
                self.look_up(key, request, candidates, context);
            }
            (Role::File(_), Kind::Directory) if !path.is_directory => {
                let common = self.common(&request, context);
                let reply = common.to_directory(&path.raw, path.query.as_deref());
                self.reply(Some(request), reply, context);
            }
            (Role::Directory, Kind::Directory)
                if self.rules.as_ref().is_some_and(|rules| rules.files.lists) =>
            {
                let title = format!("/{}", String::from_utf8_lossy(&path.name));
                let work = Work::List {
                    directory: file,
                    title,
                };
                self.ask(key, request, candidates, work, context);
            }
            // `/file/` is no name of a file.
            (Role::Directory, Kind::Regular) => self.error(404, request, context),
            _ => self.error(403, request, context),
        }
    }

    fn error(&mut self, status: u16, request: Box<Request>, context: &mut Context) {
        let reply = self.common(&request, context).error(status);
        self.reply(Some(request), reply, context);
    }

    /// Answers what is no request, and ends the connection.
    fn refuse(&mut self, refusal: Refusal, context: &mut Context) {
        let is_head = match &self.state {
            State::Passing(request) => request.method == Method::Head,
            _ => self.input.trim_ascii_start().starts_with(b"HEAD "),
        };
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

    fn send(&mut self, key: usize, context: &mut Context) -> Went {
        let State::Sending(sending) = &mut self.state else {
            return Went::On;
        };
        if sending.waits || !self.writable {
            return Went::Waits;
        }
        let (mut sent_now, now) = (0, context.now);
        let rate = self.rules.as_ref().and_then(|rules| rules.rate);
        let outcome = loop {
            if sent_now >= BYTES {
                break Ok(Progress::Budget);
            }
            let most = match self.meter.allow(rate, now) {
                Ok(most) => most,
                Err(at) => break Ok(Progress::Metered(at)),
            };
            let (transport, buffer) = (&mut self.transport, &mut context.buffer);
            match sending.step(transport, &self.socket, buffer, most) {
                Ok(Progress::Sent(bytes)) => {
                    sent_now += bytes;
                    self.meter.spend(rate, bytes, now);
                }
                other => break other,
            }
        };
        add(&context.counts().bytes, sent_now);
        add(
            &context.counts().stalls,
            std::mem::take(&mut sending.stalls),
        );
        if sent_now > 0 {
            self.deadline = context.now + context.options.send_ms;
        }
        match outcome {
            Ok(Progress::Budget | Progress::Sent(_)) => Went::On,
            Ok(Progress::Metered(at)) => {
                self.deadline = at + context.options.send_ms;
                Went::WaitsUntil(at)
            }
            Ok(Progress::Done) => self.sent(context),
            Ok(Progress::Bring(work)) => {
                let counts = context.counts();
                add(&counts.cold_bytes, 1);
                if matches!(work, Work::Read { .. }) {
                    add(&counts.untold, 1);
                }
                sending.waits = true;
                if self.submit(key, work, context) {
                    self.deadline = context.now + context.options.helper_ms;
                    return Went::Waits;
                }
                self.give_up(context)
            }
            Ok(Progress::Short) => {
                add(&context.counts().shortened, 1);
                Went::Ended
            }
            Err(Errno::AGAIN) => {
                self.writable = false;
                Went::Waits
            }
            Err(_) => Went::Ended,
        }
    }

    /// A helper cannot do its part, now or in time. Answers with 503 unless a part of an answer has been sent.
    fn give_up(&mut self, context: &mut Context) -> Went {
        let request = match std::mem::replace(&mut self.state, State::Reading) {
            State::Asked(asked) => Some(asked.request),
            State::Checking(request) => Some(request),
            State::Sending(sending) if sending.waits && !sending.has_begun() => sending.request,
            _ => None,
        };
        let Some(request) = request else {
            return Went::Ended;
        };
        add(&context.counts().refused, 1);
        self.error(503, request, context);
        Went::On
    }

    /// The answer has gone out.
    fn sent(&mut self, context: &mut Context) -> Went {
        let State::Sending(sending) = std::mem::replace(&mut self.state, State::Reading) else {
            return Went::On;
        };
        self.log(&sending, context);
        if sending.closes {
            // If received bytes are unread when a socket is closed, the kernel sends a reset, and the client may lose
            // the answer.
            let has_more = !self.input.is_empty()
                || self.body.is_some()
                || sending.request.is_none()
                || matches!(self.receive(context), Received::Bytes(_));
            self.transport.end(&self.socket);
            if !has_more || rustix::net::shutdown(&self.socket, Shutdown::Write).is_err() {
                return Went::Ended;
            }
            self.deadline = context.now + context.options.linger_ms;
            self.input = Vec::new();
            self.state = State::Lingering(0);
            return Went::On;
        }
        self.deadline = context.now + context.options.idle_ms;
        Went::On
    }

    fn log(&self, sending: &Sending, context: &Context) {
        let Some(log) = &context.shared.log else {
            return;
        };
        let request = sending.request.as_deref();
        let entry = Entry {
            peer: self.peer.address,
            user: request.and_then(|request| request.user.as_deref()),
            time: &context.log_time,
            line: request.map_or("-", |request| &request.line),
            status: sending.status,
            bytes: sending.body_sent(),
            referer: request.and_then(|request| request.referer.as_deref()),
            user_agent: request.and_then(|request| request.user_agent.as_deref()),
        };
        if !log.put(entry.line()) {
            add(&context.counts().lost_log_lines, 1);
        }
    }
}

fn rules_for(site: Site, request: &Request, context: &Context) -> Option<Arc<Rules>> {
    let Site::Files(address) = site else {
        return None;
    };
    let path = match &request.target {
        Target::Path(path) => path.name.as_slice(),
        Target::Server => b"",
    };
    let hosts = context.shared.hosts.get(address)?;
    hosts.find(&request.host, path).cloned()
}

#[cfg(test)]
mod tests;
