// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that starts a manager for each application, and starts it again if it dies. It begins before the server
//! has threads and limits, so its children have neither; it has one thread and no bytes of clients.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use nix::sys::signal::{signal, SigHandler, Signal};
use nix::sys::signalfd::SignalFd;
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::{fork, ForkResult, Pid};
use rustix::event::{PollFd, PollFlags};
use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::children::{child_signals, pair, wait, Order};
use super::manager;
use super::pool::Pool;
use super::Options;
use crate::huge_pages;
use crate::upstream::host_process;
use crate::user::Identity;

/// Bytes of an order.
const MAX_ORDER: usize = 128 << 10;
/// Before a manager is started again.
const PAUSE: Duration = Duration::from_secs(1);

/// The way to the host.
pub struct Host {
    control: OwnedFd,
}

impl Host {
    /// Has the application's processes started.
    ///
    /// # Errors
    ///
    /// There is no descriptor left, or the host does not live.
    pub fn open(&self, options: &Options) -> Result<Pool> {
        let order = Order {
            name: format!("/{}", String::from_utf8_lossy(&options.location)),
            source: options.source.clone(),
            processes: options.processes,
        };
        let order = serde_json::to_vec(&order).context("an application cannot be described")?;
        ensure!(
            order.len() < MAX_ORDER,
            "the command and environment of an application are too long"
        );
        let (own, theirs) = pair().context("no socket for an application")?;
        let passed = [theirs.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&passed));
        sendmsg(
            &self.control,
            &[IoSlice::new(&order)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )
        .context("the process that starts applications has ended: restart flash")?;
        Ok(Pool::new(own, options.queue))
    }
}

/// Starts the host. `user`: whose rights it and the applications have.
///
/// # Errors
///
/// The process has threads already, or there can be no other process.
pub fn start(user: Option<&Identity>, is_sandboxed: bool) -> Result<Arc<Host>> {
    let threads = std::fs::read_dir("/proc/self/task").context("cannot count threads")?;
    ensure!(
        threads.count() == 1,
        "applications need a server that starts before its process has other threads"
    );
    let (control, theirs) = pair().context("no socket for applications")?;
    // SAFETY: there is one thread, so nobody holds a lock in the new process.
    match unsafe { fork() }.context("no process for applications")? {
        ForkResult::Parent { .. } => Ok(Arc::new(Host { control })),
        ForkResult::Child => {
            drop(control);
            huge_pages::allow();
            let done = prepare(user, is_sandboxed).and_then(|signals| serve(&theirs, &signals));
            if let Err(error) = &done {
                kit_console::say_error("flash", &format!("no applications: {error:#}"));
            }
            exit(done.is_err())
        }
    }
}

/// Without what the copied process would do at its end.
fn exit(has_failed: bool) -> ! {
    // SAFETY: it takes a number and does not return.
    unsafe { libc::_exit(i32::from(has_failed)) }
}

fn prepare(user: Option<&Identity>, is_sandboxed: bool) -> Result<SignalFd> {
    host_process::prepare(c"flash-apps", user, is_sandboxed)?;
    // What ends the server is sent to all of its processes. These end when it has ended, after its last request.
    for one in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: no function of this program is called.
        unsafe { signal(one, SigHandler::SigIgn) }?;
    }
    child_signals()
}

struct Managed {
    order: Order,
    socket: OwnedFd,
    runs: Option<Pid>,
    /// When it is started again.
    starts_at: Option<Instant>,
}

fn serve(control: &OwnedFd, signals: &SignalFd) -> Result<()> {
    let mut all: Vec<Managed> = Vec::new();
    let mut bytes = vec![0; MAX_ORDER];
    loop {
        let mut ready = [
            PollFd::new(control, PollFlags::IN),
            PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
        ];
        let next = all.iter().filter_map(|one| one.starts_at).min();
        wait(&mut ready, next)?;
        let has_order = !ready[0].revents().is_empty();
        while let Ok(Some(_)) = signals.read_signal() {}
        reap(&mut all);
        let now = Instant::now();
        for at in 0..all.len() {
            if all[at].starts_at.is_some_and(|time| time <= now) {
                start_manager(&mut all, at, control);
            }
        }
        if has_order {
            match take_order(control, &mut bytes) {
                Ok(Some(one)) => {
                    all.push(one);
                    let at = all.len() - 1;
                    start_manager(&mut all, at, control);
                }
                Ok(None) => break,
                Err(error) => {
                    kit_console::say_error("flash", &format!("an application: {error:#}"));
                }
            }
        }
    }
    // The managers end as the server's ends of their sockets are closed.
    for pid in all.iter().filter_map(|one| one.runs) {
        let _ = waitpid(pid, None);
    }
    Ok(())
}

fn start_manager(all: &mut [Managed], at: usize, control: &OwnedFd) {
    // SAFETY: there is one thread, so nobody holds a lock in the new process.
    match unsafe { fork() } {
        Ok(ForkResult::Parent { child }) => {
            all[at].runs = Some(child);
            all[at].starts_at = None;
        }
        Ok(ForkResult::Child) => {
            // Of an ended server nothing is left but what others hold.
            // SAFETY: this process does not use it any more, and ends without dropping it.
            unsafe { libc::close(std::os::fd::AsRawFd::as_raw_fd(control)) };
            let done = manager::run(&all[at].order, &all[at].socket);
            if let Err(error) = &done {
                let name = &all[at].order.name;
                kit_console::say_error("flash", &format!("the application {name}: {error:#}"));
            }
            exit(done.is_err())
        }
        Err(_) => all[at].starts_at = Some(Instant::now() + PAUSE),
    }
}

fn reap(all: &mut Vec<Managed>) {
    loop {
        let (pid, is_done) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, status)) => (pid, status == 0),
            Ok(WaitStatus::Signaled(pid, ..)) => (pid, false),
            Ok(WaitStatus::StillAlive) | Err(_) => return,
            Ok(_) => continue,
        };
        let Some(at) = all.iter().position(|one| one.runs == Some(pid)) else {
            continue;
        };
        if is_done {
            all.swap_remove(at);
        } else {
            all[at].runs = None;
            all[at].starts_at = Some(Instant::now() + PAUSE);
        }
    }
}

/// `None`: the server has ended.
fn take_order(control: &OwnedFd, bytes: &mut [u8]) -> Result<Option<Managed>> {
    let Some((length, passed)) = host_process::receive(control, bytes)? else {
        return Ok(None);
    };
    let socket = passed.into_iter().next();
    let socket = socket.context("an order without a socket")?;
    let order = serde_json::from_slice(&bytes[..length])?;
    Ok(Some(Managed {
        order,
        socket,
        runs: None,
        starts_at: None,
    }))
}
