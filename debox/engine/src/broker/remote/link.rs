// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connection to the broker, and the processes that are named to it by descriptors.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use anyhow::{bail, ensure, Context, Result};
use kit_proc::pidfd;

use super::tap;
use crate::broker::client;
use crate::broker::protocol::{self, Reply, Request, RunWish};
use crate::options::{Options, Tap};
use crate::usertap::TapServer;

/// The broker's answers are waited for this many times as long as its slowest answer so far took. That includes
/// opening the session, which is as much work as any. So a stopped broker delays the report of a finished run by some
/// seconds only, and a slow machine gets enough time.
const PATIENCE_TIMES: u32 = 10;
const PATIENCE_LEAST: Duration = Duration::from_secs(5);

pub(super) fn patience_after(took: Duration) -> Duration {
    (took * PATIENCE_TIMES).clamp(PATIENCE_LEAST, client::WORK)
}

/// Asks a broker for a session, with a time limit for its greeting and one for its further answers.
pub(super) fn connect(
    path: &Path,
    options: &Options,
    hello: Duration,
    work: Duration,
) -> Result<(OwnedFd, Option<TapServer>)> {
    let (connection, nonce) = client::greet(path, hello)?;
    client::be_patient(&connection, work)?;
    let wish = RunWish::new(options);
    let request = Request::Run { nonce, wish };
    ensure!(
        protocol::encode(&request).len() <= protocol::REQUEST_MAX,
        "the triggers are too long for the broker: all of them together may take about {} characters",
        protocol::REQUEST_MAX - 100
    );
    let (reply, slots) = client::ask(&connection, &request)?;
    let Reply::Running { slots: count } = reply else {
        return Err(client::unexpected(reply).into());
    };
    let tap = match options.tap {
        Tap::Kernel => None,
        Tap::User => {
            let slots = slots.context("the broker gave no slots")?;
            Some(tap::start(&connection, count, slots)?)
        }
    };
    Ok((connection, tap))
}

pub(super) fn open(pid: u32) -> Result<OwnedFd> {
    pidfd::open(pid).with_context(|| format!("there is no process {pid}"))
}

pub(super) fn is_alive(process: &OwnedFd) -> bool {
    !pidfd::ends_within(process.as_fd(), Duration::ZERO)
}

/// Enrols a process; returns how many of its threads were not monitored before.
pub(super) fn enrol(connection: &OwnedFd, pid: u32, is_running: bool) -> Result<u32> {
    let process = open(pid)?;
    let request = Request::Enrol { is_running };
    match client::ask_about(connection, &request, process.as_fd())? {
        Reply::Enrolled { threads } => Ok(threads),
        Reply::NotEnrolled(why) => bail!(why),
        other => Err(client::unexpected(other).into()),
    }
}
