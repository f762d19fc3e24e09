//! How much memory the kernel lets the broker have: the limits of its control groups.

use std::fs;
use std::path::{Path, PathBuf};

use procfs::process::Process;
use procfs::{Current, Meminfo};

/// A control group with a limit on its memory, the broker's or one around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    directory: PathBuf,
    version: Version,
    pub limit: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Level {
    /// The memory in use, without what the kernel can drop at once.
    pub fn used(&self) -> Option<u64> {
        let (usage, droppable) = match self.version {
            Version::One => ("memory.usage_in_bytes", &["total_inactive_file"][..]),
            Version::Two => ("memory.current", &["inactive_file", "slab_reclaimable"][..]),
        };
        let used = number_in(&self.directory.join(usage))?;
        let text = fs::read_to_string(self.directory.join("memory.stat")).ok()?;
        let value = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            droppable
                .contains(&name)
                .then(|| value.trim().parse::<u64>().ok())?
        };
        let droppable: u64 = text.lines().filter_map(value).sum();
        Some(used.saturating_sub(droppable))
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the control group {}", self.directory.display())
    }
}

/// This process's control groups that have a limit, of both versions.
pub fn limited() -> Vec<Level> {
    let Ok(myself) = Process::myself() else {
        return Vec::new();
    };
    let (Ok(groups), Ok(mounts)) = (myself.cgroups(), myself.mountinfo()) else {
        return Vec::new();
    };
    let mut levels = Vec::new();
    for mount in mounts {
        let version = match mount.fs_type.as_str() {
            "cgroup2" => Version::Two,
            "cgroup" if mount.super_options.contains_key("memory") => Version::One,
            _ => continue,
        };
        let of_mount = (&groups).into_iter().find(|group| match version {
            Version::One => group.controllers.iter().any(|name| name == "memory"),
            Version::Two => group.hierarchy == 0,
        });
        if let Some(group) = of_mount {
            // In a cgroup namespace, and in a container, the mount begins further down.
            let below = Path::new(&group.pathname).strip_prefix(&mount.root);
            let below = below.unwrap_or(Path::new(""));
            levels.extend(levels_of(&mount.mount_point, below, version));
        }
    }
    levels
}

/// The groups from one up to the mount point.
fn levels_of(mount: &Path, below: &Path, version: Version) -> Vec<Level> {
    let files = match version {
        Version::One => &["memory.limit_in_bytes"][..],
        Version::Two => &["memory.max", "memory.high"][..],
    };
    // "No limit" is written as "max", or as more than any machine has.
    const NONE: u64 = 1 << 60;
    let below = below.strip_prefix("/").unwrap_or(below);
    let level = |below: &Path| {
        let directory = mount.join(below);
        let limits = files
            .iter()
            .filter_map(|file| number_in(&directory.join(file)));
        let limit = limits.min().filter(|limit| *limit < NONE)?;
        Some(Level {
            directory,
            version,
            limit,
        })
    };
    below.ancestors().filter_map(level).collect()
}

fn number_in(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The machine's memory, and how much of it is available.
pub fn of_machine() -> Option<(u64, u64)> {
    let info = Meminfo::current().ok()?;
    Some((info.mem_total, info.mem_available.unwrap_or(info.mem_free)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_around_count_too() {
        let mount = std::env::temp_dir().join(format!("debox-groups-{}", std::process::id()));
        let group = mount.join("system.slice/debox.service");
        fs::create_dir_all(&group).unwrap();
        let write = |file: &str, text: &str| fs::write(mount.join(file), text).unwrap();
        write("system.slice/debox.service/memory.max", "max\n");
        write("system.slice/debox.service/memory.high", "1000000\n");
        write("system.slice/memory.max", "700000\n");
        write("system.slice/memory.high", "max\n");
        write("system.slice/memory.current", "500000\n");
        write(
            "system.slice/memory.stat",
            "anon 300000\ninactive_file 120000\nslab_reclaimable 30000\n",
        );
        let below = Path::new("/system.slice/debox.service");
        let levels = levels_of(&mount, below, Version::Two);
        let limits: Vec<u64> = levels.iter().map(|level| level.limit).collect();
        assert_eq!(limits, [1_000_000, 700_000]);
        assert_eq!((levels[0].used(), levels[1].used()), (None, Some(350_000)));
        assert_eq!(levels_of(&mount, below, Version::One), []);
        write(
            "system.slice/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        write("memory.limit_in_bytes", "600000\n");
        let levels = levels_of(&mount, below, Version::One);
        assert_eq!((levels.len(), levels[0].limit), (1, 600_000));
        fs::remove_dir_all(&mount).unwrap();
    }

    #[test]
    fn this_machine_has_memory() {
        let (all, free) = of_machine().unwrap();
        assert!(free > 0 && free <= all);
        assert!(limited().iter().all(|level| level.limit > 0));
    }
}
