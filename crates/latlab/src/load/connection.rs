//! One connection to the server, and the request that is on it.

use std::io;
use std::os::fd::OwnedFd;

use crate::reply::Reply;
use crate::rows::Failure;
use crate::sys;
use crate::workload::{Expected, Request};

/// A request that is to be made, or is under way.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    pub intended_ns: i64,
    /// When it was written.
    pub start_ns: Option<i64>,
    pub first_byte_ns: Option<i64>,
    pub request: Request,
    /// Who asks, in a closed loop.
    pub client: u32,
    pub retried: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Connecting,
    Busy,
    Idle,
    /// Has done what it had to do; the server is to end it, so that the port is not kept here.
    Ending,
}

pub struct Connection {
    pub socket: OwnedFd,
    pub number: u32,
    pub local_port: u16,
    pub phase: Phase,
    pub job: Option<Job>,
    /// Counts the jobs, so that a job's time limit is not taken for that of the next.
    pub served: u32,
    /// Whether the request says that it is the connection's last.
    pub last: bool,
    out: Vec<u8>,
    sent: usize,
    pub reply: Reply,
    pub expected: Option<Expected>,
    /// What came is not what was expected.
    pub differs: bool,
}

/// What became of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// There is more to come.
    Waiting,
    /// The reply is whole; whether there were bytes behind it.
    Done {
        surplus: bool,
    },
    /// The connection is at its end.
    Ended,
    Failed(Failure),
}

/// Larger bodies that are not checked are not copied here, but for their end.
const COPIED: u64 = 32 << 10;
const DISCARDED_AT_ONCE: u64 = 1 << 20;

impl Connection {
    pub fn new(socket: OwnedFd, number: u32) -> Connection {
        Connection {
            socket,
            number,
            local_port: 0,
            phase: Phase::Connecting,
            job: None,
            served: 0,
            last: false,
            out: Vec::new(),
            sent: 0,
            reply: Reply::default(),
            expected: None,
            differs: false,
        }
    }

    /// Takes a request; `render` writes its bytes.
    pub fn take(
        &mut self,
        job: Job,
        expected: Option<Expected>,
        render: impl FnOnce(&mut Vec<u8>),
    ) {
        self.job = Some(job);
        self.expected = expected;
        self.differs = false;
        self.reply.reset();
        self.out.clear();
        self.sent = 0;
        render(&mut self.out);
    }

    /// Sends what is left of the request.
    pub fn send(&mut self) -> Result<(), Failure> {
        while self.sent < self.out.len() {
            match sys::send(&self.socket, &self.out[self.sent..]) {
                Ok(length) => self.sent += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The server may have answered before it ended the connection: reading tells.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                Err(error) => return Err(failure(&error)),
            }
        }
        Ok(())
    }

    /// Reads what is there. `at_end`: the server has ended its side, so that reading goes on to the end.
    pub fn receive(&mut self, buffer: &mut [u8], at_end: bool, now: impl Fn() -> i64) -> Progress {
        loop {
            let plain = self.reply.plain_bytes();
            let unseen = self.expected.is_none() && plain > 2 * COPIED;
            let result = match unseen {
                true => {
                    let length = (plain - COPIED).min(DISCARDED_AT_ONCE) as usize;
                    sys::discard(&self.socket, length)
                }
                false => sys::receive(&self.socket, buffer),
            };
            let length = match result {
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
                Ok(_) if length < buffer.len() && !at_end => return Progress::Waiting,
                Ok(_) => {}
            }
        }
    }
}

/// What an error of a socket is called.
pub fn failure(error: &io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED) => Failure::Refused,
        Some(libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED) => Failure::Reset,
        Some(libc::ETIMEDOUT) => Failure::Timeout,
        Some(libc::EMFILE | libc::ENFILE | libc::EADDRNOTAVAIL | libc::ENOBUFS | libc::ENOMEM) => {
            Failure::Local
        }
        _ => Failure::Unreachable,
    }
}
