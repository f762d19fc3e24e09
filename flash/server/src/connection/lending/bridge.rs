// SPDX-License-Identifier: MIT OR Apache-2.0
//! Between a client and a process of an application that is not to have the client's socket: with TLS, as it is not to
//! know the keys, and in the stages of Flash's history in which the server relayed answers. The process gets one end of a
//! pair of sockets, and the loop carries bytes between the other end and the client.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{
    recv, sendmsg, shutdown, socketpair, AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags,
    Shutdown, SocketFlags, SocketType,
};

use crate::descriptors::Taken;
use crate::transport::ENCRYPTED;

/// Bytes of an answer that wait in the kernel for the client, as it counts them.
const WAITING: usize = 64 << 10;

pub struct Bridge {
    /// The loop's end.
    own: OwnedFd,
    _taken: Taken,
    /// Until a process has it.
    theirs: Option<OwnedFd>,
    /// Bytes of the request's content that are still to be received from the client.
    pub(in crate::connection) to_receive: u64,
    /// Content that the process has not taken yet.
    content: Vec<u8>,
    /// Bytes of the answer that the client has not taken yet.
    answer: Vec<u8>,
    /// The process has sent something.
    has_answer: bool,
    /// The process sends no more.
    has_ended: bool,
}

impl Bridge {
    /// # Errors
    ///
    /// The kernel has no descriptor or memory left.
    pub(in crate::connection) fn new(to_receive: u64, taken: Taken) -> Result<Bridge, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (own, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        set_socket_send_buffer_size(&theirs, WAITING)?;
        Ok(Bridge {
            own,
            _taken: taken,
            theirs: Some(theirs),
            to_receive,
            content: Vec::new(),
            answer: Vec::new(),
            has_answer: false,
            has_ended: false,
        })
    }

    pub fn own(&self) -> &OwnedFd {
        &self.own
    }

    pub(in crate::connection) fn theirs(&self) -> Option<&OwnedFd> {
        self.theirs.as_ref()
    }

    /// The process has its end. If the loop kept it, it would not see that the process has closed it.
    pub(in crate::connection) fn is_lent(&mut self) {
        self.theirs = None;
    }

    /// Content can be received from the client.
    pub(in crate::connection) fn wants_content(&self) -> bool {
        self.to_receive > 0 && self.content.is_empty()
    }

    /// Takes content that has been received, and returns how much.
    pub(in crate::connection) fn take_content(&mut self, received: &[u8]) -> usize {
        let length = usize::try_from(self.to_receive).unwrap_or(usize::MAX);
        let length = length.min(received.len());
        self.content.extend_from_slice(&received[..length]);
        self.to_receive -= length as u64;
        length
    }

    /// The process has been passed all of the content.
    pub(in crate::connection) fn is_passed(&self) -> bool {
        self.to_receive == 0 && self.content.is_empty()
    }

    /// Passes content on to the process, and returns how much.
    pub(in crate::connection) fn pass_content(&mut self) -> usize {
        if self.content.is_empty() {
            return 0;
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let parts = [IoSlice::new(&self.content)];
        match sendmsg(
            &self.own,
            &parts,
            &mut SendAncillaryBuffer::default(),
            flags,
        ) {
            Ok(length) => {
                self.content.drain(..length);
                length
            }
            Err(Errno::AGAIN | Errno::INTR) => 0,
            // It reads no more, and will say what it has not read.
            Err(_) => {
                self.content.clear();
                self.to_receive = 0;
                0
            }
        }
    }

    /// The next bytes of the answer. Empty: there are none now.
    pub(in crate::connection) fn answer(&mut self, buffer: &mut [u8]) -> &[u8] {
        if self.answer.is_empty() {
            self.receive(&mut buffer[..ENCRYPTED]);
        }
        &self.answer
    }

    /// The client has taken so many of them.
    pub(in crate::connection) fn delivered(&mut self, length: usize) {
        self.answer.drain(..length);
    }

    /// All that the process has sent and the client has not taken. After this nothing comes: what a process writes later
    /// is not its client's.
    pub(in crate::connection) fn rest(mut self, buffer: &mut [u8]) -> Vec<u8> {
        let most = self.answer.len() + 4 * WAITING;
        while self.answer.len() < most && self.receive(buffer) > 0 {}
        self.answer
    }

    /// Nothing of an answer has come.
    pub(in crate::connection) fn is_untouched(&mut self, buffer: &mut [u8]) -> bool {
        self.receive(buffer);
        !self.has_answer
    }

    fn receive(&mut self, buffer: &mut [u8]) -> usize {
        if self.has_ended {
            return 0;
        }
        match recv(&self.own, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => {
                self.has_ended = true;
                0
            }
            Ok((length, _)) => {
                self.answer.extend_from_slice(&buffer[..length]);
                self.has_answer = true;
                length
            }
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(_) => {
                self.has_ended = true;
                0
            }
        }
    }

    /// The client sends no more.
    pub(in crate::connection) fn ends_content(&mut self) {
        self.to_receive = 0;
        let _ = shutdown(&self.own, Shutdown::Write);
    }

    /// The client has gone, which the process sees when it writes or reads.
    pub(in crate::connection) fn cut(&self) {
        let _ = shutdown(&self.own, Shutdown::Both);
    }
}
