// SPDX-License-Identifier: MIT OR Apache-2.0
//! What systemd and the server tell each other: sockets that systemd has opened (sd_listen_fds(3)), and whether the
//! server is ready (sd_notify(3)).

use std::collections::HashSet;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

use anyhow::{bail, Context, Result};
use kit_console::{printable, say};
use rustix::io::ioctl_fionbio;
use rustix::net::sockopt::{set_tcp_nodelay, socket_acceptconn, socket_type};
use rustix::net::SocketType;
use sd_notify::NotifyState;

/// Sockets that systemd has opened, with their names. They are open as long as the process runs.
#[derive(Debug, Clone, Default)]
pub struct Passed(Arc<Vec<(String, Arc<OwnedFd>)>>);

impl Passed {
    /// Takes them. Call it once, before anything is opened.
    ///
    /// # Errors
    ///
    /// One cannot be listened at; the error names it.
    pub fn take() -> Result<Passed> {
        let all = sd_notify::listen_fds_with_names().context(
            "the sockets that systemd passes cannot be used (LISTEN_FDS, LISTEN_FDNAMES)",
        )?;
        let mut sockets = Vec::new();
        for (number, name) in all {
            // SAFETY: the crate has seen that it is open, systemd has passed it to this process, and this is called once,
            // so nothing else owns it.
            let socket = unsafe { OwnedFd::from_raw_fd(number) };
            check(&socket, &name)?;
            sockets.push((name, Arc::new(socket)));
        }
        Ok(Passed(Arc::new(sockets)))
    }

    /// Those with a name.
    ///
    /// # Errors
    ///
    /// There is none; the error names those that there are.
    pub fn named(&self, name: &str) -> Result<Vec<Arc<OwnedFd>>> {
        let named = self.0.iter().filter(|(its, _)| its == name);
        let named: Vec<Arc<OwnedFd>> = named.map(|(_, socket)| Arc::clone(socket)).collect();
        if named.is_empty() {
            match self.0.is_empty() {
                true => bail!(
                    "cannot listen at systemd:{name}: systemd has passed no sockets, so start flash by a socket unit"
                ),
                false => bail!(
                    "cannot listen at systemd:{name}: systemd has passed the names {}; set FileDescriptorName={name}",
                    self.names().join(", ")
                ),
            }
        }
        Ok(named)
    }

    /// Without those that occur again.
    pub fn names(&self) -> Vec<&str> {
        let mut seen = HashSet::new();
        let all = self.0.iter().map(|(name, _)| name.as_str());
        all.filter(|name| seen.insert(*name)).collect()
    }
}

fn check(socket: &OwnedFd, name: &str) -> Result<()> {
    let is_stream = socket_type(socket) == Ok(SocketType::STREAM);
    if !is_stream || socket_acceptconn(socket) != Ok(true) {
        bail!(
            "systemd has passed `{name}`, which is no listening socket: its unit needs ListenStream= and Accept=no"
        );
    }
    ioctl_fionbio(socket, true).with_context(|| format!("cannot use the socket `{name}`"))?;
    // Accepted sockets inherit it. There is none to be set for a Unix socket.
    let _ = set_tcp_nodelay(socket, true);
    Ok(())
}

/// The server serves, with the configuration that it has just loaded or with the one before.
pub fn ready(status: &str) {
    let status = printable(status);
    notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// The configuration is being loaded again.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

pub fn stopping(status: &str) {
    notify(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

/// Nothing happens if systemd has not started the server.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        say!("systemd cannot be told the server's state (NOTIFY_SOCKET): {error}");
    }
}
