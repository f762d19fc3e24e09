// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the bytes of a connection go through its socket: as they are, or encrypted. No call waits.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{recv, sendmsg, RecvFlags, SendAncillaryBuffer, SendFlags};
use rustls::{ProtocolVersion, ServerConfig, ServerConnection};

use crate::pace::Pace;

/// Bytes of an answer that are encrypted before the socket has taken those before them. The headers of their records
/// come on top.
pub const ENCRYPTED: usize = 32 << 10;
/// Encrypted bytes that are received from a client before others have their turn: short records take much time and bring
/// few bytes. `rustls` ends connections with many empty ones, but not with some between.
const RECEIVED: usize = 64 << 10;
/// The first byte of a client that speaks TLS: the type of a record with a handshake.
const HANDSHAKE: u8 = 22;

pub enum Transport {
    Plain,
    /// As it is, but an application has had the socket, and may have set it to wait.
    Lent,
    Tls(Box<Encrypted>),
}

pub struct Encrypted {
    connection: ServerConnection,
    has_begun: bool,
    /// The last call that received took all that was there.
    was_all: bool,
    /// Bytes received since others had their turn.
    in_turn: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    Bytes(usize),
    /// The client sends no more.
    End,
    /// There are none now.
    Nothing,
    /// It is time for other connections.
    Paced,
    /// The client does not speak TLS. From here on the transport is plain.
    NotTls,
    Failed(Errno),
}

impl Transport {
    /// # Errors
    ///
    /// The configuration cannot be used.
    pub fn new(config: Option<&Arc<ServerConfig>>) -> Result<Transport, rustls::Error> {
        let Some(config) = config else {
            return Ok(Transport::Plain);
        };
        let mut connection = ServerConnection::new(Arc::clone(config))?;
        connection.set_buffer_limit(Some(ENCRYPTED));
        Ok(Transport::Tls(Box::new(Encrypted {
            connection,
            has_begun: false,
            was_all: false,
            in_turn: 0,
        })))
    }

    pub fn is_handshaking(&self) -> bool {
        matches!(self, Transport::Tls(tls) if tls.connection.is_handshaking())
    }

    /// Of TLS, once it is agreed upon.
    pub fn version(&self) -> Option<&'static str> {
        let Transport::Tls(tls) = self else {
            return None;
        };
        match tls.connection.protocol_version()? {
            ProtocolVersion::TLSv1_2 => Some("TLSv1.2"),
            ProtocolVersion::TLSv1_3 => Some("TLSv1.3"),
            _ => None,
        }
    }

    /// `sendfile`, which cannot be told not to wait for the socket, may be used on it.
    pub fn takes_files(&self) -> bool {
        matches!(self, Transport::Plain)
    }

    pub fn is_encrypted(&self) -> bool {
        matches!(self, Transport::Tls(_))
    }

    /// An application has the socket, too.
    pub fn lend(&mut self) {
        *self = Transport::Lent;
    }

    pub fn was_lent(&self) -> bool {
        matches!(self, Transport::Lent)
    }

    pub fn receive(&mut self, socket: &OwnedFd, into: &mut [u8], pace: &mut Pace) -> Received {
        let received = match self {
            Transport::Plain | Transport::Lent => match recv(socket, into, RecvFlags::DONTWAIT) {
                Ok((0, _)) => Received::End,
                Ok((length, _)) => Received::Bytes(length),
                Err(error) => failed(error),
            },
            Transport::Tls(tls) => tls.receive(socket, into, pace),
        };
        if received == Received::NotTls {
            *self = Transport::Plain;
        }
        received
    }

    /// Whether what was received last, and did not fill the room for it, was all that was there: what comes later is a new
    /// event.
    pub fn is_drained(&self) -> bool {
        match self {
            Transport::Plain | Transport::Lent => true,
            Transport::Tls(tls) => tls.was_all,
        }
    }

    /// Sends the begin of `head` and `body`, in one packet if they fit, and returns how much. `goes_on`: more follows
    /// at once.
    pub fn send(
        &mut self,
        socket: &OwnedFd,
        head: &[u8],
        body: &[u8],
        goes_on: bool,
    ) -> Result<usize, Errno> {
        let parts = [IoSlice::new(head), IoSlice::new(body)];
        match self {
            Transport::Plain | Transport::Lent => {
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                let flags = match goes_on {
                    true => flags | SendFlags::MORE,
                    false => flags,
                };
                sendmsg(socket, &parts, &mut SendAncillaryBuffer::default(), flags)
            }
            Transport::Tls(tls) => tls.send(socket, &parts),
        }
    }

    /// Sends what has been encrypted. `Err(AGAIN)`: the socket does not take all of it now.
    pub fn flush(&mut self, socket: &OwnedFd) -> Result<(), Errno> {
        match self {
            Transport::Plain | Transport::Lent => Ok(()),
            Transport::Tls(tls) => tls.flush(socket),
        }
    }

    /// Something has been encrypted that the socket has not taken yet.
    pub fn has_unsent(&self) -> bool {
        matches!(self, Transport::Tls(tls) if tls.connection.wants_write())
    }

    /// Says that no more will be sent, if the transport has a way to say it.
    pub fn end(&mut self, socket: &OwnedFd) {
        if let Transport::Tls(tls) = self {
            if !tls.connection.is_handshaking() {
                tls.connection.send_close_notify();
                // A client that has not read what came before does not need to know.
                let _ = tls.flush(socket);
            }
        }
    }
}

impl Encrypted {
    fn receive(&mut self, socket: &OwnedFd, into: &mut [u8], pace: &mut Pace) -> Received {
        loop {
            match self.connection.reader().read(into) {
                Ok(0) => return Received::End,
                Ok(length) => return Received::Bytes(length),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The connection has ended without the client having said so. Its requests have their own ends.
                Err(_) => return Received::End,
            }
            let was_handshaking = self.connection.is_handshaking();
            if was_handshaking && pace.is_spent() {
                return Received::Paced;
            }
            if self.in_turn >= RECEIVED {
                self.in_turn = 0;
                return Received::Paced;
            }
            let mut wire = Wire::new(socket);
            match self.connection.read_tls(&mut wire) {
                Ok(0) => return Received::End,
                Ok(length) => self.in_turn += length,
                Err(error) => {
                    // The next bytes come in another turn.
                    self.in_turn = 0;
                    return failed(errno(&error));
                }
            }
            self.was_all = wire.was_all;
            if let (false, Some(first)) = (self.has_begun, wire.first) {
                self.has_begun = true;
                if first != HANDSHAKE && first.is_ascii_graphic() {
                    return Received::NotTls;
                }
            }
            let began = Instant::now();
            let processed = self.connection.process_new_packets();
            if was_handshaking {
                pace.spend(began);
                if processed.is_ok() && !self.connection.is_handshaking() {
                    pace.succeeds(self.connection.handshake_kind());
                }
            }
            // Also an alert that says what is wrong.
            let flushed = self.flush(socket);
            match (processed, flushed) {
                (Ok(_), Ok(()) | Err(Errno::AGAIN)) => {}
                (Err(_), _) => return Received::Failed(Errno::PROTO),
                (_, Err(error)) => return Received::Failed(error),
            }
        }
    }

    fn send(&mut self, socket: &OwnedFd, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        // So at most `ENCRYPTED` bytes wait in memory.
        self.flush(socket)?;
        let wanted = parts.iter().any(|part| !part.is_empty());
        let taken = self.connection.writer().write_vectored(parts);
        let taken = taken.map_err(|error| errno(&error))?;
        if taken == 0 && wanted {
            // The keys may not be used for more (RFC 8446, 5.5).
            return Err(Errno::PIPE);
        }
        match self.flush(socket) {
            Ok(()) | Err(Errno::AGAIN) => Ok(taken),
            Err(error) => Err(error),
        }
    }

    fn flush(&mut self, socket: &OwnedFd) -> Result<(), Errno> {
        let mut wire = Wire::new(socket);
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut wire) {
                Ok(0) => return Err(Errno::PIPE),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(errno(&error)),
            }
        }
        Ok(())
    }
}

fn failed(error: Errno) -> Received {
    match error {
        Errno::AGAIN => Received::Nothing,
        Errno::INTR => Received::Paced,
        error => Received::Failed(error),
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The socket, as `rustls` uses it.
struct Wire<'a> {
    socket: &'a OwnedFd,
    /// Of what has been received.
    first: Option<u8>,
    /// There was room for more than what was received last.
    was_all: bool,
}

impl<'a> Wire<'a> {
    fn new(socket: &'a OwnedFd) -> Wire<'a> {
        Wire {
            socket,
            first: None,
            was_all: false,
        }
    }
}

impl Read for Wire<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let (length, _) = recv(self.socket, &mut *into, RecvFlags::empty())?;
        self.was_all = length < into.len();
        if self.first.is_none() {
            self.first = into[..length].first().copied();
        }
        Ok(length)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut nothing = SendAncillaryBuffer::default();
        Ok(sendmsg(
            self.socket,
            parts,
            &mut nothing,
            SendFlags::NOSIGNAL,
        )?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
