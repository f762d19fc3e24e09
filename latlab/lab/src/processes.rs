//! Identifies processes reliably, even after latlab was killed and process numbers may have been reused.
//!
//! A process is identified by its number together with its start time, within one boot and one namespace; or
//! by a mark in its environment, which its children inherit. Signals are sent through a pidfd that is opened
//! before the process is checked, so they cannot reach another process that got the same number.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use kit_proc::pidfd;
use serde::{Deserialize, Serialize};

/// The environment variable that holds the mark.
pub const MARK: &str = "LATLAB_SERVER";

/// One process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub pid: u32,
    /// When it was started, in the kernel's ticks since boot.
    pub started: u64,
}

/// Where numbers and start times of processes are valid: this boot, and this process's namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    boot: String,
    namespace: String,
}

impl Scope {
    /// `None` if /proc does not have it.
    pub fn own() -> Option<Scope> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
        Some(Scope {
            boot: boot.trim().to_string(),
            namespace: namespace.to_str()?.to_string(),
        })
    }
}

/// `None` if there is no such process, or it has ended.
pub fn identity(pid: u32) -> Option<Identity> {
    let started = kit_proc::running(pid)?.starttime;
    Some(Identity { pid, started })
}

/// The processes of a group.
pub fn members(group: u32) -> Vec<Identity> {
    let stats = kit_proc::pids().filter_map(|pid| Some((pid, kit_proc::running(pid)?)));
    let its = stats.filter(|(_, stat)| i64::from(stat.pgrp) == i64::from(group));
    its.map(|(pid, stat)| Identity {
        pid,
        started: stat.starttime,
    })
    .collect()
}

/// Whether a process was started with this mark.
fn is_marked(pid: u32, mark: &str) -> bool {
    let wanted = format!("{MARK}={mark}");
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment
        .split(|byte| *byte == 0)
        .any(|variable| variable == wanted.as_bytes())
}

/// A process held by a pidfd, which stays valid if its number is reused.
struct Held {
    pid: u32,
    descriptor: OwnedFd,
}

impl Held {
    /// Opens the process if `is_meant` holds, which is checked after opening.
    fn open(pid: u32, is_meant: impl FnOnce() -> bool) -> Option<Held> {
        let descriptor = pidfd::open(pid).ok()?;
        is_meant().then_some(Held { pid, descriptor })
    }

    fn kill(&self) {
        pidfd::kill(self.descriptor.as_fd());
    }

    /// Whether the process ends before `until`.
    fn ends(&self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        pidfd::ends_within(self.descriptor.as_fd(), left)
    }
}

/// Identifies the processes to end.
#[derive(Debug, Clone, Default)]
pub struct Known<'a> {
    /// The first processes, and those that they had started when they were looked up.
    pub identities: &'a [Identity],
    /// Leaders of process groups to end.
    pub leaders: &'a [Identity],
    pub mark: &'a str,
}

/// What happened to the processes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Processes that had to be killed.
    pub killed: Vec<u32>,
    /// Processes that did not end even then.
    pub remaining: Vec<u32>,
    /// Names and numbers of processes that may belong to them, but not certainly.
    pub uncertain: Vec<String>,
}

/// Ends the processes that are certainly identified, and those that they start meanwhile. A process that
/// does not end within `patience` is killed.
pub fn end(known: &Known, patience: Duration) -> Ended {
    let deadline = Instant::now() + patience;
    let mut ended = Ended::default();
    // Killed processes may have started others in between; a few more rounds find them.
    for _ in 0..20 {
        let held = find(known);
        ended.remaining = held.iter().map(|process| process.pid).collect();
        if held.is_empty() {
            break;
        }
        for process in &held {
            if !process.ends(deadline) {
                ended.killed.push(process.pid);
                process.kill();
            }
        }
        let gone = Instant::now() + Duration::from_secs(5);
        if !held.iter().all(|process| process.ends(gone)) {
            break;
        }
    }
    ended.killed.sort_unstable();
    ended.killed.dedup();
    for leader in known.leaders {
        // A group's number is not reused as a process number while the group has members. But without its
        // leader, it is unknown whether it has been the same group all the time.
        if kit_proc::stat(leader.pid).is_none() {
            let left = members(leader.pid);
            let name = |pid: u32| Some(format!("{} (process {pid})", kit_proc::stat(pid)?.comm));
            let names = left.iter().filter_map(|left| name(left.pid));
            ended.uncertain.extend(names);
        }
    }
    ended
}

fn find(known: &Known) -> Vec<Held> {
    let own = std::process::id();
    let is_meant = |pid: u32| {
        let Some(stat) = kit_proc::running(pid) else {
            return false;
        };
        let started = stat.starttime;
        known.identities.contains(&Identity { pid, started })
            || (known.leaders.iter()).any(|leader| {
                i64::from(leader.pid) == i64::from(stat.pgrp) && has_its_number(leader)
            })
            || (!known.mark.is_empty() && is_marked(pid, known.mark))
    };
    kit_proc::pids()
        .filter(|pid| *pid != own)
        .filter_map(|pid| Held::open(pid, || is_meant(pid)))
        .collect()
}

/// As long as a process has its number, even as a zombie, a group of that number is the one that it created.
fn has_its_number(leader: &Identity) -> bool {
    kit_proc::stat(leader.pid).is_some_and(|stat| stat.starttime == leader.started)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    use super::*;

    /// A process group whose shell and child ignore what can be ignored.
    fn hangs(mark: &str) -> Child {
        Command::new("/bin/sh")
            .args(["-c", "trap '' TERM; sleep 1000 & wait; sleep 1000"])
            .env(MARK, mark)
            .process_group(0)
            .spawn()
            .unwrap()
    }

    fn with_child(group: u32) -> Vec<Identity> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let found = members(group);
            if found.len() == 2 || Instant::now() > deadline {
                return found;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_process_that_got_the_number_since_is_let_alone() {
        let mut other = hangs("another");
        let group = with_child(other.id());
        // Simulates a reused number: the process was started at another time.
        let earlier = |one: &Identity| Identity {
            started: one.started - 1,
            ..*one
        };
        let identities: Vec<Identity> = group.iter().map(earlier).collect();
        let leader = [earlier(&identity(other.id()).unwrap())];
        let known = Known {
            identities: &identities,
            leaders: &leader,
            mark: "anothe",
        };
        assert_eq!(end(&known, Duration::ZERO), Ended::default());
        assert_eq!(members(other.id()).len(), 2);
        let known = Known {
            leaders: &[identity(other.id()).unwrap()],
            ..Known::default()
        };
        assert_eq!(end(&known, Duration::ZERO).killed.len(), 2);
        other.wait().unwrap();
    }

    #[test]
    fn what_a_process_has_started_is_found_by_its_mark_when_its_group_is_not() {
        let mark = format!("/test/{}", std::process::id());
        let mut first = hangs(&mark);
        let leader = identity(first.id()).unwrap();
        let group = with_child(first.id());
        let child = group.iter().find(|one| one.pid != first.id()).unwrap();
        first.kill().unwrap();
        first.wait().unwrap();
        // The group no longer has a leader, so it is unknown whose it is.
        let without_mark = end(
            &Known {
                leaders: &[leader],
                ..Known::default()
            },
            Duration::ZERO,
        );
        assert!(without_mark.killed.is_empty());
        assert_eq!(without_mark.uncertain.len(), 1, "{without_mark:?}");
        assert!(without_mark.uncertain[0].contains(&format!("(process {})", child.pid)));
        let with_mark = end(
            &Known {
                leaders: &[leader],
                mark: &mark,
                ..Known::default()
            },
            Duration::ZERO,
        );
        assert_eq!(with_mark.killed, [child.pid]);
        assert_eq!(with_mark.uncertain, Vec::<String>::new());
    }

    #[test]
    fn what_ends_by_itself_is_not_killed() {
        let mut short = Command::new("/bin/sleep").arg("0.3").spawn().unwrap();
        let identities = [identity(short.id()).unwrap()];
        let known = Known {
            identities: &identities,
            ..Known::default()
        };
        assert_eq!(end(&known, Duration::from_secs(60)), Ended::default());
        short.wait().unwrap();
    }
}
