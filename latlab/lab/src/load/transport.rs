//! What a connection's bytes go through: its socket, or TLS on it.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::sys;

/// Bytes that are taken off the socket at once; the session takes 4 KiB.
const TOGETHER: usize = 32 << 10;

pub enum Transport {
    Plain(OwnedFd),
    Tls(Box<Secured>),
}

/// A socket with TLS on it.
pub struct Secured {
    socket: OwnedFd,
    session: ClientConnection,
    /// Room for what is taken off the socket, how much of it is filled, and how much of that the session has seen.
    came: Vec<u8>,
    filled: usize,
    seen: usize,
    /// What is wrong with what came.
    wrong: Option<String>,
    /// The socket is at its end, and the server has not said before that it would be.
    truncated: bool,
}

/// What connections to a server have in common.
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

    /// Goes on with the handshake; returns whether it is over. Without TLS there is none.
    pub fn handshake(&mut self) -> io::Result<bool> {
        match self {
            Transport::Plain(_) => Ok(true),
            Transport::Tls(secured) => secured.handshake(),
        }
    }

    /// Sends a part of these bytes, which is not empty.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(socket) => sys::send(socket, bytes),
            Transport::Tls(secured) => secured.send(bytes),
        }
    }

    /// Sends what was taken to be sent, as far as the socket takes it.
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Transport::Plain(_) => Ok(()),
            Transport::Tls(secured) => secured.flush(),
        }
    }

    /// Reads; 0 is the end. If less comes than there is room for, more may be there only under TLS.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(socket) => sys::receive(socket, buffer),
            Transport::Tls(secured) => secured.receive(buffer),
        }
    }

    /// The socket, if what comes from it is the reply itself.
    pub fn plain(&self) -> Option<&OwnedFd> {
        match self {
            Transport::Plain(socket) => Some(socket),
            Transport::Tls(_) => None,
        }
    }

    /// Whether the connection was cut off, as it seems, so that something may be missing at the end.
    pub fn is_truncated(&self) -> bool {
        matches!(self, Transport::Tls(secured) if secured.truncated)
    }

    /// What was wrong with TLS.
    pub fn wrong(&self) -> Option<&str> {
        match self {
            Transport::Plain(_) => None,
            Transport::Tls(secured) => secured.wrong.as_deref(),
        }
    }

    /// Which TLS was agreed upon: `TLS 1.3, AES_256_GCM_SHA384`.
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

/// Where a session writes its records.
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
            // It keeps no more than some records that the socket has not taken.
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

    /// Has the session look at what came, of which a part may be here already; 0 is the end.
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
            // The server is told, if that is still possible.
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

/// What to do, if that is known, is behind what is wrong.
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
