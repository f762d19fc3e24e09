// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the processes of an application come from: they are started, or connected to.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{ensure, Context, Result};
use nix::sys::signal::{sigprocmask, SigHandler, SigSet, SigmaskHow, Signal};
use nix::unistd::{geteuid, Pid};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{connect, socket_with, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::super::children::pair;

/// Names the descriptor of its channel to a process.
const CHANNEL: &str = "FLASH_APPLICATION";
/// Of the server alone.
const OWN: [&str; 4] = [
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "NOTIFY_SOCKET",
];

/// Starts a process, and returns its number and the server's end of its channel.
pub(super) fn execute(
    command: &[String],
    directory: &Path,
    environment: &[(String, String)],
) -> Result<(Pid, OwnedFd)> {
    let (program, arguments) = command.split_first().context("there is no command")?;
    let (own, theirs) = pair()?;
    let number = theirs.as_raw_fd();
    let errors = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3)?;
    let mut all = Command::new(program);
    all.args(arguments)
        .current_dir(directory)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .env(CHANNEL, number.to_string())
        .stdin(Stdio::null())
        // What it prints is for who runs the server.
        .stdout(Stdio::from(errors));
    for name in OWN {
        all.env_remove(name);
    }
    // SAFETY: it makes system calls only.
    unsafe { all.pre_exec(move || become_application(number)) };
    let child = all
        .spawn()
        .with_context(|| format!("{program} cannot be executed"))?;
    Ok((Pid::from_raw(child.id() as i32), own))
}

/// With its own group and the usual signals, and with its channel.
fn become_application(channel: i32) -> std::io::Result<()> {
    use rustix::process::{set_parent_process_death_signal, setsid, Signal as DeathSignal};
    setsid()?;
    set_parent_process_death_signal(Some(DeathSignal::KILL))?;
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGPIPE,
    ] {
        // SAFETY: the default is no function of this program.
        unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) }?;
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    // SAFETY: the descriptor is open: the process that is copied holds it.
    let channel = unsafe { std::os::fd::BorrowedFd::borrow_raw(channel) };
    rustix::io::fcntl_setfd(channel, rustix::io::FdFlags::empty())?;
    Ok(())
}

/// Connects to a process that was started elsewhere.
pub(super) fn reach(path: &Path, user: Option<u32>) -> Result<OwnedFd> {
    let name = || format!("no connection to {}", path.display());
    let address = SocketAddrUnix::new(path).with_context(name)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kind = SocketType::SEQPACKET;
    let channel = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    connect(&channel, &address).with_context(name)?;
    let peer = socket_peercred(&channel)?.uid.as_raw();
    let is_right = match user {
        Some(user) => peer == user,
        None => peer == 0 || peer == geteuid().as_raw(),
    };
    ensure!(
        is_right,
        "the user {peer} listens at {}: set `user` of the application if that is right",
        path.display()
    );
    Ok(channel)
}
