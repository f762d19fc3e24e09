// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much of an application's elapsed time its threads overlap, and what it waits for when all of them sleep.

use std::collections::BTreeMap;

use anyhow::{ensure, Result};
use debox_model::history::Call;

use crate::mapping::MAPPING;

/// 16 bytes each.
const EVENTS_MAX: usize = 64 << 20;

/// Lives and sleeps of threads.
#[derive(Debug, Default)]
pub struct Overlap {
    /// First and last moment of each thread.
    lives: BTreeMap<(u32, u32), (u64, u64)>,
    /// Beginnings (-1) and ends (the kind's index) of sleeps.
    events: Vec<(u64, i32)>,
    kinds: Vec<String>,
}

/// Of the whole application.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// Sum of the time in which threads were not asleep.
    pub active_ns: u64,
    /// Time in which at least one was not.
    pub busy_ns: u64,
    /// Time in which all were, by the kind of the sleep that ended it, and how often.
    pub waits: BTreeMap<String, (u64, u64)>,
    pub threads: u64,
    pub processes: u64,
}

impl Found {
    /// From the first moment to the last.
    pub fn elapsed_ns(&self) -> u64 {
        let waits = self.waits.values().map(|(ns, _)| *ns);
        waits.fold(self.busy_ns, u64::saturating_add)
    }

    /// Threads that were not asleep, on average over the time in which one was not.
    pub fn overlap(&self) -> f64 {
        match self.busy_ns {
            0 => 1.0,
            busy => (self.active_ns as f64 / busy as f64).max(1.0),
        }
    }
}

const BEGIN: i32 = -1;

impl Overlap {
    /// # Errors
    ///
    /// The recording has too many sleeps.
    pub fn add(&mut self, call: &Call) -> Result<()> {
        let end = call.start_ns.saturating_add(call.wall_ns);
        let life = self
            .lives
            .entry((call.pid, call.tid))
            .or_insert((call.start_ns, end));
        *life = (life.0.min(call.start_ns), life.1.max(end));
        for sleep in &call.sleeps {
            let kind = self.index(kind(call, &sleep.class, &sleep.label));
            let woken = sleep.begin_ns.saturating_add(sleep.blocked_ns);
            self.events.push((sleep.begin_ns, BEGIN));
            self.events.push((woken, kind));
        }
        ensure!(
            self.events.len() <= EVENTS_MAX,
            "the recording has more than {} sleeps: record a shorter part",
            EVENTS_MAX / 2
        );
        Ok(())
    }

    fn index(&mut self, kind: String) -> i32 {
        let known = self.kinds.iter().position(|known| *known == kind);
        known.unwrap_or_else(|| {
            self.kinds.push(kind);
            self.kinds.len() - 1
        }) as i32
    }

    pub fn find(mut self) -> Found {
        let mut found = Found {
            threads: self.lives.len() as u64,
            ..Found::default()
        };
        let mut processes: Vec<u32> = self.lives.keys().map(|(pid, _)| *pid).collect();
        processes.dedup();
        found.processes = processes.len() as u64;
        // A life's start wakes and its end puts to sleep; no kind of wait ends with it.
        let life = self.kinds.len() as i32;
        for (start, end) in self.lives.values() {
            self.events.push((*start, life));
            self.events.push((*end, BEGIN));
        }
        // At the same moment, who wakes comes first: otherwise a wait of no time would be seen.
        self.events
            .sort_unstable_by_key(|(at, event)| (*at, std::cmp::Reverse(*event)));
        let (mut active, mut last) = (0i64, None::<u64>);
        for (at, event) in &self.events {
            let passed = last.map_or(0, |last| at - last);
            match u64::try_from(active) {
                Ok(active) if active > 0 => {
                    found.active_ns = found
                        .active_ns
                        .saturating_add(active.saturating_mul(passed));
                    found.busy_ns += passed;
                }
                _ if passed > 0 && last.is_some() => self.count_wait(&mut found, *event, passed),
                _ => {}
            }
            active += if *event == BEGIN { -1 } else { 1 };
            last = Some(*at);
        }
        found
    }

    fn count_wait(&self, found: &mut Found, event: i32, passed: u64) {
        let kind = usize::try_from(event)
            .ok()
            .and_then(|index| self.kinds.get(index));
        let kind = kind.map_or("other", String::as_str);
        let wait = found.waits.entry(kind.to_string()).or_default();
        *wait = (wait.0.saturating_add(passed), wait.1 + 1);
    }
}

/// What a sleep waits for, as far as it decides what another machine does to it.
fn kind(call: &Call, class: &str, label: &str) -> String {
    const SYNC: [&str; 6] = [
        "fsync",
        "fdatasync",
        "sync_file_range",
        "msync",
        "sync",
        "syncfs",
    ];
    let name = &*call.name;
    match class {
        "disk" if SYNC.contains(&name) => "disk.sync".to_string(),
        // Its waits are for the journal, or for room for what is to be written.
        "disk" if changes_files(name) => "disk.write".to_string(),
        "disk" => "disk.read".to_string(),
        "idle" if label == "timer" => "timer".to_string(),
        class => class.to_string(),
    }
}

fn changes_files(name: &str) -> bool {
    let primitive = MAPPING.of_call(name).unwrap_or_default();
    primitive == "file.create"
        || matches!(
            name,
            "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" | "fallocate"
        )
}

#[cfg(test)]
mod tests {
    use debox_model::history::Sleep;

    use super::*;

    fn call(tid: u32, start_ns: u64, wall_ns: u64, sleeps: &[(u64, u64, &str)]) -> Call {
        let sleep = |(begin_ns, blocked_ns, class): &(u64, u64, &str)| Sleep {
            begin_ns: *begin_ns,
            blocked_ns: *blocked_ns,
            class: (*class).into(),
            ..Sleep::default()
        };
        Call {
            pid: tid,
            tid,
            name: "fsync".into(),
            start_ns,
            wall_ns,
            sleeps: sleeps.iter().map(sleep).collect(),
            ..Call::default()
        }
    }

    fn found(calls: &[Call]) -> Found {
        let mut overlap = Overlap::default();
        for call in calls {
            overlap.add(call).expect("few sleeps");
        }
        overlap.find()
    }

    #[test]
    fn time_is_busy_or_waited() {
        // 1 is awake in 0..10 and 60..100, 2 in 20..50 and 70..90.
        let one = call(1, 0, 100, &[(10, 50, "disk")]);
        let other = call(2, 20, 70, &[(50, 20, "lock")]);
        let found = found(&[one, other]);
        assert_eq!(found.active_ns, 10 + 30 + 40 + 20);
        assert_eq!(found.busy_ns, 10 + 30 + 40);
        assert_eq!(found.elapsed_ns(), 100);
        let waits: Vec<_> = found
            .waits
            .iter()
            .map(|(kind, wait)| (kind.as_str(), *wait))
            .collect();
        // Until the second thread began, and until the disk had what the first one wanted.
        assert_eq!(waits, [("disk.sync", (10, 1)), ("other", (10, 1))]);
        assert_eq!((found.threads, found.processes), (2, 2));
        assert!((found.overlap() - 100.0 / 80.0).abs() < 1e-9);
    }

    #[test]
    fn a_thread_alone_overlaps_nothing() {
        let found = found(&[call(1, 5, 10, &[]), call(1, 15, 10, &[(20, 5, "idle")])]);
        assert_eq!((found.active_ns, found.busy_ns), (15, 15));
        assert_eq!(found.overlap(), 1.0);
        // Its last sleep did not end before its life did.
        assert_eq!(found.waits.values().map(|wait| wait.0).sum::<u64>(), 5);
        assert_eq!(Found::default().overlap(), 1.0);
    }
}
