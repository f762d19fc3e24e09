// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the processes beside the server, which start scripts and applications, have in common.

use std::ffi::CStr;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use anyhow::Result;
use nix::unistd::{dup2_stdin, dup2_stdout};
use rustix::net::{recvmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::user::Identity;

/// Descriptors of one order.
const PASSED_MOST: usize = 3;

/// Gives up what the process does not need. `user`: whose rights it has from now on.
pub fn prepare(name: &CStr, user: Option<&Identity>, is_sandboxed: bool) -> Result<()> {
    if let Some(user) = user {
        user.assume()?;
    }
    if is_sandboxed {
        rustix::thread::set_no_new_privs(true)?;
    }
    let _ = rustix::thread::set_name(name);
    leave_streams()
}

/// A program that waits for the end of the server's output should not wait for this process.
pub fn leave_streams() -> Result<()> {
    let nothing = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;
    Ok(())
}

/// The length of the next order, and the descriptors that came with it. `None`: the server has ended.
pub fn receive(control: &OwnedFd, bytes: &mut [u8]) -> Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PASSED_MOST))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(
        control,
        &mut [IoSliceMut::new(bytes)],
        &mut ancillary,
        flags,
    )?;
    let mut passed = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            passed.extend(files);
        }
    }
    Ok((received.bytes > 0).then_some((received.bytes, passed)))
}
