// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a process belongs: its container, its unit, or else its control group.

use super::containers::container_of;
use super::process::Candidate;

/// The container or unit of a process, or the path of its control group. `None`: it is in no group but the root, or
/// has ended.
pub fn place_of(pid: u32) -> Option<String> {
    let groups = Candidate::look_at(pid)?.groups();
    container_of(groups.iter().map(|(_, path)| path.as_str())).or_else(|| by_unit(&groups))
}

/// The number of a process in its own PID namespace, if that is another one than ours.
pub fn inner_pid(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    innermost(&status).filter(|inner| *inner != pid)
}

/// The last number of `NSpid:`.
fn innermost(status: &str) -> Option<u32> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().next_back()?.parse().ok()
}

fn by_unit(groups: &[(u32, String)]) -> Option<String> {
    let units = groups.iter().filter_map(|(_, path)| unit_in(path));
    let paths = groups.iter().map(|(_, path)| path.as_str());
    let other = paths
        .filter(|path| *path != "/")
        .max_by_key(|path| path.len());
    units
        .max_by_key(|unit| unit.len())
        .or(other)
        .map(str::to_string)
}

/// The innermost unit of a group's path.
fn unit_in(path: &str) -> Option<&str> {
    let is_unit = |name: &&str| {
        [".service", ".scope", ".socket", ".mount"]
            .iter()
            .any(|kind| name.ends_with(kind))
    };
    path.rsplit('/').find(is_unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_has_its_own_numbers() {
        assert_eq!(innermost("Name:\tsh\nNSpid:\t4711\t12\t1\nx: 3\n"), Some(1));
        assert_eq!(innermost("Pid:\t4711\n"), None);
        assert_eq!(inner_pid(std::process::id()), None);
    }

    #[test]
    fn the_innermost_unit_counts() {
        let groups = |path: &str| vec![(4, "/".to_string()), (0, path.to_string())];
        let unit = |path: &str| by_unit(&groups(path));
        assert_eq!(
            unit("/system.slice/nginx.service").as_deref(),
            Some("nginx.service")
        );
        assert_eq!(
            unit("/user.slice/user-1.slice/user@1.service/app.slice/a.scope/b").as_deref(),
            Some("a.scope")
        );
        assert_eq!(unit("/mine/own").as_deref(), Some("/mine/own"));
        assert_eq!(unit("/"), None);
    }
}
