// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes that a session's targets mean, and those that become members while it runs.
//!
//! Children of members are followed where they are forked, without delay. Of other processes that become members the
//! kernel tells ([`super::arrivals`]); they are monitored from some milliseconds later on. What no event shows (a
//! process that only changes its user, a process that the kernel starts) a scan of /proc finds. Scans take at most one
//! percent of one CPU.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{bail, Result};

use super::arrivals::Arrivals;
use super::process::{all, Candidate};
use super::rules::{nothing_fits, rules, Rule};
use super::spared::is_spared;
use super::Target;
use crate::clock::monotonic_ns;
use crate::kernel;

/// The time from one scan to the next, at least.
const SCAN_EVERY: Duration = Duration::from_secs(1);
const SCAN_EVERY_WITHOUT_EVENTS: Duration = Duration::from_millis(200);
/// How many times as long as a scan the time to the next one is.
const REST: u32 = 100;

/// A process that has become a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    pub pid: u32,
    /// It became one at this time (monotonic), or after it.
    pub since_ns: u64,
    is_told: bool,
}

/// The members, now and later.
pub struct Members {
    named: Vec<u32>,
    rules: Vec<Rule>,
    /// Those of which parts may come later: a pod's next container, or one that starts again.
    containers: Vec<Target>,
    follows: bool,
    is_all: bool,
    /// Processes that were handed out, with their start times.
    known: HashMap<u32, u64>,
    /// Processes that are no members and cannot become any.
    others: HashSet<u32>,
    arrivals: Option<Arrivals>,
    /// Why no events tell of arrivals.
    without_events: Option<String>,
    scanned: Instant,
    scanned_ns: u64,
    next_scan: Instant,
    late: Late,
}

/// What was seen of processes that came later.
#[derive(Debug, Clone, Copy, Default)]
struct Late {
    told: u64,
    told_max_ns: u64,
    scanned: u64,
    scanned_max_ns: u64,
    gone: u64,
}

impl Members {
    /// Finds the processes. Fails if one of the targets means none. `follows`: whether processes that come later are
    /// members, too.
    pub fn find(targets: &[Target], follows: bool) -> Result<Members> {
        let mut named = Vec::new();
        let mut of_targets = Vec::new();
        for target in targets {
            if let Target::Process(pid) = target {
                kernel::require_process(*pid)?;
                if super::is_own(*pid) {
                    bail!("process {pid} is this debox itself");
                }
                named.push(*pid);
            }
            of_targets.push((target, rules(target)?));
        }
        let rules: Vec<Rule> = of_targets
            .iter()
            .flat_map(|(_, rules)| rules.clone())
            .collect();
        let follows = follows && !rules.is_empty();
        let (arrivals, without_events) =
            match (follows, rules.iter().all(|rule| *rule == Rule::Any)) {
                (true, false) if kernel::may_load_probes() => match Arrivals::open(&rules) {
                    Ok(arrivals) => (Some(arrivals), None),
                    Err(error) => (None, Some(format!("{error:#}"))),
                },
                _ => (None, None),
            };
        let now = Instant::now();
        let mut members = Members {
            named,
            containers: targets
                .iter()
                .filter(|one| one.is_container())
                .cloned()
                .collect(),
            is_all: targets.contains(&Target::All),
            follows,
            known: HashMap::new(),
            others: HashSet::new(),
            arrivals,
            without_events,
            scanned: now,
            scanned_ns: monotonic_ns(),
            next_scan: now + SCAN_EVERY,
            late: Late::default(),
            rules,
        };
        let mut found = vec![false; of_targets.len()];
        for candidate in candidates() {
            let fits = |rules: &[Rule]| rules.iter().any(|rule| rule.fits(&candidate));
            for (found, (_, rules)) in found.iter_mut().zip(&of_targets) {
                if fits(rules) {
                    *found = true;
                    members.known.insert(candidate.pid, candidate.start);
                }
            }
        }
        for (found, (target, rules)) in found.iter().zip(&of_targets) {
            if !found && !rules.is_empty() {
                bail!("{}", nothing_fits(target));
            }
        }
        Ok(members)
    }

    /// The processes that were named by their ids.
    pub fn named(&self) -> &[u32] {
        &self.named
    }

    /// The processes that are members without having been named by their ids.
    pub fn found(&self) -> Vec<u32> {
        let mut found: Vec<u32> = self.known.keys().copied().collect();
        found.sort_unstable();
        found
    }

    /// Whether there may be members later, even if there are none now.
    pub fn follows(&self) -> bool {
        self.follows
    }

    /// Whether the whole machine is meant.
    pub fn is_all(&self) -> bool {
        self.is_all
    }

    /// How many threads the members have now.
    pub fn threads(&self) -> u64 {
        let found = self.known.keys().chain(&self.named);
        found
            .filter_map(|pid| Candidate::look_at(*pid))
            .map(|candidate| candidate.threads())
            .sum()
    }

    /// Waits for up to `timeout` for processes to come, or until `also` (a descriptor) can be read.
    pub fn wait(&self, also: Option<i32>, timeout: Duration) {
        let own = self.arrivals.as_ref().map(Arrivals::fd);
        let mut wanted: Vec<libc::pollfd> = own
            .into_iter()
            .chain(also)
            .map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        let milliseconds = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the array has as many entries as is said. A signal may end the wait.
        unsafe {
            libc::poll(
                wanted.as_mut_ptr(),
                wanted.len() as libc::nfds_t,
                milliseconds,
            )
        };
    }

    /// The processes that have become members since the last time.
    pub fn joined(&mut self) -> Vec<Joined> {
        if !self.follows {
            return Vec::new();
        }
        let mut joined = Vec::new();
        let arrived = self
            .arrivals
            .as_mut()
            .map(Arrivals::take)
            .unwrap_or_default();
        for arrival in arrived {
            match Candidate::look_at(arrival.pid) {
                None => self.late.gone += u64::from(!arrival.is_followed),
                Some(candidate) => self.add(&candidate, arrival.at_ns, true, &mut joined),
            }
        }
        if Instant::now() >= self.next_scan {
            self.scan(&mut joined);
        }
        joined
    }

    fn scan(&mut self, joined: &mut Vec<Joined>) {
        let (begin, begin_ns) = (Instant::now(), monotonic_ns());
        for target in &self.containers {
            // While it does not run there are none.
            for rule in rules(target).unwrap_or_default() {
                if !self.rules.contains(&rule) {
                    self.rules.push(rule);
                }
            }
        }
        let present: HashSet<u32> = all().collect();
        self.known.retain(|pid, _| present.contains(pid));
        self.others.retain(|pid| present.contains(pid));
        for pid in present {
            // A process that is a member remains one. Its number is not used again from one scan to the next: the
            // kernel gives out all others first.
            if self.known.contains_key(&pid) || self.others.contains(&pid) {
                continue;
            }
            match Candidate::look_at(pid).filter(|_| !is_spared(pid)) {
                Some(candidate) => self.add(&candidate, self.scanned_ns, false, joined),
                // The kernel's own threads, and those that are left out, remain that.
                None => {
                    self.others.insert(pid);
                }
            }
        }
        (self.scanned, self.scanned_ns) = (begin, begin_ns);
        let least = match self.arrivals {
            None if !self.is_all => SCAN_EVERY_WITHOUT_EVENTS,
            _ => SCAN_EVERY,
        };
        self.next_scan = begin + least.max(begin.elapsed() * REST);
    }

    fn add(
        &mut self,
        candidate: &Candidate,
        since_ns: u64,
        is_told: bool,
        joined: &mut Vec<Joined>,
    ) {
        let is_known = self.known.get(&candidate.pid) == Some(&candidate.start);
        if is_known
            || is_spared(candidate.pid)
            || !self.rules.iter().any(|rule| rule.fits(candidate))
        {
            return;
        }
        self.known.insert(candidate.pid, candidate.start);
        joined.push(Joined {
            pid: candidate.pid,
            since_ns,
            is_told,
        });
    }

    /// Notes that a member is monitored from now on. Those whose parents were monitored already need no note.
    pub fn note(&mut self, joined: Joined) {
        let late_ns = monotonic_ns().saturating_sub(joined.since_ns);
        let late = &mut self.late;
        let (count, max_ns) = match joined.is_told {
            true => (&mut late.told, &mut late.told_max_ns),
            false => (&mut late.scanned, &mut late.scanned_max_ns),
        };
        *count += 1;
        *max_ns = (*max_ns).max(late_ns);
    }

    /// What was missed of processes that came later, in sentences.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let late = &self.late;
        let processes = |count: u64| kit_count(count, "process joined", "processes joined");
        if let Some(why) = self.without_events.as_ref().filter(|_| self.follows) {
            notes.push(format!(
                "processes that came later were found by scans only: {why}"
            ));
        }
        if late.told > 0 {
            notes.push(format!(
                "{} later, each monitored from at most {} after that on",
                processes(late.told),
                milliseconds(late.told_max_ns)
            ));
        }
        if late.scanned > 0 {
            notes.push(format!(
                "{} unannounced and were found by a scan, each at most {} later",
                processes(late.scanned),
                milliseconds(late.scanned_max_ns)
            ));
        }
        if late.gone > 0 {
            let gone = kit_count(
                late.gone,
                "process that may have joined had",
                "processes that may have joined had",
            );
            notes.push(format!("{gone} ended before it could be looked at"));
        }
        let lost = self.arrivals.as_ref().map_or(0, Arrivals::lost);
        if lost > 0 {
            notes.push(format!("{lost} events of processes that may have joined were lost; scans find those that live on"));
        }
        notes
    }
}

/// All processes that may be members.
fn candidates() -> impl Iterator<Item = Candidate> {
    all()
        .filter_map(Candidate::look_at)
        .filter(|candidate| !is_spared(candidate.pid))
}

fn kit_count(count: u64, one: &str, several: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {several}"),
    }
}

fn milliseconds(ns: u64) -> String {
    format!("{} ms", ns.div_ceil(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_never_found() {
        let own = std::process::id();
        let members = Members::find(&[Target::All], false).unwrap();
        assert!(!members.found().contains(&own) && members.is_all() && !members.follows());
        let error = Members::find(&[Target::Process(own)], true).err().unwrap();
        assert!(error.to_string().contains("itself"), "{error}");
    }

    #[test]
    fn a_name_finds_its_processes_and_those_that_come_later() {
        let name = "debox-member";
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join(name);
        std::fs::copy("/bin/sleep", &program).unwrap();
        let start = || {
            std::process::Command::new(&program)
                .arg("60")
                .spawn()
                .unwrap()
        };
        let target = [Target::Comm(name.to_string())];
        assert!(Members::find(&target, true)
            .err()
            .unwrap()
            .to_string()
            .contains("no process is named"));
        let mut children = vec![start()];
        let found = |pid: u32| {
            let members = Members::find(&target, true);
            members.is_ok_and(|members| members.found() == [pid])
        };
        let begin = Instant::now();
        while !found(children[0].id()) {
            assert!(begin.elapsed() < Duration::from_secs(10), "it is not found");
        }
        let mut members = Members::find(&target, true).unwrap();
        children.push(start());
        let mut joined = Vec::new();
        while joined.is_empty() {
            assert!(
                begin.elapsed() < Duration::from_secs(20),
                "the later one is not found"
            );
            members.wait(None, Duration::from_millis(20));
            joined = members.joined();
        }
        assert_eq!(joined[0].pid, children[1].id());
        members.note(joined[0]);
        assert_eq!(members.notes().len(), 1, "{:?}", members.notes());
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
