// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a server is to do.

use std::path::PathBuf;

use crate::address::Address;
use crate::context::Options;
use crate::sites::VirtualHost;
use crate::systemd::Passed;
use crate::unix;
use crate::user::Identity;

/// Threads that may wait for a device, unless the plan says otherwise.
pub const HELPERS: usize = 64;

/// The thread that starts the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// It does other things, too, and is not limited.
    Library,
    /// It does nothing else.
    Process,
    /// It does nothing else, and will read changed configurations.
    Reloads,
}

/// What is to be served, and where.
pub struct Plan {
    /// The first one of an address also serves the names that none has.
    pub hosts: Vec<VirtualHost>,
    /// Where `/metrics` is.
    pub metrics: Option<Address>,
    /// Of Unix sockets that are opened.
    pub unix: unix::Settings,
    /// Sockets that systemd has opened.
    pub passed: Passed,
    pub loops: usize,
    pub helpers: usize,
    pub log: Option<PathBuf>,
    /// The user whose rights the process takes once the ports are open. Without one it keeps its own.
    pub user: Option<Identity>,
    /// Each thread is limited to what it needs.
    pub is_sandboxed: bool,
    pub caller: Caller,
    pub options: Options,
}

impl Plan {
    /// As `flash serve` without options, but with no more connections than [`Options`] says.
    pub fn of(hosts: Vec<VirtualHost>) -> Plan {
        Plan {
            hosts,
            metrics: None,
            unix: unix::Settings::default(),
            passed: Passed::default(),
            loops: std::thread::available_parallelism().map_or(1, usize::from),
            helpers: HELPERS,
            log: None,
            user: None,
            is_sandboxed: true,
            caller: Caller::Library,
            options: Options::default(),
        }
    }
}
