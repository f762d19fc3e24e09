// SPDX-License-Identifier: MIT OR Apache-2.0
//! What threads are for, and what they have to reach after the start.

use std::os::fd::RawFd;
use std::path::PathBuf;

use crate::sites::VirtualHost;
use crate::upstream::{Endpoint, Place};

/// What a thread is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `inbox`: the only descriptor that it reads by `read`.
    Loop {
        inbox: RawFd,
    },
    Helper,
    /// Checks passwords.
    Password,
    /// The loop of the path server, with its inbox.
    Paths {
        inbox: RawFd,
    },
    /// Opens files for other processes, with the flags that these want.
    PathHelper,
    Log,
    /// Writes to the standard error stream.
    Messages,
    /// Waits for signals, loads certificates and changed configurations, and starts the others.
    Main,
}

/// Files that threads have to reach after the start. Nothing else can be opened.
#[derive(Debug, Clone, Default)]
pub struct Paths {
    /// Directories whose files are served.
    pub roots: Vec<PathBuf>,
    /// What is loaded again on SIGHUP, as certificates, keys and users. The directories are readable, as renewal puts new files
    /// in place of old ones.
    pub loaded: Vec<PathBuf>,
    /// Opened again on SIGHUP. New files can be made in its directory.
    pub log: Option<PathBuf>,
    /// Unix sockets: made when the configuration changes, removed in the end.
    pub sockets: Vec<PathBuf>,
    /// The main thread will read a changed configuration, with directories and certificates that are not known yet.
    pub may_change: bool,
    /// All other threads come from the main thread, so they have its limits, too.
    pub is_inherited: bool,
    pub upstreams: Reach,
    /// System calls that only loops make, and not in every configuration.
    pub of_loops: &'static [libc::c_long],
}

/// Which upstreams loops connect to.
#[derive(Debug, Clone, Default)]
pub struct Reach {
    /// Of TCP. Addresses cannot be limited.
    pub ports: Vec<u16>,
    pub has_unix: bool,
    pub has_scripts: bool,
    pub has_applications: bool,
}

impl Reach {
    pub fn of(hosts: &[VirtualHost]) -> Reach {
        let mut reach = Reach::default();
        let locations = hosts.iter().flat_map(|host| &host.locations);
        let plans = locations.filter_map(|location| location.upstream.as_ref());
        for place in plans.flat_map(|plan| &plan.to) {
            match place {
                Place::Tcp { port, .. } => reach.ports.push(*port),
                Place::Unix(_) => reach.has_unix = true,
                Place::Script => reach.has_scripts = true,
                Place::Application => reach.has_applications = true,
            }
        }
        reach
    }

    /// A connection to an upstream of this kind can be used, if it is open.
    pub fn has_kind_of(&self, endpoint: &Endpoint) -> bool {
        match endpoint {
            Endpoint::Tcp(_) => !self.ports.is_empty(),
            Endpoint::Unix(_) => self.has_unix,
            Endpoint::Script => self.has_scripts,
            Endpoint::Application => self.has_applications,
        }
    }
}
