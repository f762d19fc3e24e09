// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that starts scripts: small and with one thread, so a fork costs little and copies no lock that somebody
//! holds. It begins before the server has threads and limits. A second process does nothing but start it again if it dies.

use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use nix::sys::wait::{waitpid, WaitStatus};
use nix::unistd::{fork, ForkResult};
use rustix::net::{socketpair, AddressFamily, SocketFlags, SocketType};

use self::script::{dies_with_parent, exit};
use self::supervising::serve;
use super::host_process;
use super::scripts::{Scripts, Starter};
use crate::huge_pages;
use crate::user::Identity;

mod forked;
mod order;
mod script;
mod supervising;

pub use forked::forking;

/// Before the host is started again.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts the host. `most`: scripts at the same time; `user`: whose rights they have.
///
/// # Errors
///
/// The process has threads already, or there can be no other process.
pub fn start(most: usize, user: Option<&Identity>, is_sandboxed: bool) -> Result<Scripts> {
    let threads = std::fs::read_dir("/proc/self/task").context("cannot count threads")?;
    ensure!(
        threads.count() == 1,
        "scripts (cgi) need a server that starts before its process has other threads"
    );
    let flags = SocketFlags::CLOEXEC;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (control, theirs) = pair.context("no socket for scripts")?;
    // SAFETY: there is one thread, so nobody holds a lock in the new process.
    match unsafe { fork() }.context("no process for scripts")? {
        ForkResult::Parent { .. } => Ok(Scripts {
            starter: Starter::Host(control),
            most,
        }),
        ForkResult::Child => {
            drop(control);
            huge_pages::allow();
            let done = supervise(&theirs, most, user, is_sandboxed);
            if let Err(error) = &done {
                kit_console::say_error("flash", &format!("no scripts: {error:#}"));
            }
            exit(done.is_err())
        }
    }
}

fn supervise(
    control: &OwnedFd,
    most: usize,
    user: Option<&Identity>,
    is_sandboxed: bool,
) -> Result<()> {
    host_process::prepare(c"flash-scripts", user, is_sandboxed)?;
    dies_with_parent()?;
    loop {
        // SAFETY: there is one thread, so nobody holds a lock in the new process.
        match unsafe { fork() }? {
            ForkResult::Child => {
                let done = dies_with_parent().and_then(|()| serve(Some(control), most, Vec::new()));
                exit(done.is_err())
            }
            ForkResult::Parent { child } => match waitpid(child, None)? {
                // The server has ended.
                WaitStatus::Exited(_, 0) => return Ok(()),
                _ => std::thread::sleep(PAUSE),
            },
        }
    }
}
