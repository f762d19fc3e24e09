//! The broker's socket, to which any user may connect, and replies that do not wait.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{bail, Context, Result};
use nix::sys::resource::{getrlimit, setrlimit, Resource};
use nix::sys::socket::{self, MsgFlags, UnixAddr};

use super::channel;
use super::client;
use super::protocol::{self, Reply};

/// Sends a reply without waiting; a client that does not read it loses it.
pub fn reply_to(socket: &OwnedFd, reply: &Reply) -> io::Result<()> {
    let packet = protocol::encode(reply);
    channel::send(socket.as_fd(), &packet, &[], MsgFlags::MSG_DONTWAIT)
}

pub fn refuse(socket: &OwnedFd, why: &str) {
    let _ = reply_to(socket, &Reply::Refused(why.to_string()));
}

/// Listens on a socket to which any user may connect, replacing that of a broker that is gone.
pub fn listen(path: &Path) -> Result<OwnedFd> {
    let shown = path.display();
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
    }
    if client::ask_version(path).is_ok() {
        bail!("a broker listens at {shown} already");
    }
    let _ = fs::remove_file(path);
    let listener = channel::socket()?;
    let address = UnixAddr::new(path).with_context(|| format!("{shown} is too long"))?;
    socket::bind(listener.as_raw_fd(), &address)
        .with_context(|| format!("cannot listen at {shown}"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    let flags = nix::fcntl::OFlag::O_NONBLOCK;
    nix::fcntl::fcntl(&listener, nix::fcntl::FcntlArg::F_SETFL(flags))?;
    socket::listen(&listener, socket::Backlog::new(1024)?)?;
    Ok(listener)
}

/// Each connection takes two descriptors, and each client two more.
pub fn raise_descriptor_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(65536), hard);
    }
}
