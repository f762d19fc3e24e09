// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the main thread does while a server runs: it obeys signals. SIGHUP reads everything again, SIGTERM and SIGINT
//! end the server.

use std::os::fd::AsFd;

use anyhow::{Context, Result};
use kit_console::{say, say_error};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::Errno;

use crate::server::{Plan, Server};
use crate::systemd;

/// Where the signals come in that the server obeys. It begins before any thread, so no thread takes one.
///
/// # Errors
///
/// The kernel has no descriptor left.
pub fn signals() -> Result<SignalFd> {
    let all = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
    let all: SigSet = all.into_iter().collect();
    all.thread_block().context("cannot block signals")?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    SignalFd::with_flags(&all, flags).context("cannot wait for signals")
}

/// Runs a server until a signal ends it. `plan`: reads the configuration again, if there is one.
///
/// # Errors
///
/// A loop has failed, or signals cannot be received.
pub fn run(
    mut server: Server,
    signals: &SignalFd,
    plan: Option<&dyn Fn() -> Result<Plan>>,
) -> Result<()> {
    let mut is_wanted = false;
    systemd::ready(&serving(&server));
    loop {
        server.reap();
        if is_wanted && server.has_room() {
            is_wanted = false;
            systemd::reloading();
            let status = read_again(&mut server, plan);
            systemd::ready(&status);
        }
        let mut ready = [
            PollFd::new(signals, PollFlags::IN),
            PollFd::from_borrowed_fd(server.ended().as_fd(), PollFlags::IN),
        ];
        match poll(&mut ready, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for signals"),
        }
        // Many signals of a kind that come at once are one.
        while let Some(signal) = signals.read_signal().context("cannot wait for signals")? {
            if signal.ssi_signo != Signal::SIGHUP as u32 {
                return end(server);
            }
            is_wanted = true;
        }
    }
}

/// What `systemctl status` shows.
fn serving(server: &Server) -> String {
    format!("serving at {}", server.urls().join(", "))
}

/// Returns what to say of it.
fn read_again(server: &mut Server, plan: Option<&dyn Fn() -> Result<Plan>>) -> String {
    let Some(plan) = plan else {
        server.reopen_log();
        let mut status = serving(server);
        for error in server.reload_certificates() {
            status = format!("the certificates in use stay: {error:#}");
            say_error("flash", &status);
        }
        return status;
    };
    match server.reload(plan()) {
        Ok(()) => {
            say!("the configuration has been loaded again");
            serving(server)
        }
        Err(error) => {
            // Logs are rotated whether the configuration is right or not.
            server.reopen_log();
            let text = format!("the configuration in force stays: {error:#}");
            say_error("flash", &text);
            server.count_refusal();
            text
        }
    }
}

fn end(server: Server) -> Result<()> {
    let text = "ending after the requests that are there";
    systemd::stopping(text);
    say!("{text}; a second signal ends at once");
    // From here on they do what they do by default. SIGHUP stays blocked: a late one would cut off requests.
    let ends: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
    ends.thread_unblock().context("cannot unblock signals")?;
    server.end()
}
