//! The broker: the privileged process that loads the probes once, for processes without privilege.
//!
//! A program asks it through a Unix socket ([`socket_path`]), proves its identity, and gets the
//! descriptor of an array of slots that no other process has: the probes write its threads' records
//! there. [`Limits`] bound what a client can do to others; the probes (`debox/probe/client.h`) bound what
//! it can see of them. SECURITY.md lists the threats, each with its test.
//!
//! ```text
//! protocol.rs  the messages           server.rs    the broker's loop    client.rs  a program's side
//! channel.rs   packets, descriptors   listener.rs  its socket           again.rs   reconnecting
//! peer.rs      a client's identity    shared.rs    sessions of clients  quota.rs   limits of clients
//! owners.rs    owners of user ids     run.rs       for `debox run`      remote.rs  its client's side
//! presence.rs  whether it is there    terms.rs     limits of a run      turns.rs   order of requests
//! seen.rs      what the probes saw    account.rs   memory given out     cgroup.rs  limits of memory
//! wire.rs      what was measured      cpu.rs       CPU time taken       log.rs     for the journal
//! trust.rs     which brokers a program accepts
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

/// The default path of the broker's socket.
pub const SOCKET: &str = "/run/debox/broker.sock";

/// The default file that lists which users have which subordinate user ids.
pub const SUBORDINATES: &str = "/etc/subuid";

/// The environment variable that names another socket; if it is empty, no broker is used.
pub const VARIABLE: &str = "DEBOX_BROKER";

/// The path of the broker's socket; `None` if the environment disables the broker. Programs that run with
/// more rights than their caller ignore the caller's environment.
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

/// Whether the environment names a broker. Then it is used even by a process with enough privilege to do
/// without.
pub(crate) fn is_named() -> bool {
    !has_other_rights() && std::env::var_os(VARIABLE).is_some_and(|path| !path.is_empty())
}

/// Whether the error is that there is no broker.
pub(crate) fn is_absent(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(client::Trouble::Absent(_)))
}

/// Whether the error is that there is a broker, but it does not answer.
pub(crate) fn is_silent(error: &anyhow::Error) -> bool {
    let is_late = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    error.chain().any(|cause| {
        matches!(cause.downcast_ref(), Some(client::Trouble::Silent))
            || cause.downcast_ref().is_some_and(is_late)
    })
}

/// Checks whether a broker answers, without any further request. Returns its path.
pub fn find() -> Result<PathBuf, String> {
    let Some(path) = socket_path() else {
        return Err(format!("{VARIABLE} is empty, so no broker is used"));
    };
    client::ask_version(&path)
        .map(|()| path)
        .map_err(|error| error.to_string())
}
