// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hierarchies of control groups that are mounted, of both versions, and the groups in them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use procfs::process::Process;

/// The most directories that are looked at in a search.
const MOST_DIRECTORIES: usize = 200_000;

/// A hierarchy, where it is mounted.
#[derive(Debug, Clone)]
pub(super) struct Hierarchy {
    /// As in `/proc/PID/cgroup`; 0: version 2.
    number: u32,
    /// The group that the mount shows.
    root: String,
    mount: PathBuf,
}

/// A group, with all groups below it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Group {
    hierarchy: u32,
    /// In its hierarchy.
    pub path: String,
    pub directory: PathBuf,
}

impl Group {
    /// Whether a process in these groups is in this one or below it.
    pub fn holds(&self, groups: &[(u32, String)]) -> bool {
        let own = groups
            .iter()
            .filter(|(number, _)| *number == self.hierarchy);
        own.map(|(_, path)| path.as_str())
            .any(|path| is_below(path, &self.path))
    }
}

fn is_below(path: &str, above: &str) -> bool {
    match path.strip_prefix(above.trim_end_matches('/')) {
        Some(rest) => rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

/// The hierarchies in the order in which a service's or container's group is looked for: version 2, systemd's own,
/// then the others.
pub(super) fn hierarchies() -> Result<Vec<Hierarchy>> {
    let own = Process::myself().context("/proc is not mounted")?;
    let mounts = own.mountinfo().context("cannot read the mounts")?;
    let known = own.cgroups().context("this kernel has no control groups")?;
    let mut found: Vec<(u8, Hierarchy)> = Vec::new();
    for group in &known {
        let controllers: Vec<&String> = group
            .controllers
            .iter()
            .filter(|name| !name.is_empty())
            .collect();
        let mount = mounts.0.iter().find(|mount| match group.hierarchy {
            0 => mount.fs_type == "cgroup2",
            _ => {
                mount.fs_type == "cgroup"
                    && controllers.iter().all(|name| {
                        let (name, value) = name.split_once('=').unwrap_or((name, ""));
                        let option = mount.super_options.get(name);
                        option.is_some_and(|is| is.as_deref().unwrap_or("") == value)
                    })
            }
        });
        let Some(mount) = mount else { continue };
        let rank = match group.hierarchy {
            0 => 0,
            _ if controllers.iter().any(|name| *name == "name=systemd") => 1,
            _ => 2,
        };
        let hierarchy = Hierarchy {
            number: group.hierarchy,
            root: mount.root.clone(),
            mount: mount.mount_point.clone(),
        };
        found.push((rank, hierarchy));
    }
    if found.is_empty() {
        bail!("no hierarchy of control groups is mounted, so processes cannot be found by their groups");
    }
    found.sort_by_key(|(rank, hierarchy)| (*rank, hierarchy.mount.clone()));
    Ok(found.into_iter().map(|(_, hierarchy)| hierarchy).collect())
}

impl Hierarchy {
    fn group(&self, directory: &Path) -> Option<Group> {
        let below = directory.strip_prefix(&self.mount).ok()?.to_str()?;
        let path = format!("{}/{below}", self.root.trim_end_matches('/'));
        Some(Group {
            hierarchy: self.number,
            path: match path.trim_end_matches('/') {
                "" => "/".to_string(),
                path => path.to_string(),
            },
            directory: directory.to_path_buf(),
        })
    }

    /// The highest groups whose names fit; groups below those are not looked at.
    pub fn search(&self, fits: &dyn Fn(&str) -> bool) -> Result<Vec<Group>> {
        let mut found = Vec::new();
        let mut open = vec![self.mount.clone()];
        let mut looked_at = 0;
        while let Some(directory) = open.pop() {
            looked_at += 1;
            if looked_at > MOST_DIRECTORIES {
                bail!("there are more than {MOST_DIRECTORIES} control groups: name one by its path (--cgroup)");
            }
            let Ok(entries) = fs::read_dir(&directory) else {
                continue; // it is gone, or not for this user
            };
            for entry in entries.flatten() {
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                let name = entry.file_name();
                if name.to_str().is_some_and(fits) {
                    found.extend(self.group(&entry.path()));
                } else {
                    open.push(entry.path());
                }
            }
        }
        found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }
}

/// The group of a directory, or of a path within a hierarchy, such as `/system.slice/nginx.service`.
pub(super) fn by_path(path: &Path, hierarchies: &[Hierarchy]) -> Result<Group> {
    let is_group = |directory: &Path| directory.join("cgroup.procs").exists();
    let mut places = vec![path.to_path_buf()];
    if let Ok(below) = path.strip_prefix("/") {
        places.extend(
            hierarchies
                .iter()
                .map(|hierarchy| hierarchy.mount.join(below)),
        );
    }
    let mut denied = None;
    for place in places {
        match fs::canonicalize(&place) {
            Ok(place) if is_group(&place) => {
                let group = hierarchies.iter().find_map(|one| one.group(&place));
                return group.with_context(|| {
                    format!(
                        "{} is in no hierarchy of control groups that is mounted here",
                        path.display()
                    )
                });
            }
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                denied = Some(error)
            }
            _ => {}
        }
    }
    let mounted: Vec<String> = hierarchies
        .iter()
        .map(|hierarchy| hierarchy.mount.display().to_string())
        .collect();
    match denied {
        Some(error) => Err(error)
            .with_context(|| format!("cannot look at the control group {}", path.display())),
        None => bail!(
            "there is no control group {}: looked at it as a directory, and below {}",
            path.display(),
            mounted.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_holds_those_below_it_and_no_others() {
        let group = Group {
            hierarchy: 1,
            path: "/a.slice/b.service".to_string(),
            directory: PathBuf::new(),
        };
        let within =
            |number: u32, path: &str| group.holds(&[(0, "/".into()), (number, path.into())]);
        assert!(within(1, "/a.slice/b.service"));
        assert!(within(1, "/a.slice/b.service/c"));
        assert!(!within(1, "/a.slice/b.service2"));
        assert!(!within(2, "/a.slice/b.service"), "another hierarchy");
        assert!(!within(1, "/a.slice"));
        let all = Group {
            path: "/".to_string(),
            ..group
        };
        assert!(all.holds(&[(1, "/".into())]) && all.holds(&[(1, "/x".into())]));
    }
}
