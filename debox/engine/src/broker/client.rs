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

/// A broker that takes longer for an answer counts as silent. For its first one nothing has to be done, but
/// it may be loading probes for somebody else. `debox.h` names both times.
pub(super) const HELLO: Duration = Duration::from_secs(10);
/// For what it wants it loads the probes first, perhaps for others at the same time: a third of a second,
/// and 20 on a slow machine.
pub(super) const WORK: Duration = Duration::from_secs(60);

/// Why the broker is of no use.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// There is none.
    Absent(io::Error),
    /// There is one, which says nothing.
    Silent,
    /// This process has no descriptor left to ask it with.
    Descriptors,
    /// It may be anybody's, and is asked nothing.
    Untrusted(String),
    /// It does not let this process in.
    Refused(String),
    /// What it says makes no sense.
    Broken(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Silent => f.write_str(
                "the broker does not answer: it is stopped, or has more to do than this machine can",
            ),
            Trouble::Descriptors => write!(
                f,
                "there is no file descriptor left to ask the broker with: {}",
                kernel::descriptor_limit()
            ),
            Trouble::Absent(error) => write!(f, "no broker answers: {error}"),
            Trouble::Untrusted(why) => write!(f, "the broker is not believed: {why}"),
            Trouble::Refused(why) => write!(f, "the broker refuses: {why}"),
            Trouble::Broken(what) => write!(f, "the broker does not make sense: {what}"),
        }
    }
}

impl Trouble {
    /// Why nothing came of a step, by its error.
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
    /// Its end tells that the broker has gone.
    pub connection: OwnedFd,
    pub slots: OwnedFd,
    pub slot_count: usize,
    /// The page that tells whether the broker is there (`presence.rs`).
    pub presence: OwnedFd,
}

/// Connects to the broker and only learns whether both speak the same version.
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

/// Asks which functions a kernel stack goes through.
pub(crate) fn frames(path: &Path, stack: u64) -> Result<Vec<FrameText>, Trouble> {
    let connection = connect(path, HELLO)?;
    match ask(&connection, &Request::Frames { stack })? {
        (Reply::Frames(frames), _) => Ok(frames),
        (reply, _) => Err(unexpected(reply)),
    }
}

/// Connects; returns the number to come back with. Each step of it, and of what follows, is waited for so
/// long.
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
    // Whoever it is gets to say what this process maps: root, or its own user.
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
            super::SOCKET
        )
    } else {
        format!("{path} is user {user}'s")
    }))
}

/// Has each step on a connection waited for so long from now on.
pub(super) fn be_patient(connection: &OwnedFd, patience: Duration) -> Result<(), Trouble> {
    channel::be_patient(connection, patience).map_err(Trouble::Absent)
}

pub(super) fn ask(
    connection: &OwnedFd,
    request: &Request,
) -> Result<(Reply, Option<OwnedFd>), Trouble> {
    one_at_most(ask_all(connection, request, &[])?)
}

/// Asks for something about what a descriptor stands for.
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
    // One that refuses at once has closed its side before it could hear this.
    let sent = channel::send(connection.as_fd(), &packet, descriptors, MsgFlags::empty());
    match (hear_all(connection), sent) {
        (Err(Trouble::Absent(_)), Err(error)) => Err(Trouble::because(error)),
        (heard, _) => heard,
    }
}

/// What the broker says next.
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
