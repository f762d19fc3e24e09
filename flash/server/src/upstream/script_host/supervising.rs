// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts scripts and sees to their ends.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{killpg, SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::{fork, ForkResult, Pid};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::order::Order;
use super::script::{self, exit};
use crate::http::response;
use crate::upstream::host_process;
use crate::upstream::scripts::{ENDED, KILLED, LATE};

/// Bytes of an order: variables are as large as the head of a request.
const MAX_ORDER: usize = 256 << 10;
/// Between the request to end and the end of a script that nobody waits for.
const MERCY: Duration = Duration::from_secs(3);

/// A script that runs.
pub struct Running {
    /// Also the number of its group.
    pid: Pid,
    life: OwnedFd,
    deadline: Instant,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Runs,
    /// Nobody wants its answer. It has been asked to end.
    Abandoned,
    Killed,
}

/// Without `control`: until the scripts that run have ended.
pub fn serve(control: Option<&OwnedFd>, most: usize, mut running: Vec<Running>) -> Result<()> {
    let mut ends = SigSet::empty();
    ends.add(Signal::SIGCHLD);
    ends.thread_block()?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let signals = SignalFd::with_flags(&ends, flags)?;
    while control.is_some() || !running.is_empty() {
        let (has_order, gone) = wait(control, &signals, &running)?;
        while let Ok(Some(_)) = signals.read_signal() {}
        let now = Instant::now();
        for (script, is_gone) in running.iter_mut().zip(gone) {
            look_at(script, is_gone, now);
        }
        reap(&mut running);
        let Some(control) = control.filter(|_| has_order) else {
            continue;
        };
        let mut bytes = vec![0; MAX_ORDER];
        match take_order(control, &mut bytes) {
            Ok(None) => break,
            Ok(Some(order)) if running.len() >= most => refuse(order.output, 503),
            Ok(Some(order)) => running.extend(begin(order)),
            Err(_) => {}
        }
    }
    for script in &running {
        let _ = killpg(script.pid, Signal::SIGKILL);
    }
    Ok(())
}

/// Until there is something to do: an order, an end, a script that nobody waits for, or one whose time is over.
fn wait(
    control: Option<&OwnedFd>,
    signals: &SignalFd,
    running: &[Running],
) -> Result<(bool, Vec<bool>)> {
    let mut ready = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
    // Nothing is ever sent over it, so it can only be closed. Then it is always ready: once is enough.
    let is_running = |script: &&Running| script.stage == Stage::Runs;
    let lives = running.iter().filter(is_running);
    ready.extend(lives.map(|script| PollFd::new(&script.life, PollFlags::IN)));
    ready.extend(control.map(|control| PollFd::new(control, PollFlags::IN)));
    let waits = running
        .iter()
        .filter(|script| script.stage != Stage::Killed);
    let next = waits.map(|script| script.deadline).min();
    let timeout = next.map(|next| {
        let left = next.saturating_duration_since(Instant::now());
        Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        }
    });
    match poll(&mut ready, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error).context("cannot wait for orders"),
    }
    let last = ready.last().filter(|_| control.is_some());
    let has_order = last.is_some_and(|control| !control.revents().is_empty());
    let mut lives = ready[1..].iter();
    let mut is_gone = |script: &Running| {
        is_running(&script) && lives.next().is_some_and(|life| !life.revents().is_empty())
    };
    let gone = running.iter().map(&mut is_gone).collect();
    Ok((has_order, gone))
}

/// Ends it if it has no time left, or no reader.
fn look_at(script: &mut Running, is_gone: bool, now: Instant) {
    match script.stage {
        Stage::Runs if is_gone => {
            let _ = killpg(script.pid, Signal::SIGTERM);
            script.stage = Stage::Abandoned;
            script.deadline = now + MERCY;
        }
        Stage::Runs if script.deadline <= now => {
            let _ = rustix::io::write(&script.life, &[LATE]);
            let _ = killpg(script.pid, Signal::SIGKILL);
            script.stage = Stage::Killed;
        }
        Stage::Abandoned if script.deadline <= now => {
            let _ = killpg(script.pid, Signal::SIGKILL);
            script.stage = Stage::Killed;
        }
        _ => {}
    }
}

/// Takes the ends of scripts, so that none stays a zombie, and passes them on.
fn reap(running: &mut Vec<Running>) {
    loop {
        let (pid, how) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, _)) => (pid, ENDED),
            Ok(WaitStatus::Signaled(pid, ..)) => (pid, KILLED),
            Ok(WaitStatus::StillAlive) | Err(_) => return,
            Ok(_) => continue,
        };
        if let Some(at) = running.iter().position(|script| script.pid == pid) {
            let script = running.swap_remove(at);
            let _ = rustix::io::write(&script.life, &[how]);
        }
    }
}

/// `None`: the server has ended.
fn take_order(control: &OwnedFd, bytes: &mut [u8]) -> Result<Option<Order>> {
    let Some((length, passed)) = host_process::receive(control, bytes)? else {
        return Ok(None);
    };
    let ends = <[OwnedFd; 3]>::try_from(passed);
    let ends = ends.map_err(|_| anyhow::anyhow!("an order without descriptors"))?;
    Order::read(&bytes[..length], ends).map(Some)
}

pub fn begin(order: Order) -> Option<Running> {
    // SAFETY: there is one thread, so nobody holds a lock in the new process.
    match unsafe { fork() } {
        Ok(ForkResult::Parent { child }) => Some(Running {
            pid: child,
            life: order.life,
            deadline: Instant::now() + order.time,
            stage: Stage::Runs,
        }),
        Ok(ForkResult::Child) => {
            let status = script::become_script(&order);
            refuse(order.output, status);
            exit(false)
        }
        Err(_) => {
            refuse(order.output, 503);
            None
        }
    }
}

/// Answers in place of a script.
fn refuse(output: OwnedFd, status: u16) {
    let reason = response::reason(status);
    let page = response::error_page(status);
    let text = format!(
        "Status: {status} {reason}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\r\n{page}",
        page.len()
    );
    // It fits into an empty pipe.
    let _ = std::fs::File::from(output).write_all(text.as_bytes());
}
