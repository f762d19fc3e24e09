//! A program's side of the broker.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::{self, sockopt, MsgFlags};

use super::channel;
use super::protocol::{self, FrameText, Reply, Request, Wish};
use super::trust;
use crate::kernel;

/// A broker that takes longer for its first answer counts as silent. That answer needs no work, but the
/// broker may be loading probes for another client. `debox.h` documents both times.
pub(super) const HELLO: Duration = Duration::from_secs(10);
/// The same for the answer to the request itself. The broker may have to load probes first, perhaps for
/// other clients, too: that takes a third of a second, and 20 seconds on a slow machine.
pub(super) const WORK: Duration = Duration::from_secs(60);

/// Why the broker cannot be used.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// There is none.
    Absent(io::Error),
    /// There is one, but it does not answer.
    Silent,
    /// This process has no free descriptor for the connection.
    Descriptors,
    /// It may belong to any user, and is not used.
    Untrusted(String),
    /// It refused the request.
    Refused(String),
    /// Its answer is invalid.
    Broken(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Silent => {
                f.write_str("the broker does not answer: it is stopped, or is overloaded")
            }
            Trouble::Descriptors => write!(
                f,
                "there is no file descriptor left to ask the broker with: {}",
                kernel::descriptor_limit()
            ),
            Trouble::Absent(error) => write!(f, "no broker answers: {error}"),
            Trouble::Untrusted(why) => write!(f, "the broker is not believed: {why}"),
            Trouble::Refused(why) => write!(f, "the broker refuses: {why}"),
            Trouble::Broken(what) => write!(f, "the broker's answer is invalid: {what}"),
        }
    }
}

impl Trouble {
    /// The trouble that an error stands for.
    fn because(error: io::Error) -> Trouble {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Trouble::Silent,
            _ if kernel::is_out_of_descriptors(&error) => Trouble::Descriptors,
            _ => Trouble::Absent(error),
        }
    }
}

/// What the broker gave this process.
pub(crate) struct Enabled {
    /// Closed by the broker when it goes.
    pub connection: OwnedFd,
    pub slots: OwnedFd,
    pub slot_count: usize,
    /// The page that shows whether the broker is there (`presence.rs`).
    pub presence: OwnedFd,
}

/// Connects to the broker only to check that both use the same protocol version.
pub(super) fn ask_version(path: &Path) -> Result<(), Trouble> {
    greet(path, HELLO).map(drop)
}

/// Asks the broker to monitor this process.
pub(crate) fn enable(path: &Path, wish: Wish) -> Result<Enabled, Trouble> {
    let (connection, nonce) = greet(path, HELLO)?;
    be_patient(&connection, WORK)?;
    let request = Request::Enable { nonce, wish };
    let (reply, descriptors) = ask_all(&connection, &request, &[])?;
    match (reply, <[OwnedFd; 2]>::try_from(descriptors)) {
        (Reply::Enabled { slots: count }, Ok([slots, presence])) => Ok(Enabled {
            connection,
            slots,
            slot_count: count as usize,
            presence,
        }),
        (reply, _) => Err(unexpected(reply)),
    }
}

/// Asks for the functions of a kernel stack.
pub(crate) fn frames(path: &Path, stack: u64) -> Result<Vec<FrameText>, Trouble> {
    let connection = connect(path, HELLO)?;
    match ask(&connection, &Request::Frames { stack })? {
        (Reply::Frames(frames), _) => Ok(frames),
        (reply, _) => Err(unexpected(reply)),
    }
}

/// Connects, and returns the nonce for the request. Each step, now and later, waits for at most
/// `patience`.
pub(super) fn greet(path: &Path, patience: Duration) -> Result<(OwnedFd, u64), Trouble> {
    let connection = connect(path, patience)?;
    let version = protocol::VERSION;
    match ask(&connection, &Request::Hello { version })? {
        (Reply::Welcome { nonce, .. }, _) => Ok((connection, nonce)),
        (reply, _) => Err(unexpected(reply)),
    }
}

fn connect(path: &Path, patience: Duration) -> Result<OwnedFd, Trouble> {
    let connection = channel::connect(path, patience).map_err(Trouble::because)?;
    // The broker determines what this process maps, so it must be root or this process's own user.
    let broker = socket::getsockopt(&connection, sockopt::PeerCredentials)
        .map_err(|error| Trouble::Absent(error.into()))?;
    let user = broker.uid();
    if trust::is_trusted(user, path) {
        return Ok(connection);
    }
    let path = path.display();
    Err(Trouble::Untrusted(if trust::is_nameless(user) {
        format!(
            "{path} is of a user who has no number in this user namespace; only a broker at {} is \
             taken for root's there",
            super::address::SOCKET
        )
    } else {
        format!("{path} is user {user}'s")
    }))
}

/// Makes each step on a connection wait for at most this time from now on.
pub(super) fn be_patient(connection: &OwnedFd, patience: Duration) -> Result<(), Trouble> {
    channel::be_patient(connection, patience).map_err(Trouble::Absent)
}

pub(super) fn ask(
    connection: &OwnedFd,
    request: &Request,
) -> Result<(Reply, Option<OwnedFd>), Trouble> {
    one_at_most(ask_all(connection, request, &[])?)
}

/// Sends a request together with the descriptor that it is about.
pub(super) fn ask_about(
    connection: &OwnedFd,
    request: &Request,
    descriptor: BorrowedFd,
) -> Result<Reply, Trouble> {
    let answer = ask_all(connection, request, &[descriptor.as_raw_fd()])?;
    Ok(one_at_most(answer)?.0)
}

fn ask_all(
    connection: &OwnedFd,
    request: &Request,
    descriptors: &[RawFd],
) -> Result<(Reply, Vec<OwnedFd>), Trouble> {
    let packet = protocol::encode(request);
    // A broker that refuses at once has closed its side before it received this.
    let sent = channel::send(connection.as_fd(), &packet, descriptors, MsgFlags::empty());
    match (hear_all(connection), sent) {
        (Err(Trouble::Absent(_)), Err(error)) => Err(Trouble::because(error)),
        (heard, _) => heard,
    }
}

/// The broker's next reply.
pub(super) fn hear(connection: &OwnedFd) -> Result<(Reply, Option<OwnedFd>), Trouble> {
    one_at_most(hear_all(connection)?)
}

fn one_at_most(
    (reply, mut descriptors): (Reply, Vec<OwnedFd>),
) -> Result<(Reply, Option<OwnedFd>), Trouble> {
    if descriptors.len() > 1 {
        return Err(unexpected(reply));
    }
    Ok((reply, descriptors.pop()))
}

fn hear_all(connection: &OwnedFd) -> Result<(Reply, Vec<OwnedFd>), Trouble> {
    let none = MsgFlags::empty();
    let (bytes, descriptors, _) =
        channel::receive_all(connection.as_fd(), protocol::REPLY_MAX, none)
            .map_err(Trouble::because)?;
    let reply = protocol::decode::<Reply>(&bytes)
        .ok_or_else(|| Trouble::Broken("its answer is not understood".to_string()))?;
    Ok((reply, descriptors))
}

pub(super) fn unexpected(reply: Reply) -> Trouble {
    match reply {
        Reply::Refused(why) => Trouble::Refused(why),
        other => Trouble::Broken(format!("{other:?} out of turn")),
    }
}

/// Whether the error is that there is no broker.
pub(crate) fn is_absent(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Trouble::Absent(_)))
}

/// Whether the error is that there is a broker, but it does not answer.
pub(crate) fn is_silent(error: &anyhow::Error) -> bool {
    let is_late = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    error.chain().any(|cause| {
        matches!(cause.downcast_ref(), Some(Trouble::Silent))
            || cause.downcast_ref().is_some_and(is_late)
    })
}
