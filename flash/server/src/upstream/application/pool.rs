// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes of an application that wait for a request, for all loops. No call waits, and no loop waits for another:
//! the queues have no locks.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

use crossbeam_queue::SegQueue;
use rustix::io::Errno;
use rustix::net::{
    recv, recvmsg, send, sendmsg, shutdown, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown,
};

use super::{set_number, Said, SAID};
use crate::helpers::Inbox;

/// Processes that are looked at for one request. All that have ended are found sooner or later.
const TRIES: usize = 64;

/// A process, by its channel. It has at most one request.
pub struct Process {
    channel: OwnedFd,
    /// By which its manager knows it.
    serial: u64,
    requests: u64,
}

impl Process {
    pub fn channel(&self) -> &OwnedFd {
        &self.channel
    }

    /// Has neither ended nor said anything that nobody has asked for.
    fn is_quiet(&self) -> bool {
        let received = recv(&self.channel, &mut [0u8; 1], RecvFlags::DONTWAIT);
        matches!(received, Err(Errno::AGAIN))
    }

    /// Passes a request and the client's socket, and returns the number of the request.
    ///
    /// # Errors
    ///
    /// `MSGSIZE`: it is too long. Otherwise the process has ended.
    pub fn lend(&mut self, message: &mut [u8], socket: &OwnedFd) -> Result<u64, Errno> {
        self.requests += 1;
        set_number(message, self.requests);
        let passed = [socket.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&passed));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(
            &self.channel,
            &[IoSlice::new(message)],
            &mut ancillary,
            flags,
        )?;
        Ok(self.requests)
    }

    pub fn hear(&self) -> Heard {
        let mut message = [0u8; SAID + 1];
        match recv(&self.channel, &mut message, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Heard::End,
            Ok((length, _)) => Said::read(&message[..length]).map_or(Heard::Garbage, Heard::Said),
            Err(Errno::AGAIN | Errno::INTR) => Heard::Nothing,
            Err(_) => Heard::End,
        }
    }
}

/// What comes from a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    Said(Said),
    /// What none may say.
    Garbage,
    /// There is nothing now.
    Nothing,
    /// It has ended.
    End,
}

impl Drop for Process {
    /// Its manager has the channel, too, so closing it would tell nobody.
    fn drop(&mut self) {
        let _ = shutdown(&self.channel, Shutdown::Both);
    }
}

/// A loop with requests that wait.
pub struct Waiter {
    inbox: Arc<Inbox>,
    is_listed: AtomicBool,
}

impl Waiter {
    pub fn new(inbox: Arc<Inbox>) -> Waiter {
        Waiter {
            inbox,
            is_listed: AtomicBool::new(false),
        }
    }
}

pub struct Pool {
    /// Channels of new processes come from here.
    arrivals: OwnedFd,
    idle: SegQueue<Process>,
    /// Loops that want to know of a process.
    waiters: SegQueue<Arc<Waiter>>,
    /// Requests that wait.
    waiting: AtomicUsize,
    most_waiting: usize,
}

impl Pool {
    pub fn new(arrivals: OwnedFd, most_waiting: usize) -> Pool {
        Pool {
            arrivals,
            idle: SegQueue::new(),
            waiters: SegQueue::new(),
            waiting: AtomicUsize::new(0),
            most_waiting,
        }
    }

    /// Readable when there is a new process.
    pub fn arrivals(&self) -> &OwnedFd {
        &self.arrivals
    }

    /// A process that can take a request now.
    pub fn take(&self) -> Option<Process> {
        for _ in 0..TRIES {
            let process = self.idle.pop().or_else(|| self.arrive())?;
            if process.is_quiet() {
                return Some(process);
            }
        }
        None
    }

    fn arrive(&self) -> Option<Process> {
        let mut serial = [0u8; 8];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let into = &mut [IoSliceMut::new(&mut serial)];
        let received = recvmsg(&self.arrivals, into, &mut ancillary, flags).ok()?;
        let mut passed = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        let channel = passed.next().filter(|_| received.bytes == serial.len())?;
        Some(Process {
            channel,
            serial: u64::from_le_bytes(serial),
            requests: 0,
        })
    }

    /// It has answered.
    pub fn put(&self, process: Process) {
        self.idle.push(process);
        self.wake_one();
    }

    /// Has the process ended by its manager. False: nobody can do that.
    pub fn kill(&self, process: &Process) -> bool {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        send(&self.arrivals, &process.serial.to_le_bytes(), flags).is_ok()
    }

    /// False: too many requests wait already.
    pub fn enter(&self) -> bool {
        let is_in = self.waiting.fetch_add(1, Ordering::Relaxed) < self.most_waiting;
        if !is_in {
            self.leave();
        }
        is_in
    }

    pub fn leave(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// The loop will be woken when there is a process. It looks once more for one after this, so none that has just
    /// come is missed.
    pub fn list(&self, waiter: &Arc<Waiter>) {
        if !waiter.is_listed.swap(true, Ordering::SeqCst) {
            self.waiters.push(Arc::clone(waiter));
        }
    }

    /// If a process waits, and a loop for it. A loop that was woken and needed none passes that on.
    pub fn wake_one(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.idle.is_empty() {
            return;
        }
        if let Some(waiter) = self.waiters.pop() {
            waiter.is_listed.store(false, Ordering::SeqCst);
            waiter.inbox.wake();
        }
    }
}
