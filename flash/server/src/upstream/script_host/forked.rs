// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scripts as Flash started them first (2.5.4): a loop forks the whole server. The copy closes what is not its own and
//! supervises one script, as the host does for all.

use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::Result;
use nix::sys::signal::{SigHandler, Signal};
use nix::unistd::{fork, ForkResult};
use rustix::io::Errno;

use super::order::Order;
use super::script::exit;
use super::supervising::{begin, serve};
use crate::upstream::host_process;
use crate::upstream::scripts::{Scripts, Starter};

/// `most`: scripts at the same time.
///
/// # Errors
///
/// Those of sigaction.
pub fn forking(most: usize) -> Result<Scripts> {
    // The kernel takes the ends of the copies.
    // SAFETY: to ignore a signal is no function of this program.
    unsafe { nix::sys::signal::signal(Signal::SIGCHLD, SigHandler::SigIgn) }?;
    Ok(Scripts {
        starter: Starter::Forks(fork_server),
        most,
    })
}

fn fork_server(order: &[u8], ends: [OwnedFd; 3]) -> Result<(), Errno> {
    // SAFETY: the copy has this thread alone. It takes no lock that another thread may have held but that of the
    // allocator, which the C library makes usable again.
    match unsafe { fork() } {
        Ok(ForkResult::Parent { .. }) => Ok(()),
        Ok(ForkResult::Child) => exit(supervise_one(order, ends).is_err()),
        Err(error) => Err(Errno::from_raw_os_error(error as i32)),
    }
}

/// It ends when its script has ended. If the server ends, `life` is closed, and the script is ended.
fn supervise_one(order: &[u8], ends: [OwnedFd; 3]) -> Result<()> {
    close_all_but(&ends);
    let _ = rustix::thread::set_name(c"flash-script");
    host_process::leave_streams()?;
    // SAFETY: the default is no function of this program.
    unsafe { nix::sys::signal::signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
    let order = Order::read(order, ends)?;
    serve(None, 1, begin(order).into_iter().collect())
}

/// Clients would otherwise not see that the server has closed their connections.
fn close_all_but(ends: &[OwnedFd; 3]) {
    let mut own: Vec<u32> = ends.iter().map(|end| end.as_raw_fd() as u32).collect();
    own.sort_unstable();
    let mut first = 3;
    for end in own.into_iter().chain([u32::MAX]) {
        if first < end {
            // SAFETY: what owns these descriptors is never used or dropped in this copy.
            unsafe { libc::syscall(libc::SYS_close_range, first, end - 1, 0u32) };
        }
        first = end.saturating_add(1);
    }
}
