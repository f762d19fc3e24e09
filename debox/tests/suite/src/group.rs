// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control groups of the tests' own, of either version, removed when they are dropped.

use std::fs;
use std::io;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::{require_root, wait_for};

const TOP: &str = "/sys/fs/cgroup";

/// What a group's processes may use together.
#[derive(Debug, Clone, Copy)]
pub enum Limit<'a> {
    /// 20 ms of CPU time in each 100.
    Cpu,
    /// Bytes of memory, the page cache's included.
    Memory(u64),
    /// Bytes written in a second to the disk with this directory.
    Writes(&'a Path, u64),
    /// Requests in a second that read from the disk with this directory. Without it, what is not in memory may be
    /// there before its reader has gone to sleep: some disks of virtual machines answer at once.
    Reads(&'a Path, u64),
}

/// A control group with one limit.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
    /// Where the group's controller had to be allowed first, and its name.
    allowed_in: Option<(PathBuf, &'static str)>,
}

impl Group {
    /// An empty group, or why there can be none here.
    pub fn new(limit: Limit) -> Result<Group, String> {
        require_root();
        Group::make(limit).map_err(|error| format!("no control group with {limit:?}: {error}"))
    }

    fn make(limit: Limit) -> io::Result<Group> {
        static NEXT: AtomicU32 = AtomicU32::new(0);

        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("debox-test-{}-{number}", std::process::id());
        let (old, new) = match limit {
            Limit::Cpu => ("cpu", "cpu"),
            Limit::Memory(_) => ("memory", "memory"),
            Limit::Writes(..) | Limit::Reads(..) => ("blkio", "io"),
        };
        let place = Path::new(TOP).join(old);
        if place.is_dir() {
            let path = place.join(&name);
            fs::create_dir(&path)?;
            let group = Group {
                path,
                allowed_in: None,
            };
            let (file, value) = match limit {
                Limit::Cpu => ("cpu.cfs_quota_us", "20000".to_string()),
                Limit::Memory(bytes) => ("memory.limit_in_bytes", bytes.to_string()),
                Limit::Writes(place, rate) => (
                    "blkio.throttle.write_bps_device",
                    format!("{} {rate}", disk_of(place)?),
                ),
                Limit::Reads(place, rate) => (
                    "blkio.throttle.read_iops_device",
                    format!("{} {rate}", disk_of(place)?),
                ),
            };
            fs::write(group.path.join(file), value)?;
            return Ok(group);
        }
        let allow = Path::new(TOP).join("cgroup.subtree_control");
        let allowed = fs::read_to_string(&allow)?;
        let is_allowed = allowed.split_whitespace().any(|name| name == new);
        if !is_allowed {
            fs::write(&allow, format!("+{new}"))?;
        }
        let path = Path::new(TOP).join(&name);
        fs::create_dir(&path)?;
        let allowed_in = (!is_allowed).then_some((allow, new));
        let group = Group { path, allowed_in };
        let (file, value) = match limit {
            Limit::Cpu => ("cpu.max", "20000 100000".to_string()),
            Limit::Memory(bytes) => ("memory.max", bytes.to_string()),
            Limit::Writes(place, rate) => ("io.max", format!("{} wbps={rate}", disk_of(place)?)),
            Limit::Reads(place, rate) => ("io.max", format!("{} riops={rate}", disk_of(place)?)),
        };
        fs::write(group.path.join(file), value)?;
        Ok(group)
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A shell's command that goes into the group and then becomes the command of its arguments.
    pub fn enter(&self) -> String {
        format!(
            "echo $$ >{}/cgroup.procs && exec \"$@\"",
            self.path.display()
        )
    }

    /// Of a limit of the CPU: what the kernel says that it kept the group from it.
    pub fn throttled_ns(&self) -> u64 {
        let stat = fs::read_to_string(self.path.join("cpu.stat")).expect("the group");
        let value = |name: &str| {
            let line = stat.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim().parse::<u64>().ok())
        };
        let usec = value("throttled_usec ").map(|usec| usec * 1000);
        usec.or(value("throttled_time ")).expect("it is told")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let gone = wait_for(Duration::from_secs(5), || {
            fs::remove_dir(&self.path).is_ok()
        });
        if let (true, Some((allow, name))) = (gone, &self.allowed_in) {
            let _ = fs::write(allow, format!("-{name}"));
        }
    }
}

/// `MAJOR:MINOR` of the whole disk with this directory: limits are of disks and not of their partitions.
fn disk_of(place: &Path) -> io::Result<String> {
    let device = fs::metadata(place)?.st_dev();
    let numbers = format!("{}:{}", libc::major(device), libc::minor(device));
    let entry = fs::canonicalize(Path::new("/sys/dev/block").join(&numbers))?;
    match (entry.join("partition").exists(), entry.parent()) {
        (true, Some(disk)) => Ok(fs::read_to_string(disk.join("dev"))?.trim().to_string()),
        _ => Ok(numbers),
    }
}
