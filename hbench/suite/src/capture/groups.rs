// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of the control groups that this process is in, of version 1 and 2.

use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, Default, PartialEq)]
pub struct Limits {
    pub quota_cpus: Option<f64>,
    pub quota_period_ns: Option<u64>,
    pub memory_bytes: Option<u64>,
}

pub fn limits() -> Limits {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut limits = Limits::default();
    for directory in directories(&own, &mounts) {
        narrow(&mut limits, &directory);
    }
    limits
}

/// The directories of the process's groups, and of those above them. In a container the mount shows only a part of
/// the hierarchy; what of the path lies outside of it does not exist.
fn directories(own: &str, mounts: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in mounts.lines() {
        let Some((before, after)) = line.split_once(" - ") else {
            continue;
        };
        let before: Vec<&str> = before.split(' ').collect();
        let mut after = after.split(' ');
        let (Some(root), Some(point), Some(kind)) = (before.get(3), before.get(4), after.next())
        else {
            continue;
        };
        let options = after.nth(1).unwrap_or_default();
        let path = own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let has = |name: &str| {
                controllers.split(',').any(|own| own == name)
                    && options.split(',').any(|own| own == name)
            };
            let is_own = match kind {
                "cgroup2" => controllers.is_empty(),
                "cgroup" => has("cpu") || has("memory"),
                _ => false,
            };
            is_own.then_some(path)
        });
        let Some(path) = path else { continue };
        let below = path
            .strip_prefix(root)
            .unwrap_or(path)
            .trim_start_matches('/');
        let point = Path::new(point);
        let all = Path::new(below).ancestors().map(|part| point.join(part));
        found.extend(all);
    }
    found
}

fn narrow(limits: &mut Limits, directory: &Path) {
    let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<f64>().ok();
    let of_two = read("cpu.max").and_then(|line| {
        let (quota, period) = line.trim().split_once(' ')?;
        Some((quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?))
    });
    let of_one = || Some((number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?));
    if let Some((quota, period)) = of_two.or_else(of_one) {
        if quota > 0.0 && period > 0.0 {
            let cpus = quota / period;
            if limits.quota_cpus.is_none_or(|other| cpus < other) {
                limits.quota_cpus = Some(cpus);
                limits.quota_period_ns = Some((period * 1000.0) as u64);
            }
        }
    }
    let memory = number("memory.max").or_else(|| number("memory.limit_in_bytes"));
    // Version 1 has no word for "no limit", but a number near 2^63.
    if let Some(bytes) = memory.filter(|bytes| *bytes < 2f64.powi(60)) {
        let bytes = bytes as u64;
        limits.memory_bytes = Some(limits.memory_bytes.map_or(bytes, |other| other.min(bytes)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_both_versions_are_found() {
        let own = "4:memory:/a\n1:cpu,cpuacct:/b/c\n0::/d\n";
        let mounts = "30 1 0:1 / /cg/unified rw shared:1 - cgroup2 cgroup2 rw\n\
            31 1 0:2 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
            32 1 0:3 /a /cg/memory rw - cgroup cgroup rw,memory\n\
            33 1 0:4 / /cg/pids rw - cgroup cgroup rw,pids\n33 no mount\n";
        let found = directories(own, mounts);
        let found: Vec<_> = found.iter().map(|path| path.to_string_lossy()).collect();
        assert_eq!(
            found,
            [
                "/cg/unified/d",
                "/cg/unified/",
                "/cg/cpu/b/c",
                "/cg/cpu/b",
                "/cg/cpu/",
                "/cg/memory/"
            ]
        );
    }

    #[test]
    fn the_narrowest_limit_counts() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            fs::write(directory.path().join(name), text).expect("room");
        };
        let mut limits = Limits {
            quota_cpus: Some(0.75),
            ..Limits::default()
        };
        write("cpu.max", "max 100000\n");
        write("memory.limit_in_bytes", "9223372036854771712\n");
        narrow(&mut limits, directory.path());
        assert_eq!((limits.quota_cpus, limits.memory_bytes), (Some(0.75), None));
        write("cpu.max", "50000 100000\n");
        write("memory.max", "1048576\n");
        narrow(&mut limits, directory.path());
        assert_eq!(
            (limits.quota_cpus, limits.memory_bytes),
            (Some(0.5), Some(1 << 20))
        );
        assert_eq!(limits.quota_period_ns, Some(100_000_000));
    }
}
