// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each thread may still do when it has started: which files it reaches (Landlock), and which system calls it can
//! make (seccomp). A client that takes over a loop by a bug gets no more than the loop itself needs.
//!
//! Threads have different tasks, so each has its own limits. A thread inherits those of the thread that starts it, so
//! only the first helper of a pool sets them, and what the main thread may not do no thread may.

mod calls;
mod force;
mod roles;

use std::path::{Path, PathBuf};

use landlock::{
    path_beneath_rules, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, NetPort, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, ABI,
};

pub use force::{Part, Status};
pub use roles::{Paths, Reach, Role};

/// Limits the calling thread, and those that it starts. There is no way back.
pub fn enter(role: Role, paths: &Paths) -> Status {
    // Whatever is executed later gets no rights by its file.
    let _ = rustix::thread::set_no_new_privs(true);
    let landlock = restrict_files(role, paths).unwrap_or_else(|error| Part::Off(error.to_string()));
    let seccomp = calls::restrict(role, paths).unwrap_or_else(|error| {
        // The other part of the sandbox tells whether Landlock is there.
        let _ = forbid_truncation();
        Part::Off(format!(
            "this kernel or container does not allow it: {error}"
        ))
    });
    Status { landlock, seccomp }
}

/// Where seccomp cannot.
fn forbid_truncation() -> Result<(), RulesetError> {
    let ruleset = Ruleset::default().handle_access(AccessFs::Truncate)?;
    ruleset.create()?.restrict_self().map(drop)
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
    // Whether a file may be truncated is looked for at each open, also one for reading, and as no rule allows it, up to
    // the root of the file system: a twentieth of a request's time. seccomp forbids it for nothing.
    let handled = AccessFs::from_all(ABI::V5) & !BitFlags::from(AccessFs::Truncate);
    let mut ruleset = Ruleset::default().handle_access(handled)?;
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
    // The loops' opens are checked by these rules, too, from the file upwards, until one allows them: a rule for each
    // root makes that short.
    let roots = paths.roots.iter().cloned();
    if paths.may_change {
        return std::iter::once(PathBuf::from("/")).chain(roots).collect();
    }
    let loaded = paths.loaded.iter().flat_map(|path| directories(path));
    loaded.chain(roots).collect()
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
