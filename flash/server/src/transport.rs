// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the bytes of a connection go through its socket: as they are, or encrypted. No call waits.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{recv, sendmsg, RecvFlags, SendAncillaryBuffer, SendFlags};
use rustls::{HandshakeKind, ServerConfig, ServerConnection};

use crate::counts::{add, Counts};

/// Bytes of an answer that are encrypted before the socket has taken those before them. The headers of their records
/// come on top.
pub const ENCRYPTED: usize = 32 << 10;
/// Time for handshakes in one turn of a loop. The handshake during which it ends is not interrupted.
const HANDSHAKES_NS: u64 = 500_000;
/// The first byte of a client that speaks TLS: the type of a record with a handshake.
const HANDSHAKE: u8 = 22;

pub enum Transport {
    Plain,
    Tls(Box<Encrypted>),
}

pub struct Encrypted {
    connection: ServerConnection,
    has_begun: bool,
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

/// The handshakes of one loop.
#[derive(Debug, Default)]
pub struct Pace {
    /// That have begun and not ended.
    pub open: usize,
    /// In this turn.
    spent_ns: u64,
    longest_ns: u64,
    done: u64,
    resumed: u64,
    failed: u64,
}

impl Pace {
    /// A handshake has ended without a connection.
    pub fn fails(&mut self) {
        self.open = self.open.saturating_sub(1);
        self.failed += 1;
    }

    /// The next turn begins.
    pub fn turn(&mut self, counts: &Counts) {
        let open = self.open as u64;
        counts.handshakes_open.store(open, Ordering::Relaxed);
        if self.spent_ns == 0 && self.failed == 0 {
            return;
        }
        add(&counts.handshake_ns, self.spent_ns);
        add(&counts.handshakes, self.done);
        add(&counts.resumed, self.resumed);
        add(&counts.failed_handshakes, self.failed);
        let longest = &counts.longest_handshake_ns;
        longest.fetch_max(self.longest_ns, Ordering::Relaxed);
        let open = self.open;
        *self = Pace {
            open,
            ..Pace::default()
        };
    }

    fn spend(&mut self, began: Instant) {
        let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.spent_ns += ns;
        self.longest_ns = self.longest_ns.max(ns);
    }

    fn succeeds(&mut self, kind: Option<HandshakeKind>) {
        self.open = self.open.saturating_sub(1);
        self.done += 1;
        self.resumed += u64::from(kind == Some(HandshakeKind::Resumed));
    }
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
        })))
    }

    pub fn is_handshaking(&self) -> bool {
        matches!(self, Transport::Tls(tls) if tls.connection.is_handshaking())
    }

    /// `sendfile` may be used on the socket.
    pub fn is_plain(&self) -> bool {
        matches!(self, Transport::Plain)
    }

    pub fn receive(&mut self, socket: &OwnedFd, into: &mut [u8], pace: &mut Pace) -> Received {
        let received = match self {
            Transport::Plain => match recv(socket, into, RecvFlags::empty()) {
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
            Transport::Plain => {
                let flags = match goes_on {
                    true => SendFlags::NOSIGNAL | SendFlags::MORE,
                    false => SendFlags::NOSIGNAL,
                };
                sendmsg(socket, &parts, &mut SendAncillaryBuffer::default(), flags)
            }
            Transport::Tls(tls) => tls.send(socket, &parts),
        }
    }

    /// Sends what has been encrypted. `Err(AGAIN)`: the socket does not take all of it now.
    pub fn flush(&mut self, socket: &OwnedFd) -> Result<(), Errno> {
        match self {
            Transport::Plain => Ok(()),
            Transport::Tls(tls) => tls.flush(socket),
        }
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
            if was_handshaking && pace.spent_ns >= HANDSHAKES_NS {
                return Received::Paced;
            }
            let mut wire = Wire {
                socket,
                first: None,
            };
            match self.connection.read_tls(&mut wire) {
                Ok(0) => return Received::End,
                Ok(_) => {}
                Err(error) => return failed(errno(&error)),
            }
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
        let mut wire = Wire {
            socket,
            first: None,
        };
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
}

impl Read for Wire<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let (length, _) = recv(self.socket, &mut *into, RecvFlags::empty())?;
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
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    use proptest::prelude::*;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};
    use rustls_pki_types::pem::PemObject;
    use rustls_pki_types::CertificateDer;

    use crate::tls::tests::make_pair;
    use crate::tls::{Settings, Tls};

    struct Sides {
        server: Transport,
        ours: OwnedFd,
        client: ClientConnection,
        theirs: UnixStream,
        pace: Pace,
    }

    thread_local! {
        /// A certificate takes time to make.
        static CONFIGS: (Arc<ServerConfig>, Arc<ClientConfig>) = {
            let place = tempfile::tempdir().expect("a directory");
            let pair = make_pair(place.path(), "a", &["localhost"]);
            let mut roots = RootCertStore::empty();
            let cert = CertificateDer::from_pem_file(&pair.cert).expect("a certificate");
            roots.add(cert).expect("a certificate");
            let tls = Tls::load(&Settings { pairs: vec![pair] }).expect("they are right");
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let client = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .expect("versions")
                .with_root_certificates(roots)
                .with_no_client_auth();
            (tls.config, Arc::new(client))
        };
    }

    fn sides() -> Sides {
        let (theirs, ours) = UnixStream::pair().expect("sockets");
        for socket in [&theirs, &ours] {
            socket.set_nonblocking(true).expect("a socket");
        }
        CONFIGS.with(|(server, client)| Sides {
            server: Transport::new(Some(server)).expect("a configuration"),
            ours: ours.into(),
            client: ClientConnection::new(
                Arc::clone(client),
                "localhost".try_into().expect("a name"),
            )
            .expect("a configuration"),
            theirs,
            pace: Pace::default(),
        })
    }

    impl Sides {
        /// What the server receives from what is there.
        fn receive(&mut self) -> Result<Vec<u8>, Received> {
            let mut all = Vec::new();
            let mut buffer = [0; 1000];
            self.pace.spent_ns = 0;
            loop {
                match self.server.receive(&self.ours, &mut buffer, &mut self.pace) {
                    Received::Bytes(length) => all.extend_from_slice(&buffer[..length]),
                    Received::Nothing => return Ok(all),
                    Received::Paced => self.pace.spent_ns = 0,
                    other => return Err(other),
                }
            }
        }

        /// All that the client has to send, in pieces of these lengths.
        fn exchange(&mut self, lengths: &mut impl Iterator<Item = usize>) -> Vec<u8> {
            let mut received = Vec::new();
            loop {
                let mut out = Vec::new();
                while self.client.wants_write() {
                    self.client.write_tls(&mut out).expect("memory");
                }
                let was_empty = out.is_empty();
                while !out.is_empty() {
                    let length = lengths.next().unwrap_or(1).clamp(1, out.len());
                    self.theirs.write_all(&out[..length]).expect("room");
                    out.drain(..length);
                    received.extend(self.receive().expect("it is right"));
                }
                while self
                    .client
                    .read_tls(&mut self.theirs)
                    .is_ok_and(|length| length > 0)
                {
                    self.client.process_new_packets().expect("it is right");
                }
                if was_empty && !self.client.wants_write() {
                    return received;
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// However the bytes of the client are split, the server receives the same, and the client what is sent.
        #[test]
        fn packets_may_begin_anywhere(lengths in prop::collection::vec(1..700usize, 1..40), size in 0..100_000usize) {
            let mut sides = sides();
            let mut lengths = lengths.into_iter().cycle();
            let text: Vec<u8> = (0..3000u32).map(|n| n as u8).collect();
            sides.client.writer().write_all(&text).expect("memory");
            prop_assert_eq!(sides.exchange(&mut lengths), text);
            let answer: Vec<u8> = (0..size).map(|n| n as u8).collect();
            let (mut sent, mut got) = (0, Vec::new());
            while got.len() < size {
                if sent < size {
                    match sides.server.send(&sides.ours, &answer[sent..], b"", false) {
                        Ok(length) => {
                            prop_assert!(length <= ENCRYPTED);
                            sent += length;
                        }
                        Err(error) => prop_assert_eq!(error, Errno::AGAIN),
                    }
                } else {
                    let _ = sides.server.flush(&sides.ours);
                }
                while sides.client.read_tls(&mut sides.theirs).is_ok_and(|length| length > 0) {
                    sides.client.process_new_packets().expect("it is right");
                    let mut piece = [0; 20_000];
                    while let Ok(length @ 1..) = sides.client.reader().read(&mut piece) {
                        got.extend_from_slice(&piece[..length]);
                    }
                }
            }
            prop_assert_eq!(got, answer);
            prop_assert_eq!((sides.pace.done, sides.pace.failed), (1, 0));
        }

        /// A changed byte ends the connection, at once or with the client's patience, and nothing is made up.
        #[test]
        fn changed_bytes_are_never_a_request(at in 0..600usize, change in 1..=255u8) {
            let mut sides = sides();
            sides.client.writer().write_all(b"hello").expect("memory");
            let (mut place, mut received) = (0, Vec::new());
            for _ in 0..10 {
                let mut out = Vec::new();
                while sides.client.wants_write() {
                    sides.client.write_tls(&mut out).expect("memory");
                }
                if (place..place + out.len()).contains(&at) {
                    out[at - place] ^= change;
                }
                place += out.len();
                let _ = sides.theirs.write_all(&out);
                match sides.receive() {
                    Ok(bytes) => received.extend(bytes),
                    Err(_) => break,
                }
                let _ = sides.client.read_tls(&mut sides.theirs);
                if sides.client.process_new_packets().is_err() {
                    break;
                }
            }
            prop_assert!(received.is_empty() || (received == b"hello" && place <= at));
        }

        #[test]
        fn nonsense_ends_the_connection(bytes in prop::collection::vec(any::<u8>(), 1..2000)) {
            let mut sides = sides();
            sides.theirs.write_all(&bytes).expect("room");
            if let Ok(received) = sides.receive() {
                prop_assert!(received.is_empty());
            }
        }
    }

    #[test]
    fn a_plain_request_is_recognized() {
        let mut sides = sides();
        sides.theirs.write_all(b"GET / HTTP/1.1\r\n").expect("room");
        assert_eq!(sides.receive(), Err(Received::NotTls));
        assert!(sides.server.is_plain());
    }

    #[test]
    fn the_end_is_said_and_heard() {
        let mut sides = sides();
        sides.exchange(&mut std::iter::repeat(1000));
        sides.client.send_close_notify();
        let mut out = Vec::new();
        sides.client.write_tls(&mut out).expect("memory");
        sides.theirs.write_all(&out).expect("room");
        assert_eq!(sides.receive(), Err(Received::End));
        // Its side of the connection is still open.
        assert_eq!(sides.server.send(&sides.ours, b"bye", b"", false), Ok(3));
        sides.server.end(&sides.ours);
        while sides
            .client
            .read_tls(&mut sides.theirs)
            .is_ok_and(|length| length > 0)
        {}
        let state = sides.client.process_new_packets().expect("it is right");
        assert!(state.peer_has_closed());
        assert_eq!(state.plaintext_bytes_to_read(), 3);
    }

    #[test]
    fn handshakes_wait_for_the_next_turn() {
        let mut sides = sides();
        let mut out = Vec::new();
        sides.client.write_tls(&mut out).expect("memory");
        sides.theirs.write_all(&out).expect("room");
        sides.pace.spent_ns = HANDSHAKES_NS;
        let mut buffer = [0; 100];
        let received = sides
            .server
            .receive(&sides.ours, &mut buffer, &mut sides.pace);
        assert_eq!(received, Received::Paced);
        let counts = Counts::default();
        sides.pace.turn(&counts);
        let received = sides
            .server
            .receive(&sides.ours, &mut buffer, &mut sides.pace);
        assert_eq!(received, Received::Nothing);
        assert!(sides.server.is_handshaking());
    }
}
