// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each thread may still do when it has started: which files it reaches (Landlock), and which system calls it can
//! make (seccomp). A client that takes over a loop by a bug gets no more than the loop itself needs.
//!
//! Threads have different tasks, so each has its own limits. A thread inherits those of the thread that starts it, so
//! only the first helper of a pool sets them, and what the main thread may not do no thread may.

mod calls;

use std::fmt;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use landlock::{
    path_beneath_rules, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, NetPort, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, ABI,
};

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

/// A part of the sandbox: in force, in which form; or not, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    On(String),
    Off(String),
}

/// What is in force in a thread, or in all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub landlock: Part,
    pub seccomp: Part,
}

impl Part {
    pub fn is_on(&self) -> bool {
        matches!(self, Part::On(_))
    }

    fn weaker(self, other: Part) -> Part {
        if self.is_on() {
            other
        } else {
            self
        }
    }
}

impl Status {
    /// Of no thread.
    pub fn off() -> Status {
        let off = || Part::Off("off (--no-sandbox)".to_string());
        Status {
            landlock: off(),
            seccomp: off(),
        }
    }

    /// What is in force in both.
    pub fn weaker(self, other: Status) -> Status {
        Status {
            landlock: self.landlock.weaker(other.landlock),
            seccomp: self.seccomp.weaker(other.seccomp),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |part: &Part| match part {
            Part::On(text) | Part::Off(text) => text.clone(),
        };
        write!(
            out,
            "Landlock: {}; seccomp: {}",
            text(&self.landlock),
            text(&self.seccomp)
        )
    }
}

/// Limits the calling thread, and those that it starts. There is no way back.
pub fn enter(role: Role, paths: &Paths) -> Status {
    // Whatever is executed later gets no rights by its file.
    let _ = rustix::thread::set_no_new_privs(true);
    Status {
        landlock: restrict_files(role, paths).unwrap_or_else(|error| Part::Off(error.to_string())),
        seccomp: calls::restrict(role, paths).unwrap_or_else(|error| {
            Part::Off(format!(
                "this kernel or container does not allow it: {error}"
            ))
        }),
    }
}

fn restrict_files(role: Role, paths: &Paths) -> Result<Part, RulesetError> {
    let reads = AccessFs::ReadFile | AccessFs::ReadDir;
    let none: BitFlags<AccessFs> = BitFlags::EMPTY;
    let (readable, writable) = match role {
        Role::Loop { .. } | Role::Helper | Role::Paths { .. } | Role::PathHelper => {
            (paths.roots.clone(), Vec::new())
        }
        Role::Password | Role::Messages => (Vec::new(), Vec::new()),
        Role::Log => (Vec::new(), log_places(paths.log.as_deref())),
        Role::Main => (main_reads(paths), log_places(paths.log.as_deref())),
    };
    let writes = match writable.is_empty() {
        true => none,
        false => AccessFs::WriteFile | AccessFs::MakeReg,
    };
    let mut ruleset = Ruleset::default().handle_access(AccessFs::from_all(ABI::V5))?;
    if role != Role::Main {
        // No connection is opened but those to upstreams, and no further port.
        ruleset = ruleset.handle_access(AccessNet::from_all(ABI::V4))?;
    }
    let ports = match role {
        Role::Loop { .. } => paths.upstreams.ports.as_slice(),
        _ => &[],
    };
    let connects = |port: &u16| Ok::<_, RulesetError>(NetPort::new(*port, AccessNet::ConnectTcp));
    let sockets: Vec<PathBuf> = match role {
        Role::Main => paths.sockets.iter().map(|path| parent(path)).collect(),
        _ => Vec::new(),
    };
    let makes = AccessFs::MakeSock | AccessFs::RemoveFile | reads;
    let created = ruleset
        .create()?
        .add_rules(ports.iter().map(connects))?
        .add_rules(path_beneath_rules(readable, reads))?
        .add_rules(path_beneath_rules(sockets, makes))?
        .add_rules(path_beneath_rules(writable, writes))?;
    let status = created.restrict_self()?;
    Ok(match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, LandlockStatus::NotImplemented) => Part::Off(
            "this kernel has none (it takes Linux 5.13, and CONFIG_SECURITY_LANDLOCK)".to_string(),
        ),
        (RulesetStatus::NotEnforced, _) => Part::Off(
            "this kernel has it, but it is not turned on (boot parameter lsm=landlock,...)"
                .to_string(),
        ),
        (
            _,
            LandlockStatus::Available {
                effective_abi,
                kernel_abi,
            },
        ) => {
            let abi = kernel_abi.unwrap_or(effective_abi as i32);
            Part::On(format!("on (ABI {abi})"))
        }
        (_, _) => Part::On("on".to_string()),
    })
}

/// What the main thread reads, and those that come from it.
fn main_reads(paths: &Paths) -> Vec<PathBuf> {
    if paths.may_change {
        return vec![PathBuf::from("/")];
    }
    let loaded = paths.loaded.iter().flat_map(|path| directories(path));
    loaded.chain(paths.roots.iter().cloned()).collect()
}

/// The directory in which a file is named, and the one in which it is: certificates are often symbolic links.
fn directories(path: &Path) -> Vec<PathBuf> {
    let named = parent(path);
    let found = path.canonicalize().ok();
    let real = found.as_deref().map(parent);
    [Some(named), real].into_iter().flatten().collect()
}

/// Where the log is opened. It may be a terminal or a pipe, whose directory is not to be written.
fn log_places(log: Option<&Path>) -> Vec<PathBuf> {
    let Some(path) = log else {
        return Vec::new();
    };
    match path.metadata() {
        // What a pipe without a name leads to is always open to who has it.
        Ok(status) if !status.is_file() => path.canonicalize().into_iter().collect(),
        _ => directories(path),
    }
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests;
