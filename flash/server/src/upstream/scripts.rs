// SPDX-License-Identifier: MIT OR Apache-2.0
//! CGI (RFC 3875), as the server sees it: it orders a script from the process that starts scripts (`script_host`), hands
//! over the script's ends of two pipes, and reads and writes the others like any upstream's.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::{
    sendmsg, socketpair, AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketFlags, SocketType,
};
use rustix::pipe::{pipe_with, PipeFlags};

use super::answer::{Malformed, Step};
use super::script_head::Collector;
use super::variables::{Script, Variable};
use crate::http::target::Path;

/// How the host says that a script has ended: by itself, by a signal, or by the host as its time was over.
pub const ENDED: u8 = b'E';
pub const KILLED: u8 = b'K';
pub const LATE: u8 = b'L';

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Where the scripts are.
    pub root: PathBuf,
    /// Of the location, without slashes at its ends.
    pub location: Vec<u8>,
    /// For a script to end.
    pub time_ms: u64,
    /// Bytes of content that a script may answer with.
    pub output: u64,
    /// It reads content without CONTENT_LENGTH, to its end.
    pub takes_chunked: bool,
    /// Further variables.
    pub variables: Vec<(String, String)>,
}

impl Options {
    /// The name of the script is not known before the host has looked for it: all of the path is behind the location's.
    pub fn script(&self, path: &Path) -> Script {
        Script::of_application(path, &self.location)
    }

    /// What the host needs to start a script.
    pub fn order(&self, script: &Script, variables: &[Variable]) -> Vec<u8> {
        let time = u32::try_from(self.time_ms).unwrap_or(u32::MAX);
        let mut order = time.to_le_bytes().to_vec();
        let mut put = |text: &[u8]| {
            order.extend_from_slice(text);
            order.push(0);
        };
        put(self.root.as_os_str().as_bytes());
        put(&script.name);
        put(&script.path_info);
        for (name, value) in variables {
            put(&[name.as_bytes(), b"=", value].concat());
        }
        order
    }
}

/// Who starts scripts.
pub enum Starter {
    /// The host, which is at the other end of this socket.
    Host(OwnedFd),
    /// The calling thread, by a fork of the whole server, which supervises this one script.
    Forks(fn(&[u8], [OwnedFd; 3]) -> Result<(), Errno>),
}

pub struct Scripts {
    pub starter: Starter,
    /// Scripts that may run at the same time.
    pub most: usize,
}

/// The server's ends of what it shares with a script and its host.
pub struct Pipes {
    pub output: OwnedFd,
    pub input: OwnedFd,
    /// Says how the script has ended. The host ends a script whose server has closed it.
    pub life: OwnedFd,
}

impl Scripts {
    /// # Errors
    ///
    /// There is no descriptor left, the host has too much to do, or it does not live.
    pub fn run(&self, order: &[u8]) -> Result<Pipes, Errno> {
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let (output, script_output) = pipe_with(flags)?;
        let (script_input, input) = pipe_with(flags)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (life, host_life) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let ends = [script_input, script_output, host_life];
        match &self.starter {
            Starter::Host(control) => pass(control, order, &ends)?,
            Starter::Forks(fork) => fork(order, ends)?,
        }
        Ok(Pipes {
            output,
            input,
            life,
        })
    }
}

fn pass(control: &OwnedFd, order: &[u8], ends: &[OwnedFd; 3]) -> Result<(), Errno> {
    let passed = ends.each_ref().map(AsFd::as_fd);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&passed));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(control, &[IoSlice::new(order)], &mut ancillary, flags)?;
    Ok(())
}

/// Reads what a script writes.
#[derive(Debug)]
pub struct Reader {
    head: Option<Collector>,
}

impl Default for Reader {
    fn default() -> Reader {
        let head = Some(Collector::default());
        Reader { head }
    }
}

impl Reader {
    pub fn has_head(&self) -> bool {
        self.head.is_none()
    }

    /// # Errors
    ///
    /// It is no answer.
    pub fn next(&mut self, received: &[u8]) -> Result<(usize, Step), Malformed> {
        if received.is_empty() {
            return Ok((0, Step::More));
        }
        let Some(head) = &mut self.head else {
            return Ok((received.len(), Step::Content(0..received.len())));
        };
        match head.add(received)? {
            None => Ok((received.len(), Step::More)),
            Some((behind, head)) => {
                self.head = None;
                Ok((received.len() - behind, Step::Head(head)))
            }
        }
    }
}
