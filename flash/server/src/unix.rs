// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listening sockets with a name in a file system. A name that a dead process has left is replaced; one at which
//! another process listens never is.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Error, Result};
use nix::unistd::{Group, User};
use rustix::fs::{
    chmod, chownat, fchmod, flock, lstat, open, unlink, AtFlags, FileType, FlockOperation, Gid,
    Mode, OFlags, Uid, CWD,
};
use rustix::io::Errno;
use rustix::net::{
    bind, connect, listen, socket_with, AddressFamily, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::address::BACKLOG;

/// Until other servers have made or removed their sockets in the same directory.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// Who may connect. Connecting takes the right to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    pub mode: u32,
    pub owner: Owner,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            mode: 0o660,
            owner: Owner::default(),
        }
    }
}

/// `None`: as the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Owner {
    user: Option<u32>,
    group: Option<u32>,
}

impl FromStr for Owner {
    type Err = Error;

    /// `NAME`, `NAME:GROUP` or `:GROUP`.
    fn from_str(text: &str) -> Result<Owner> {
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        if user.is_empty() && group.is_empty() {
            bail!("`{text}` is no owner: write NAME, NAME:GROUP or :GROUP");
        }
        let user = match user {
            "" => None,
            name => Some(
                User::from_name(name)
                    .with_context(|| format!("cannot look for the user {name}"))?
                    .with_context(|| format!("there is no user {name}"))?
                    .uid
                    .as_raw(),
            ),
        };
        let group = match group {
            "" => None,
            name => Some(
                Group::from_name(name)
                    .with_context(|| format!("cannot look for the group {name}"))?
                    .with_context(|| format!("there is no group {name}"))?
                    .gid
                    .as_raw(),
            ),
        };
        Ok(Owner { user, group })
    }
}

/// Digits as of chmod(1).
///
/// # Errors
///
/// It is no mode; the error says how one is written.
pub fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok();
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    match mode.filter(|mode| is_digits && *mode <= 0o777) {
        Some(mode) => Ok(mode),
        None => Err(format!(
            "`{text}` is no mode of a socket: write three octal digits, as 660"
        )),
    }
}

/// A name that this process has made. It is removed in the end, if it is still the one.
pub struct Name {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Drop for Name {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            let path = self.path.display();
            kit_console::say!("cannot remove the socket {path}: {error:#}");
        }
    }
}

impl Name {
    fn of(path: &Path) -> Result<Name> {
        let status = lstat(path)?;
        Ok(Name {
            path: path.to_path_buf(),
            device: status.st_dev,
            inode: status.st_ino,
        })
    }

    fn remove(&self) -> Result<()> {
        let _lock = lock(&self.path)?;
        match lstat(&self.path) {
            Ok(status) if (status.st_dev, status.st_ino) == (self.device, self.inode) => {
                Ok(unlink(&self.path)?)
            }
            _ => Ok(()),
        }
    }
}

/// # Errors
///
/// There is something else with this name, or the name cannot be made.
pub fn listen_at(path: &Path, settings: &Settings) -> Result<(OwnedFd, Name)> {
    let address = SocketAddrUnix::new(path)
        .context("the path is too long: the kernel takes at most 107 bytes")?;
    let _lock = lock(path)?;
    remove_stale(path, &address)?;
    let socket = new_socket()?;
    // The name is made with this mode, less the umask: nobody gets in before it is as it should be.
    fchmod(&socket, Mode::from_raw_mode(settings.mode))?;
    bind(&socket, &address)?;
    let name = Name::of(path)?;
    let Owner { user, group } = settings.owner;
    if (user, group) != (None, None) {
        let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
        chownat(CWD, path, user, group, AtFlags::SYMLINK_NOFOLLOW)
            .context("cannot give it its owner")?;
    }
    chmod(path, Mode::from_raw_mode(settings.mode)).context("cannot give it its mode")?;
    listen(&socket, BACKLOG)?;
    Ok((socket, name))
}

fn new_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Removes a socket at which nobody listens any more.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> Result<()> {
    let status = match lstat(path) {
        Ok(status) => status,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if FileType::from_raw_mode(status.st_mode) != FileType::Socket {
        bail!("a file that is no socket has this name: remove it, or choose another name");
    }
    match connect(&new_socket()?, address) {
        // Nobody listens. Whoever had it has died without removing it.
        Err(Errno::CONNREFUSED) => {}
        Err(Errno::NOENT) => return Ok(()),
        Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => {
            bail!("another process listens there: end it, or choose another name")
        }
        Err(error) => {
            return Err(error).context("cannot see whether another process listens there");
        }
    }
    // Only what has been looked at.
    let now = lstat(path)?;
    if (now.st_dev, now.st_ino) != (status.st_dev, status.st_ino) {
        bail!("another process has just made a socket with this name: choose another one");
    }
    unlink(path).context("cannot remove the socket that a dead process has left there")
}

/// Servers that make or remove sockets in a directory do it one after another: what one has seen, it may act upon. The
/// lock ends with the descriptor.
fn lock(path: &Path) -> Result<OwnedFd> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let named = || format!("cannot use the directory {}", directory.display());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let file = open(directory, flags, Mode::empty()).with_context(named)?;
    let began = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::AGAIN | Errno::INTR) if began.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error).with_context(named),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{UnixListener, UnixStream};

    /// Makes a socket's name and leaves it without a listener. A child that another test starts just then inherits the
    /// listening socket, and holds it until it executes its program or ends.
    fn leave_a_name(path: &Path) {
        drop(UnixListener::bind(path).expect("room"));
        while UnixStream::connect(path).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_dead_servers_name_is_replaced_and_a_living_ones_is_not() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("socket");
        leave_a_name(&path);
        let settings = Settings::default();
        let (socket, name) = listen_at(&path, &settings).expect("nobody listens");
        let mode = std::fs::metadata(&path).expect("it is there").permissions();
        assert_eq!(mode.mode() & 0o777, 0o660);
        let error = |path: &Path| match listen_at(path, &settings) {
            Ok(_) => panic!("it is taken"),
            Err(error) => format!("{error:#}"),
        };
        assert!(error(&path).contains("another process listens"));
        UnixStream::connect(&path).expect("it is still there");
        drop((socket, name));
        assert!(!path.exists());
        std::fs::write(&path, "text").expect("room");
        assert!(error(&path).contains("no socket"));
        assert!(error(&place.path().join("a".repeat(108))).contains("107 bytes"));
    }

    #[test]
    fn only_the_own_name_is_removed() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("socket");
        let (_socket, name) = listen_at(&path, &Settings::default()).expect("room");
        std::fs::remove_file(&path).expect("it is there");
        let _other = UnixListener::bind(&path).expect("room");
        drop(name);
        assert!(path.exists());
    }

    #[test]
    fn modes_and_owners_are_read() {
        assert_eq!(parse_mode("660"), Ok(0o660));
        assert_eq!(parse_mode("0600"), Ok(0o600));
        for text in ["", "+660", "8", "1777", "rw"] {
            assert!(parse_mode(text).is_err(), "{text}");
        }
        let owner = |text: &str| text.parse::<Owner>();
        let root = owner("root:root").expect("both exist");
        assert_eq!((root.user, root.group), (Some(0), Some(0)));
        assert_eq!(owner(":root").expect("it exists").user, None);
        for text in ["", ":", "no-such-user", "root:no-such-group"] {
            assert!(owner(text).is_err(), "{text}");
        }
    }
}
