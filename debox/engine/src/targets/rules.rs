// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a target means on this machine now: rules that say whether a process is a member.

use std::path::Path;

use anyhow::{bail, Result};
use nix::unistd::{Uid, User};

use super::containers::{self, Meant};
use super::groups::{by_path, hierarchies, Group};
use super::process::{all, Candidate};
use super::spared::is_spared;
use super::Target;
use crate::kernel;

/// Names of processes are no longer than this, in bytes.
const COMM_LENGTH: usize = 15;

/// How a member is recognized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rule {
    Comm(String),
    User(u32),
    Group(Group),
    Any,
}

impl Rule {
    pub fn fits(&self, candidate: &Candidate) -> bool {
        match self {
            Rule::Comm(comm) => candidate.comm == *comm,
            Rule::User(user) => candidate.user() == Some(*user),
            Rule::Group(group) => group.holds(&candidate.groups()),
            Rule::Any => true,
        }
    }
}

/// The rules for a target. There are none for a process that is named by its id. Fails if the target names nothing
/// that exists.
pub(super) fn rules(target: &Target) -> Result<Vec<Rule>> {
    Ok(match target {
        Target::Process(_) => Vec::new(),
        Target::Comm(name) => vec![Rule::Comm(cut(name).to_string())],
        Target::User(user) => vec![Rule::User(user_id(user)?)],
        Target::Cgroup(path) => vec![Rule::Group(by_path(path, &hierarchies()?)?)],
        Target::Unit(name) => of_unit(name)?,
        Target::Container(name) => of_container(name)?,
        Target::All if kernel::may_load_probes() => vec![Rule::Any],
        // A broker shows no others.
        Target::All => vec![Rule::User(Uid::effective().as_raw())],
    })
}

/// What to say if no process fits.
pub(super) fn nothing_fits(target: &Target) -> String {
    match target {
        Target::Process(pid) => format!("there is no process {pid}"),
        Target::Comm(name) => {
            let mut text = format!(
                "no process is named `{}` (`ps -e -o pid,comm` lists the names)",
                cut(name)
            );
            if name.len() > COMM_LENGTH {
                text.push_str("; the kernel keeps the first 15 bytes of a name");
            }
            text
        }
        Target::User(user) => format!("no process runs as user {user}"),
        Target::Cgroup(path) => format!("no process is in the control group {}", path.display()),
        Target::Unit(name) => format!("no process belongs to the unit {name}: it does not run"),
        Target::Container(name) => format!("no process is in the container {name}"),
        Target::All if kernel::may_load_probes() => {
            "no process can be seen: is /proc mounted with hidepid?".to_string()
        }
        Target::All => "no other process of this user can be seen".to_string(),
    }
}

fn cut(name: &str) -> &str {
    let mut length = name.len().min(COMM_LENGTH);
    while !name.is_char_boundary(length) {
        length -= 1;
    }
    &name[..length]
}

fn user_id(user: &str) -> Result<u32> {
    if let Ok(number) = user.parse() {
        return Ok(number);
    }
    match User::from_name(user) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        _ => bail!("there is no user {user}"),
    }
}

fn of_unit(name: &str) -> Result<Vec<Rule>> {
    const KINDS: [&str; 6] = [".service", ".scope", ".slice", ".socket", ".mount", ".swap"];
    let has_kind = KINDS.iter().any(|kind| name.ends_with(kind));
    let unit = if has_kind {
        name.to_string()
    } else {
        format!("{name}.service")
    };
    let found = first_groups(&|component| component == unit)?;
    if found.is_empty() {
        bail!("the unit {unit} does not run: no control group has its name (`systemctl status {unit}` says more)");
    }
    // Users and containers may have units of the same name; those of the system are meant.
    let (of_system, others): (Vec<Group>, Vec<Group>) =
        found.into_iter().partition(|group| is_systems(&group.path));
    let found = match of_system.is_empty() {
        true => others,
        false => of_system,
    };
    Ok(found.into_iter().map(Rule::Group).collect())
}

/// Whether the system's own manager made a group, and not that of a user or within a container.
fn is_systems(path: &str) -> bool {
    path.split('/')
        .all(|component| !component.starts_with("user@") && containers::id_in(component).is_none())
}

fn of_container(name: &str) -> Result<Vec<Rule>> {
    let meant = Meant::by(name, Path::new("/"));
    let fits = |component: &str| containers::id_in(component).is_some_and(|id| meant.is(&id));
    let found = first_groups(&fits)?;
    let id = |group: &Group| group.path.rsplit('/').next().and_then(containers::id_in);
    let mut ids: Vec<String> = found.iter().filter_map(id).collect();
    ids.sort();
    ids.dedup();
    if ids.is_empty() {
        bail!(
            "no running container or pod is {name}: give at least 4 digits of its id; names are known from the files \
             of Docker, Podman, nerdctl and Kubernetes in /var/lib and /var/log, which only root can read"
        );
    }
    meant.require_one(&ids)?;
    Ok(found.into_iter().map(Rule::Group).collect())
}

/// The groups whose names fit, in the first hierarchy that has processes in such groups.
fn first_groups(fits: &dyn Fn(&str) -> bool) -> Result<Vec<Group>> {
    let mut first = Vec::new();
    for hierarchy in hierarchies()? {
        let found = hierarchy.search(fits)?;
        let is_used = |group: &Group| any_member(&Rule::Group(group.clone()));
        if found.iter().any(is_used) {
            return Ok(found);
        }
        if first.is_empty() {
            first = found;
        }
    }
    Ok(first)
}

fn any_member(rule: &Rule) -> bool {
    let candidates = all().filter_map(Candidate::look_at);
    candidates
        .filter(|candidate| !is_spared(candidate.pid))
        .any(|candidate| rule.fits(&candidate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_as_the_kernel_cuts_them() {
        assert_eq!(cut("0123456789abcdefgh"), "0123456789abcde");
        assert_eq!(cut("0123456789abcdé"), "0123456789abcd");
        assert_eq!(cut("nginx"), "nginx");
    }

    #[test]
    fn the_systems_units_come_first() {
        assert!(is_systems("/system.slice/dbus.service"));
        assert!(is_systems("/user.slice/user-1000.slice/session-2.scope"));
        let of_user = "/user.slice/user-1000.slice/user@1000.service/app.slice/dbus.service";
        assert!(!is_systems(of_user));
        assert!(!is_systems(
            "/machine.slice/machine-web.scope/payload/system.slice/dbus.service"
        ));
    }

    #[test]
    fn users_have_names_and_numbers() {
        assert_eq!(user_id("root").unwrap(), 0);
        assert_eq!(user_id("4711").unwrap(), 4711);
        let error = user_id("no-such-user").unwrap_err().to_string();
        assert_eq!(error, "there is no user no-such-user");
    }

    #[test]
    fn targets_that_name_nothing_are_errors() {
        let error = |target| format!("{:#}", rules(&target).unwrap_err());
        assert!(error(Target::Unit("no-such-unit".into()))
            .contains("no-such-unit.service does not run"));
        assert!(
            error(Target::Cgroup("/no/such/group".into())).contains("there is no control group")
        );
        assert!(error(Target::Container("ffff00001111".into())).contains("no running container"));
    }
}
