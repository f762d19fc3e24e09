//! A control group for a server, which limits its CPU time, and its memory including page cache. Dropping
//! the value removes it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{bail, ensure, Context, Result};

use crate::{leftover, sys};

const ROOT: &str = "/sys/fs/cgroup";
/// The scheduler's quota is renewed in each period. The default is 100 ms, in which a throttled server
/// stops for tens of milliseconds.
const PERIOD_US: f64 = 10_000.0;

/// What a server may use.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limits {
    /// CPUs, such as 0.5.
    pub cpus: Option<f64>,
    /// Bytes, page cache included.
    pub memory: Option<u64>,
}

impl Limits {
    pub fn any(&self) -> bool {
        self.cpus.is_some() || self.memory.is_some()
    }
}

/// Prefix of all groups' names; the number of the process that made them follows.
const PREFIX: &str = "latlab-";

/// Control groups of a server. In version 1, each controller has its own hierarchy.
pub struct Group {
    directories: Vec<PathBuf>,
    /// Locks on the directories. A directory without a lock was left by a killed latlab.
    locks: Vec<File>,
}

impl Group {
    /// Makes a group of this process. `name` distinguishes it from this process's other groups.
    pub fn new(name: &str, limits: Limits) -> Result<Group> {
        let mut group = Group::none();
        if limits.any() {
            leftover::say(&remove_left());
            let name = &format!("{PREFIX}{}-{name}", std::process::id());
            // After an error, dropping the value removes what was made so far.
            group.make(name, limits).context(
                "cannot confine the server: that takes root and the control groups cpu and memory",
            )?;
        }
        Ok(group)
    }

    /// No group: no limits.
    pub fn none() -> Group {
        Group {
            directories: Vec::new(),
            locks: Vec::new(),
        }
    }

    fn make(&mut self, name: &str, limits: Limits) -> Result<()> {
        let root = Path::new(ROOT);
        let quota_us = |cpus: f64| ((cpus * PERIOD_US) as u64).max(1_000).to_string();
        let period = (PERIOD_US as u64).to_string();
        let controllers = fs::read_to_string(root.join("cgroup.controllers"));
        if let Ok(controllers) = controllers {
            for (controller, wanted) in [
                ("cpu", limits.cpus.is_some()),
                ("memory", limits.memory.is_some()),
            ] {
                let there = controllers
                    .split_whitespace()
                    .any(|name| name == controller);
                ensure!(there || !wanted, "there is no controller {controller}");
                if wanted {
                    write(
                        &root.join("cgroup.subtree_control"),
                        &format!("+{controller}"),
                    )?;
                }
            }
            let directory = self.make_directory(root.join(name))?;
            if let Some(cpus) = limits.cpus {
                write(
                    &directory.join("cpu.max"),
                    &format!("{} {period}", quota_us(cpus)),
                )?;
            }
            if let Some(memory) = limits.memory {
                write(&directory.join("memory.max"), &memory.to_string())?;
            }
            return Ok(());
        }
        if let Some(cpus) = limits.cpus {
            let directory = self.make_directory(root.join("cpu").join(name))?;
            write(&directory.join("cpu.cfs_period_us"), &period)?;
            write(&directory.join("cpu.cfs_quota_us"), &quota_us(cpus))?;
        }
        if let Some(memory) = limits.memory {
            let directory = self.make_directory(root.join("memory").join(name))?;
            write(
                &directory.join("memory.limit_in_bytes"),
                &memory.to_string(),
            )?;
        }
        Ok(())
    }

    fn make_directory(&mut self, directory: PathBuf) -> Result<PathBuf> {
        fs::create_dir(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        self.directories.push(directory.clone());
        let lock = File::open(&directory)?;
        let _ = lock.try_lock();
        self.locks.push(lock);
        Ok(directory)
    }

    /// Files in which the kernel counts processes that it killed for lack of memory.
    pub fn memory_counts(&self) -> Vec<PathBuf> {
        let names = ["memory.events", "memory.oom_control"];
        let files = self
            .directories
            .iter()
            .flat_map(|directory| names.map(|name| directory.join(name)));
        files.filter(|file| file.exists()).collect()
    }

    /// Files to which a process writes its number to join the group.
    pub fn entrances(&self) -> Vec<PathBuf> {
        let entrance = |directory: &PathBuf| directory.join("cgroup.procs");
        self.directories.iter().map(entrance).collect()
    }

    /// Whether the group has no processes.
    pub fn is_empty(&self) -> bool {
        self.entrances()
            .iter()
            .all(|procs| fs::read_to_string(procs).map_or(true, |text| text.trim().is_empty()))
    }

    /// Kills all processes in the group.
    pub fn kill(&self) {
        for pid in self.pids() {
            sys::signal(pid, libc::SIGKILL);
        }
    }

    /// All processes in the group.
    pub fn pids(&self) -> Vec<u32> {
        let texts = self
            .entrances()
            .into_iter()
            .filter_map(|procs| fs::read_to_string(procs).ok());
        let mut pids: Vec<u32> = texts
            .flat_map(|text| {
                text.lines()
                    .filter_map(|line| line.parse().ok())
                    .collect::<Vec<_>>()
            })
            .collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Removes the group, which must not have any processes.
    pub fn remove(&mut self) -> Result<()> {
        for directory in std::mem::take(&mut self.directories) {
            // The kernel releases the last process shortly after it has ended.
            for attempt in 0.. {
                match fs::remove_dir(&directory) {
                    Ok(()) => break,
                    Err(_) if attempt < 100 => std::thread::sleep(Duration::from_millis(20)),
                    Err(error) => bail!("cannot remove {}: {error}", directory.display()),
                }
            }
        }
        Ok(())
    }
}

/// The number of processes that such a file counts.
pub fn killed_for_memory(counts: &Path) -> u64 {
    let text = fs::read_to_string(counts).unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count
        .and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}

/// Removes the groups of killed latlabs, and kills the servers that still run in them. Returns sentences
/// about what was done.
pub fn remove_left() -> Vec<String> {
    let mut said = Vec::new();
    for tree in ["", "cpu", "memory"] {
        let place = Path::new(ROOT).join(tree);
        for directory in leftover::abandoned(&place, &[PREFIX], Path::to_path_buf) {
            let mut group = Group::none();
            group.directories.push(directory.clone());
            let pids = group.pids();
            group.kill();
            let ended = match pids.len() {
                0 => String::new(),
                count => format!(", and ended {count} processes in it"),
            };
            match group.remove() {
                Ok(()) => said.push(format!(
                    "removed {}, which a killed latlab had left{ended}",
                    directory.display()
                )),
                Err(error) => said.push(format!("a killed latlab has left it: {error:#}")),
            }
        }
    }
    said
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            kit_console::say_error("latlab", &format!("{error:#}"));
        }
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {text} to {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// CPU time of a process in ticks of 10 ms.
    fn ticks(pid: u32) -> u64 {
        let stat = kit_proc::stat(pid).unwrap();
        stat.utime + stat.stime
    }

    #[test]
    fn a_busy_process_gets_no_more_than_its_share() {
        let limits = Limits {
            cpus: Some(0.1),
            memory: Some(64 << 20),
        };
        let Ok(mut group) = Group::new("test", limits) else {
            debox_skipped::skipped("a_busy_process_gets_no_more_than_its_share: no control groups");
            return;
        };
        let entrances = group.entrances();
        let entrances: String = entrances
            .iter()
            .map(|path| format!("echo $$ >'{}'; ", path.display()))
            .collect();
        let mut busy = Command::new("/bin/sh")
            .args(["-c", &format!("{entrances} echo in; while :; do :; done")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 2];
        std::io::Read::read_exact(busy.stdout.as_mut().unwrap(), &mut said).unwrap();
        let before = ticks(busy.id());
        std::thread::sleep(Duration::from_secs(2));
        let had = ticks(busy.id()) - before;
        assert_eq!(group.pids(), [busy.id()]);
        busy.kill().unwrap();
        busy.wait().unwrap();
        // A tenth of two seconds, plus what is granted in advance.
        assert!(had <= 45, "{had} ticks");
        let places = group.entrances();
        group.remove().unwrap();
        assert!(places.iter().all(|place| !place.exists()));
    }
}
