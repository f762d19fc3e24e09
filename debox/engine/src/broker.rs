//! The broker: the privileged process that loads the probes once, for processes without privilege.
//!
//! A program asks it through a Unix socket ([`socket_path`]), proves its identity, and gets the
//! descriptor of an array of slots that no other process has: the probes write its threads' records
//! there. [`Limits`] bound what a client can do to others; the probes (`debox/probe/client.h`) bound what
//! it can see of them. SECURITY.md lists the threats, each with its test.
//!
//! ```text
//! protocol.rs    the messages           server.rs      the broker's loop    client.rs    a program's side
//! channel.rs     packets, descriptors   listener.rs    its socket           reconnect.rs a program's way back
//! peer.rs        a client's identity    shared.rs      sessions of clients  quota.rs     limits of clients
//! owners.rs      owners of user ids     run.rs         for `debox run`      remote.rs    its client's side
//! presence.rs    whether it is there    run_limits.rs  limits of a run      turns.rs     order of requests
//! probe_data.rs  what the probes saw    account.rs     memory given out     cgroup.rs    limits of memory
//! wire.rs        what was measured      cpu.rs         CPU time taken       log.rs       for the journal
//! trust.rs       brokers to accept      address.rs     where to look        record_data.rs  records
//! access.rs      whom to attach to
//! ```

mod access;
mod account;
mod address;
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
mod probe_data;
pub(crate) mod protocol;
mod quota;
pub(crate) mod reconnect;
pub(crate) mod record_data;
mod remote;
mod run;
mod run_limits;
mod server;
mod shared;
mod trust;
mod turns;
pub(crate) mod wire;

use std::path::PathBuf;

pub(crate) use address::{has_other_rights, is_named};
pub use address::{socket_path, SOCKET, SUBORDINATES, VARIABLE};
pub(crate) use client::{is_absent, is_silent};
pub use quota::Limits;
pub use remote::RemoteSession;
pub use run::THREADS;
pub use server::{Broker, Options};

/// Checks whether a broker answers, without any further request. Returns its path.
pub fn find() -> Result<PathBuf, String> {
    let Some(path) = socket_path() else {
        return Err(format!("{VARIABLE} is empty, so no broker is used"));
    };
    client::ask_version(&path)
        .map(|()| path)
        .map_err(|error| error.to_string())
}
