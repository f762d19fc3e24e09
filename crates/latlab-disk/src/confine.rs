// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server's share of the machine: control groups of version 1 or 2, whichever the machine has.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

/// The period of a CPU quota. Short, so that a server is slow rather than stopped now and then.
const PERIOD_US: u64 = 10_000;

/// Groups of our own, one for each controller (version 1) or one for all (version 2). They go when it is
/// dropped.
#[derive(Debug)]
pub struct Confinement {
    groups: Vec<PathBuf>,
    memory: Option<Memory>,
}

#[derive(Debug)]
struct Memory {
    group: PathBuf,
    is_v2: bool,
}

impl Confinement {
    /// `memory`: bytes, page cache included. `cpus`: of a processor's time; 0.5 is half of one.
    pub fn new(name: &str, memory: Option<u64>, cpus: Option<f64>) -> Result<Confinement> {
        let mut confinement = Confinement {
            groups: Vec::new(),
            memory: None,
        };
        if let Some(bytes) = memory {
            let (group, is_v2) = confinement.group("memory", name)?;
            let file = if is_v2 {
                "memory.max"
            } else {
                "memory.limit_in_bytes"
            };
            write(&group.join(file), &bytes.to_string())?;
            confinement.memory = Some(Memory { group, is_v2 });
        }
        if let Some(cpus) = cpus {
            if !cpus.is_finite() || cpus < 0.01 {
                bail!("a share of {cpus} processors is too small: 0.01 at least");
            }
            let (group, is_v2) = confinement.group("cpu", name)?;
            let quota = (cpus * PERIOD_US as f64) as u64;
            if is_v2 {
                write(&group.join("cpu.max"), &format!("{quota} {PERIOD_US}"))?;
            } else {
                write(&group.join("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
                write(&group.join("cpu.cfs_quota_us"), &quota.to_string())?;
            }
        }
        Ok(confinement)
    }

    /// The group for a controller, made if it is not there.
    fn group(&mut self, controller: &str, name: &str) -> Result<(PathBuf, bool)> {
        let mounts =
            fs::read_to_string("/proc/self/mounts").context("cannot see what is mounted")?;
        let (top, is_v2) = hierarchy(&mounts, controller).with_context(|| {
            format!(
                "no control groups for {controller} are mounted: the server cannot be confined \
                 (mount -t cgroup2 none /sys/fs/cgroup)"
            )
        })?;
        if is_v2 {
            // Fails where it is on already in some kernels; what is missing shows when it is used.
            let _ = fs::write(top.join("cgroup.subtree_control"), format!("+{controller}"));
        }
        let group = top.join(format!("latlab-{name}"));
        if !self.groups.contains(&group) {
            fs::create_dir_all(&group)
                .with_context(|| format!("cannot make the group {}", group.display()))?;
            self.groups.push(group.clone());
        }
        Ok((group, is_v2))
    }

    /// A process and its threads, and its children from here on.
    pub fn add(&self, pid: u32) -> Result<()> {
        for group in &self.groups {
            write(&group.join("cgroup.procs"), &pid.to_string())?;
        }
        Ok(())
    }

    /// Files to which a process writes `0` to join.
    pub fn entrances(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.groups.iter().map(|group| group.join("cgroup.procs"))
    }

    /// Bytes in use, page cache included.
    pub fn memory_used(&self) -> Option<u64> {
        let memory = self.memory.as_ref()?;
        let file = if memory.is_v2 {
            "memory.current"
        } else {
            "memory.usage_in_bytes"
        };
        let text = fs::read_to_string(memory.group.join(file)).ok()?;
        text.trim().parse().ok()
    }

    /// Ends what still runs there and removes the groups.
    pub fn remove(mut self) -> Result<()> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<()> {
        let begin = Instant::now();
        while let Some(group) = self.groups.last().cloned() {
            for pid in fs::read_to_string(group.join("cgroup.procs"))
                .unwrap_or_default()
                .lines()
                .filter_map(|line| line.parse::<i32>().ok())
                .filter(|pid| *pid > 0)
            {
                // SAFETY: numbers only; what is in our own group was put there.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            match fs::remove_dir(&group) {
                Ok(()) => drop(self.groups.pop()),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    self.groups.pop();
                }
                Err(error) if begin.elapsed() > Duration::from_secs(5) => {
                    self.groups.clear();
                    return Err(error)
                        .with_context(|| format!("cannot remove the group {}", group.display()));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        Ok(())
    }
}

impl Drop for Confinement {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            eprintln!("latlab: {error:#}");
        }
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {text} to {}", path.display()))
}

/// Where a controller's groups are, and whether that is version 2.
fn hierarchy(mounts: &str, controller: &str) -> Option<(PathBuf, bool)> {
    let fields = || {
        mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
    };
    let first = fields().find(|fields| {
        fields.len() > 3
            && fields[2] == "cgroup"
            && fields[3].split(',').any(|one| one == controller)
    });
    if let Some(fields) = first {
        return Some((PathBuf::from(fields[1]), false));
    }
    let second = fields().find(|fields| fields.len() > 2 && fields[2] == "cgroup2")?;
    Some((PathBuf::from(second[1]), true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_goes_first_where_it_has_the_controller() {
        let mounts = "cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let memory = Some((PathBuf::from("/sys/fs/cgroup/memory"), false));
        assert_eq!(hierarchy(mounts, "memory"), memory);
        let cpu = Some((PathBuf::from("/sys/fs/cgroup/unified"), true));
        assert_eq!(hierarchy(mounts, "cpu"), cpu);
        assert_eq!(hierarchy("", "cpu"), None);
    }
}
