//! One connection to the server, and its current request.

use std::io;
use std::rc::Rc;

use super::transport::Transport;
use crate::reply::Reply;
use crate::rows::Failure;
use crate::sys;
use crate::workload::{Expected, Request};

/// A request that is waiting or in flight.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    pub intended_ns: i64,
    /// When the request was written.
    pub start_ns: Option<i64>,
    pub first_byte_ns: Option<i64>,
    pub request: Request,
    /// The client that makes the request, in a closed loop.
    pub client: u32,
    pub retried: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Connecting,
    /// Connected, and in the TLS handshake.
    Securing,
    Busy,
    Idle,
    /// Done. The server closes the connection first, so that TIME_WAIT does not occupy a local port.
    Ending,
}

/// How long it took until the connection was usable.
#[derive(Debug, Clone, Copy, Default)]
pub struct Opening {
    pub begun_ns: i64,
    /// Duration of connecting, and of the TLS handshake after it.
    pub connect_ns: Option<i64>,
    pub tls_ns: Option<i64>,
}

pub struct Connection {
    pub transport: Transport,
    /// Set until the row of the connection's first request is written.
    pub opening: Option<Opening>,
    pub number: u32,
    pub local_port: u16,
    pub phase: Phase,
    pub job: Option<Job>,
    /// Counts the jobs, so that an expired time limit of an earlier job is recognized.
    pub served: u32,
    /// Whether the request asks the server to close the connection.
    pub last: bool,
    out: Vec<u8>,
    /// Sent after `out`.
    body: Rc<[u8]>,
    sent: usize,
    pub reply: Reply,
    pub expected: Option<Expected>,
    /// The reply differs from what was expected.
    pub differs: bool,
}

/// The result of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The reply is incomplete.
    Waiting,
    /// The reply is complete. Says whether further bytes followed it.
    Done {
        surplus: bool,
    },
    /// The server has closed the connection.
    Ended,
    Failed(Failure),
}

/// Larger bodies that are not checked are discarded in the kernel, except for their end.
const COPIED: u64 = 32 << 10;
const DISCARDED_AT_ONCE: u64 = 1 << 20;

impl Connection {
    pub fn new(transport: Transport, number: u32, now: i64) -> Connection {
        Connection {
            transport,
            opening: Some(Opening {
                begun_ns: now,
                ..Opening::default()
            }),
            number,
            local_port: 0,
            phase: Phase::Connecting,
            job: None,
            served: 0,
            last: false,
            out: Vec::new(),
            body: Rc::new([]),
            sent: 0,
            reply: Reply::default(),
            expected: None,
            differs: false,
        }
    }

    /// Takes a request. `render` writes its bytes, and returns what is sent after them. `bodiless`: the reply has
    /// no body.
    pub fn take(
        &mut self,
        job: Job,
        expected: Option<Expected>,
        bodiless: bool,
        render: impl FnOnce(&mut Vec<u8>) -> Rc<[u8]>,
    ) {
        self.job = Some(job);
        self.expected = expected;
        self.differs = false;
        self.reply.reset(bodiless);
        self.out.clear();
        self.sent = 0;
        self.body = render(&mut self.out);
    }

    /// Sends the rest of the request.
    pub fn send(&mut self) -> Result<(), Failure> {
        match self.send_all() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            // The server may have answered before it closed the connection: reading will show.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(failure(&error)),
            Ok(()) => Ok(()),
        }
    }

    fn send_all(&mut self) -> io::Result<()> {
        loop {
            let unsent = match self.sent.checked_sub(self.out.len()) {
                None => &self.out[self.sent..],
                Some(of_body) => &self.body[of_body..],
            };
            if unsent.is_empty() {
                return self.transport.flush();
            }
            match self.transport.send(unsent) {
                Ok(length) => self.sent += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads what is available. `at_end`: the server has closed its side, so read to the end.
    pub fn receive(&mut self, buffer: &mut [u8], at_end: bool, now: impl Fn() -> i64) -> Progress {
        loop {
            let plain = self.reply.plain_bytes();
            let unchecked = self.expected.is_none() && plain > 2 * COPIED;
            let unseen = self.transport.plain().filter(|_| unchecked);
            let (result, unseen) = match unseen {
                Some(socket) => {
                    let length = (plain - COPIED).min(DISCARDED_AT_ONCE) as usize;
                    (sys::discard(socket, length), true)
                }
                None => (self.transport.receive(buffer), false),
            };
            let length = match result {
                Ok(0) if self.reply.ends_with_connection() && self.transport.is_truncated() => {
                    return Progress::Failed(Failure::Short)
                }
                Ok(0) => return Progress::Ended,
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Progress::Waiting
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Progress::Failed(failure(&error)),
            };
            if let Some(job) = &mut self.job {
                job.first_byte_ns.get_or_insert_with(&now);
            }
            if unseen {
                self.reply.skip(length as u64);
                continue;
            }
            let bytes = &buffer[..length];
            let (expected, differs) = (&self.expected, &mut self.differs);
            let fed = self.reply.feed(bytes, |offset, range| {
                let matches = |expected: &Expected| expected.matches(offset, &bytes[range]);
                *differs |= !expected.as_ref().is_none_or(matches);
            });
            match fed {
                Err(_) => return Progress::Failed(Failure::Malformed),
                Ok(used) if self.reply.is_done() => {
                    return Progress::Done {
                        surplus: used < length,
                    }
                }
                Ok(_) if length < buffer.len() && !at_end && self.transport.plain().is_some() => {
                    return Progress::Waiting
                }
                Ok(_) => {}
            }
        }
    }
}

/// The failure that a socket error means.
pub fn failure(error: &io::Error) -> Failure {
    match error.raw_os_error() {
        None if error.kind() == io::ErrorKind::InvalidData => Failure::Tls,
        Some(libc::ECONNREFUSED) => Failure::Refused,
        Some(libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED) => Failure::Reset,
        Some(libc::ETIMEDOUT) => Failure::Timeout,
        Some(libc::EMFILE | libc::ENFILE | libc::EADDRNOTAVAIL | libc::ENOBUFS | libc::ENOMEM) => {
            Failure::Local
        }
        _ => Failure::Unreachable,
    }
}
