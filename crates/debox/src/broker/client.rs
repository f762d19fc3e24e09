//! A program's side of the broker.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::sys::socket::{self, sockopt, MsgFlags};

use super::again;
use super::channel;
use super::protocol::{self, FrameText, Reply, Request, Wish};

/// A broker that takes longer for an answer counts as none, or as gone, in seconds. It loads the probes
/// first, and reads them out last, perhaps for others at the same time: a third of a second, and 20 on a
/// slow machine.
const PATIENCE: i64 = 60;

/// Why the broker is of no use.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// There is none.
    Absent(io::Error),
    /// It does not let this process in.
    Refused(String),
    /// What it says makes no sense.
    Broken(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Absent(error) if error.kind() == io::ErrorKind::WouldBlock => {
                write!(f, "the broker has not answered for {PATIENCE} s")
            }
            Trouble::Absent(error) => write!(f, "no broker answers: {error}"),
            Trouble::Refused(why) => write!(f, "the broker refuses: {why}"),
            Trouble::Broken(what) => write!(f, "the broker does not make sense: {what}"),
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
    greet(path).map(drop)
}

/// Asks the broker to monitor this process.
pub(crate) fn enable(path: &Path, wish: Wish) -> Result<Enabled, Trouble> {
    let (connection, nonce) = greet(path)?;
    let request = Request::Enable { nonce, wish };
    let (reply, descriptors) = ask_all(&connection, &request)?;
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
    let connection = connect(path)?;
    match ask(&connection, &Request::Frames { stack })? {
        (Reply::Frames(frames), _) => Ok(frames),
        (reply, _) => Err(unexpected(reply)),
    }
}

/// Connects; returns the number to come back with.
pub(super) fn greet(path: &Path) -> Result<(OwnedFd, u64), Trouble> {
    let connection = connect(path)?;
    let version = protocol::VERSION;
    match ask(&connection, &Request::Hello { version })? {
        (Reply::Welcome { nonce, .. }, _) => Ok((connection, nonce)),
        (reply, _) => Err(unexpected(reply)),
    }
}

fn connect(path: &Path) -> Result<OwnedFd, Trouble> {
    let connection = channel::connect(path, PATIENCE).map_err(Trouble::Absent)?;
    // Whoever it is gets to say what this process maps: root, or its own user.
    let broker = socket::getsockopt(&connection, sockopt::PeerCredentials)
        .map_err(|error| Trouble::Absent(error.into()))?;
    if !again::is_trusted(broker.uid()) {
        let text = format!("{} is user {}'s", path.display(), broker.uid());
        return Err(Trouble::Broken(text));
    }
    Ok(connection)
}

pub(super) fn ask(
    connection: &OwnedFd,
    request: &Request,
) -> Result<(Reply, Option<OwnedFd>), Trouble> {
    one_at_most(ask_all(connection, request)?)
}

fn ask_all(connection: &OwnedFd, request: &Request) -> Result<(Reply, Vec<OwnedFd>), Trouble> {
    let none = MsgFlags::empty();
    // One that refuses at once has closed its side before it could hear this.
    let sent = channel::send(connection.as_fd(), &protocol::encode(request), &[], none);
    match (hear_all(connection), sent) {
        (Err(Trouble::Absent(_)), Err(error)) => Err(Trouble::Absent(error)),
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
            .map_err(Trouble::Absent)?;
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
