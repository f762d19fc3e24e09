// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which processes a client may attach to: those that the kernel's rule for debuggers allows it to look into
//! (`__ptrace_may_access` and `cap_ptrace_access_check`, Linux 6.18), as far as the broker can decide it. The probes
//! decide the rest: whether the other process is dumpable.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use anyhow::{ensure, Context, Result};
use procfs::process::{Process, Status};

use super::peer::Peer;

const CAP_SYS_PTRACE: u64 = 1 << 19;
/// A user namespace is at most so many levels below the first (`create_user_ns`).
const LEVELS: usize = 34;

/// Fails, with a reason, if the client may not look into this process: another user or group, or capabilities that the
/// client lacks.
pub(super) fn require(client: &Peer, pid: u32) -> Result<()> {
    let other = status(pid).with_context(|| format!("there is no process {pid}"))?;
    let own = status(client.pid).context("the process that asks has ended")?;
    let of_user = [other.ruid, other.euid, other.suid, other.fuid];
    let of_group = [other.rgid, other.egid, other.sgid, other.fgid];
    let is_same =
        of_user.iter().all(|id| *id == client.uid) && of_group.iter().all(|id| *id == client.gid);
    ensure!(
        is_same,
        "process {} ({}) runs as another user or group than the one that asks",
        number_in(&other, &own),
        other.name
    );
    ensure!(
        has_capabilities_of(client, pid, &other)?,
        "process {} ({}) has capabilities that the one that asks lacks",
        number_in(&other, &own),
        other.name
    );
    Ok(())
}

/// Capabilities count only in their process's user namespace and in the namespaces below it. The user who made a namespace
/// has all capabilities in it.
fn has_capabilities_of(client: &Peer, pid: u32, other: &Status) -> Result<bool> {
    let rights = Rights::of(client);
    let own = Namespace::of(client.pid).context("the process that asks has ended")?;
    let mut theirs = Namespace::of(pid).with_context(|| format!("there is no process {pid}"))?;
    if theirs.id == own.id && other.capprm & !rights.permitted == 0 {
        return Ok(true);
    }
    for _ in 0..LEVELS {
        if theirs.id == own.id {
            return Ok(rights.effective & CAP_SYS_PTRACE != 0);
        }
        let Some(parent) = theirs.parent() else {
            return Ok(false);
        };
        if parent.id == own.id && theirs.owner() == Some(client.uid) {
            return Ok(true);
        }
        theirs = parent;
    }
    Ok(false)
}

/// The client's capabilities.
#[derive(Debug, Default)]
struct Rights {
    permitted: u64,
    effective: u64,
}

impl Rights {
    /// Since it connected, the process may have executed a program that has more capabilities than its user, such as
    /// `su`, while a child of it talks to the broker. Such a program runs with another user id, or it is undumpable and
    /// `/proc` shows it as root's. Then no capabilities count.
    fn of(client: &Peer) -> Rights {
        let is_users_own = || {
            let shown = fs::metadata(format!("/proc/{}", client.pid));
            shown.is_ok_and(|shown| shown.uid() == client.uid)
        };
        if !is_users_own() {
            return Rights::default();
        }
        let Ok(own) = status(client.pid) else {
            return Rights::default();
        };
        let ids = [own.ruid, own.euid, own.suid, own.fuid];
        // Once more, because it may have executed another program in between.
        match ids.iter().all(|id| *id == client.uid) && is_users_own() {
            true => Rights {
                permitted: own.capprm,
                effective: own.capeff,
            },
            false => Rights::default(),
        }
    }
}

fn status(pid: u32) -> procfs::ProcResult<Status> {
    Process::new(pid as i32)?.status()
}

/// The id of a process as seen by the asking one, which may be in a PID namespace below this one.
fn number_in(other: &Status, own: &Status) -> i32 {
    let depth = own.nspid.as_ref().map_or(1, |numbers| numbers.len());
    let numbers = other.nspid.as_deref().unwrap_or_default();
    numbers.get(depth - 1).copied().unwrap_or(other.pid)
}

/// A user namespace.
struct Namespace {
    file: OwnedFd,
    id: (u64, u64),
}

impl Namespace {
    fn of(pid: u32) -> io::Result<Namespace> {
        Namespace::open(File::open(format!("/proc/{pid}/ns/user"))?)
    }

    fn open(file: File) -> io::Result<Namespace> {
        let found = file.metadata()?;
        Ok(Namespace {
            file: file.into(),
            id: (found.dev(), found.ino()),
        })
    }

    /// `None`: it is the first one, or not below that of the broker.
    fn parent(&self) -> Option<Namespace> {
        // SAFETY: this request takes no argument, and returns a new descriptor.
        let fd = unsafe { libc::ioctl(self.file.as_raw_fd(), libc::NS_GET_PARENT) };
        if fd < 0 {
            return None;
        }
        // SAFETY: it is new and has no other owner.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        Namespace::open(file.into()).ok()
    }

    /// The effective user of the process that made it.
    fn owner(&self) -> Option<u32> {
        let mut uid: libc::uid_t = 0;
        // SAFETY: the kernel writes the id.
        let done = unsafe { libc::ioctl(self.file.as_raw_fd(), libc::NS_GET_OWNER_UID, &mut uid) };
        (done == 0).then_some(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    const USER: u32 = 54_321;

    /// A process that sleeps, ended when this is dropped.
    struct Sleeper(Child);

    impl Sleeper {
        /// Under `setpriv` with these options, and the command before `sleep`.
        fn start(options: &[&str], before: &[&str]) -> Sleeper {
            let user = USER.to_string();
            let child = Command::new("setpriv")
                .args(["--reuid", &user, "--regid", &user, "--clear-groups"])
                .args(options)
                .args(before)
                .args(["sleep", "60"])
                .stdin(Stdio::null())
                .spawn()
                .expect("util-linux is there");
            let sleeper = Sleeper(child);
            let until = Instant::now() + Duration::from_secs(20);
            let sleeps = || {
                let name = fs::read_to_string(format!("/proc/{}/comm", sleeper.pid()));
                name.is_ok_and(|name| name == "sleep\n")
            };
            while !sleeps() {
                assert!(Instant::now() < until, "it never started");
                std::thread::sleep(Duration::from_millis(10));
            }
            sleeper
        }

        fn pid(&self) -> u32 {
            self.0.id()
        }

        fn client(&self) -> Peer {
            Peer::with(self.pid(), USER, USER)
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn capabilities_of_another_user_namespace_do_not_count() {
        // SAFETY: geteuid only returns a number.
        if unsafe { libc::geteuid() } != 0 {
            return debox_skipped::skipped("processes of another user: it takes root");
        }
        let capable = ["--inh-caps", "+net_raw", "--ambient-caps", "+net_raw"];
        let plain = Sleeper::start(&[], &[]);
        let other = Sleeper::start(&[], &[]);
        let with_capability = Sleeper::start(&capable, &[]);
        let in_namespace = Sleeper::start(&[], &["unshare", "-Ur"]);
        assert_ne!(status(with_capability.pid()).unwrap().capprm, 0);
        assert_ne!(status(in_namespace.pid()).unwrap().capprm, 0);

        require(&plain.client(), other.pid()).expect("the same rights");
        require(&with_capability.client(), plain.pid()).expect("more rights");
        let refused = |client: &Sleeper, of: &Sleeper| {
            let error = require(&client.client(), of.pid()).expect_err("too few rights");
            assert!(error.to_string().contains("capabilities"), "{error:#}");
        };
        refused(&plain, &with_capability);
        // All capabilities, but not here.
        refused(&in_namespace, &with_capability);
        refused(&in_namespace, &plain);
        // Made by this user.
        require(&plain.client(), in_namespace.pid()).expect("its own namespace");
        let others = Peer::with(plain.pid(), USER + 1, USER);
        let error = require(&others, plain.pid()).expect_err("another user");
        assert!(error.to_string().contains("another user"), "{error:#}");
    }

    /// The connection is a user's, and the process that made it is root's by now: `su` is, while it asks for a password.
    #[test]
    fn capabilities_of_a_program_with_other_ids_do_not_count() {
        // SAFETY: geteuid only returns a number.
        if unsafe { libc::geteuid() } != 0 {
            return debox_skipped::skipped("processes of another user: it takes root");
        }
        let own = std::process::id();
        let rights = Rights::of(&Peer::with(own, USER, USER));
        assert_eq!((rights.permitted, rights.effective), (0, 0));
        assert_ne!(Rights::of(&Peer::with(own, 0, 0)).permitted, 0);
    }
}
