//! What carries a connection's bytes: a plain socket, or TLS.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::sys;

/// Bytes read from the socket at once; the session reads 4 KiB.
const TOGETHER: usize = 32 << 10;

pub enum Transport {
    Plain(OwnedFd),
    Tls(Box<Secured>),
}

/// A socket with TLS on it.
pub struct Secured {
    socket: OwnedFd,
    session: ClientConnection,
    /// Buffer for data from the socket, how much of it is filled, and how much of that the session has processed.
    came: Vec<u8>,
    filled: usize,
    seen: usize,
    /// A TLS error in the received data.
    wrong: Option<String>,
    /// The socket is at its end without a close_notify from the server.
    truncated: bool,
}

/// What all connections to a server share.
#[derive(Clone)]
pub struct Security {
    pub client: Arc<ClientConfig>,
    pub name: ServerName<'static>,
}

impl Transport {
    pub fn new(socket: OwnedFd, security: Option<&Security>) -> io::Result<Transport> {
        let Some(Security { client, name }) = security else {
            return Ok(Transport::Plain(socket));
        };
        let session = ClientConnection::new(Arc::clone(client), name.clone());
        Ok(Transport::Tls(Box::new(Secured {
            socket,
            session: session.map_err(io::Error::other)?,
            came: Vec::new(),
            filled: 0,
            seen: 0,
            wrong: None,
            truncated: false,
        })))
    }

    pub fn socket(&self) -> &OwnedFd {
        match self {
            Transport::Plain(socket) => socket,
            Transport::Tls(secured) => &secured.socket,
        }
    }

    /// Continues the handshake. Returns whether it is complete; without TLS it always is.
    pub fn handshake(&mut self) -> io::Result<bool> {
        match self {
            Transport::Plain(_) => Ok(true),
            Transport::Tls(secured) => secured.handshake(),
        }
    }

    /// Sends a part of `bytes`, which must not be empty.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(socket) => sys::send(socket, bytes),
            Transport::Tls(secured) => secured.send(bytes),
        }
    }

    /// Sends buffered data as far as the socket accepts it.
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Transport::Plain(_) => Ok(()),
            Transport::Tls(secured) => secured.flush(),
        }
    }

    /// Reads; 0 is the end. Only under TLS may more data be available although the buffer was not filled.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(socket) => sys::receive(socket, buffer),
            Transport::Tls(secured) => secured.receive(buffer),
        }
    }

    /// The socket, if the reply is read from it without decoding.
    pub fn plain(&self) -> Option<&OwnedFd> {
        match self {
            Transport::Plain(socket) => Some(socket),
            Transport::Tls(_) => None,
        }
    }

    /// Whether the connection seems to have been cut off, so the end may be missing.
    pub fn is_truncated(&self) -> bool {
        matches!(self, Transport::Tls(secured) if secured.truncated)
    }

    /// The TLS error.
    pub fn wrong(&self) -> Option<&str> {
        match self {
            Transport::Plain(_) => None,
            Transport::Tls(secured) => secured.wrong.as_deref(),
        }
    }

    /// The negotiated version and cipher suite: `TLS 1.3, AES_256_GCM_SHA384`.
    pub fn protocol(&self) -> Option<String> {
        let Transport::Tls(secured) = self else {
            return None;
        };
        let version = secured.session.protocol_version()?.as_str()?;
        let suite = secured
            .session
            .negotiated_cipher_suite()?
            .suite()
            .as_str()?;
        let (_, number) = version.split_once('v')?;
        Some(format!("TLS {}, {suite}", number.replace('_', ".")))
    }
}

/// The socket that a session writes its records to.
struct Records<'a>(&'a OwnedFd);

impl Write for Records<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        sys::send(self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Secured {
    fn handshake(&mut self) -> io::Result<bool> {
        loop {
            self.flush()?;
            if !self.session.is_handshaking() {
                return Ok(true);
            }
            match self.take_records() {
                Ok(0) => {
                    return Err(self.is_wrong("the server ended the connection in the handshake"))
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.session.writer().write(bytes)?;
        self.flush()?;
        match taken {
            // The session buffers a limited number of records that the socket has not accepted.
            0 => Err(io::ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Records(&self.socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.truncated = true;
                    return Ok(0);
                }
                read => return read,
            }
            self.take_records()?;
        }
    }

    /// Passes received data to the session, some of which may already be in the buffer; 0 is the end.
    fn take_records(&mut self) -> io::Result<usize> {
        if self.seen == self.filled {
            self.came.resize(TOGETHER, 0);
            (self.seen, self.filled) = (0, 0);
            self.filled = sys::receive(&self.socket, &mut self.came)?;
        }
        let mut unseen = &self.came[self.seen..self.filled];
        let taken = self.session.read_tls(&mut unseen)?;
        self.seen += taken;
        if let Err(error) = self.session.process_new_packets() {
            // Sends the alert to the server, if possible.
            let _ = self.flush();
            return Err(self.is_wrong(&in_words(&error)));
        }
        self.flush()?;
        Ok(taken)
    }

    fn is_wrong(&mut self, why: &str) -> io::Error {
        self.wrong.get_or_insert_with(|| why.to_string());
        io::ErrorKind::InvalidData.into()
    }
}

/// The error, and what to do if that is known.
fn in_words(error: &rustls::Error) -> String {
    let advice = match error {
        rustls::Error::InvalidCertificate(_) => {
            " (--cacert names whom to trust, --insecure takes any certificate)"
        }
        rustls::Error::InvalidMessage(_) => " (is it an https port?)",
        _ => "",
    };
    format!("{error}{advice}")
}
