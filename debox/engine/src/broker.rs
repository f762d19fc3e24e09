//! The broker: the privileged process that loads the probes once, for processes without privilege.
//!
//! A program asks it through a Unix socket ([`socket_path`]), proves who it is, and gets the
//! descriptor of an array of slots that nobody else has: the probes write its threads' records
//! there. What a client can do to others is limited by what it may have at all ([`Limits`]); what it
//! sees of them, by the probes (`debox/probe/client.h`). SECURITY.md has the threats, each with its test.
//!
//! ```text
//! protocol.rs  what is said           server.rs    the broker's loop    client.rs  a program's side
//! channel.rs   packets, descriptors   listener.rs  its socket           again.rs   found again
//! peer.rs      who it is              shared.rs    sessions of clients  quota.rs   who may have what
//! owners.rs    for whom users count   run.rs       for `debox run`      remote.rs  its other side
//! presence.rs  that it is there       terms.rs     what a run may do    turns.rs   who is next
//! seen.rs      what the probes saw    account.rs   memory given out     cgroup.rs  and how much
//! wire.rs      what was measured      cpu.rs       CPU time taken       log.rs     for the journal
//! trust.rs     who is believed to be it
//! ```

mod account;
pub(crate) mod again;
mod cgroup;
pub(crate) mod channel;
pub(crate) mod client;
pub(crate) mod cpu;
mod listener;
mod loading;
mod log;
pub(crate) mod owners;
pub(crate) mod peer;
pub(crate) mod presence;
pub(crate) mod protocol;
mod quota;
mod remote;
mod run;
mod seen;
mod server;
mod shared;
mod terms;
mod trust;
mod turns;
pub(crate) mod wire;

use std::path::PathBuf;

pub use quota::Limits;
pub use remote::RemoteSession;
pub use server::{Broker, Options};

/// Where the broker listens unless told otherwise.
pub const SOCKET: &str = "/run/debox/broker.sock";

/// Which users were given which subordinate user ids, unless another file is named.
pub const SUBORDINATES: &str = "/etc/subuid";

/// The environment variable that names another socket; empty: no broker is asked.
pub const VARIABLE: &str = "DEBOX_BROKER";

/// Where a program finds the broker; `None` if it is told not to ask one. Programs that run with
/// more rights than their caller do not listen to the caller's environment.
pub fn socket_path() -> Option<PathBuf> {
    match std::env::var_os(VARIABLE) {
        Some(path) if !has_other_rights() => (!path.is_empty()).then(|| path.into()),
        _ => Some(SOCKET.into()),
    }
}

/// Whether this program runs with more rights than its caller, who made its environment.
pub(crate) fn has_other_rights() -> bool {
    // SAFETY: reads a word that the kernel passed at the start of the program.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Whether the environment names a broker: then it is asked even where there is privilege enough to
/// do without.
pub(crate) fn is_named() -> bool {
    !has_other_rights() && std::env::var_os(VARIABLE).is_some_and(|path| !path.is_empty())
}

/// Whether that is why no broker was of use: there is none.
pub(crate) fn is_absent(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(client::Trouble::Absent(_)))
}

/// Whether that is why: there is one, which does not answer.
pub(crate) fn is_silent(error: &anyhow::Error) -> bool {
    let is_late = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    error.chain().any(|cause| {
        matches!(cause.downcast_ref(), Some(client::Trouble::Silent))
            || cause.downcast_ref().is_some_and(is_late)
    })
}

/// Whether a broker answers, without anything else asked of it.
pub fn find() -> Result<PathBuf, String> {
    let Some(path) = socket_path() else {
        return Err(format!("{VARIABLE} is empty: no broker is asked"));
    };
    client::ask_version(&path)
        .map(|()| path)
        .map_err(|error| error.to_string())
}
