// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much of an application's elapsed time its threads overlap, and what it waits for when all of them sleep.

use std::collections::BTreeMap;

use anyhow::{ensure, Result};
use debox_model::history::Call;

use crate::mapping::MAPPING;

/// 24 bytes each.
const EVENTS_MAX: usize = 48 << 20;

/// The kind of the time from being woken by another thread until running.
pub const WAKING: &str = "waking";
/// The same after an interrupt.
pub const WAKING_BY_DEVICE: &str = "waking by a device or a timer";

/// Lives and sleeps of threads.
#[derive(Debug, Default)]
pub struct Overlap {
    /// First and last moment of each thread.
    lives: BTreeMap<(u32, u32), (u64, u64)>,
    events: Vec<(u64, Event)>,
    kinds: Vec<String>,
}

/// At the same moment, who is woken comes before who runs, and who sleeps comes last: otherwise a wait of no time would be
/// seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A thread begins; no kind of wait ends with it.
    Born,
    /// The sleep of this kind ends.
    Wakes {
        kind: u32,
        by_thread: bool,
    },
    /// A woken thread has the CPU; whether another thread had woken it.
    Runs {
        by_thread: bool,
    },
    Sleeps,
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
            let by_thread = &*sleep.waker_kind == "task";
            let woken = sleep.begin_ns.saturating_add(sleep.blocked_ns);
            let runs = woken.saturating_add(sleep.runqueue_ns);
            self.events.push((sleep.begin_ns, Event::Sleeps));
            self.events.push((woken, Event::Wakes { kind, by_thread }));
            self.events.push((runs, Event::Runs { by_thread }));
        }
        ensure!(
            self.events.len() <= EVENTS_MAX,
            "the recording has more than {} sleeps: record a shorter part",
            EVENTS_MAX / 3
        );
        Ok(())
    }

    fn index(&mut self, kind: String) -> u32 {
        let known = self.kinds.iter().position(|known| *known == kind);
        known.unwrap_or_else(|| {
            self.kinds.push(kind);
            self.kinds.len() - 1
        }) as u32
    }

    pub fn find(mut self) -> Found {
        let mut found = Found {
            threads: self.lives.len() as u64,
            ..Found::default()
        };
        let mut processes: Vec<u32> = self.lives.keys().map(|(pid, _)| *pid).collect();
        processes.dedup();
        found.processes = processes.len() as u64;
        for (start, end) in self.lives.values() {
            self.events.push((*start, Event::Born));
            self.events.push((*end, Event::Sleeps));
        }
        self.events.sort_unstable();
        let mut now = Now::default();
        let mut last = self.events.first().map_or(0, |(at, _)| *at);
        for (at, event) in &self.events {
            let passed = at - last;
            if now.running > 0 {
                let active = passed.saturating_mul(now.running as u64);
                found.active_ns = found.active_ns.saturating_add(active);
                found.busy_ns += passed;
            } else if passed > 0 {
                let kind = self.waited_for(&now, *event);
                let wait = found.waits.entry(kind.to_string()).or_default();
                *wait = (wait.0.saturating_add(passed), wait.1 + 1);
            }
            now.follow(*event);
            last = *at;
        }
        found
    }

    /// What the application waited for while none of its threads ran. `event` ended this.
    fn waited_for(&self, now: &Now, event: Event) -> &str {
        match event {
            _ if now.waking_by_thread > 0 => WAKING,
            _ if now.waking_by_device > 0 => WAKING_BY_DEVICE,
            Event::Wakes { kind, .. } => self
                .kinds
                .get(kind as usize)
                .map_or("other", String::as_str),
            Event::Born | Event::Runs { .. } | Event::Sleeps => "other",
        }
    }
}

/// How many threads run, and how many are woken and do not run yet.
#[derive(Debug, Default)]
struct Now {
    running: i64,
    waking_by_thread: i64,
    waking_by_device: i64,
}

impl Now {
    fn follow(&mut self, event: Event) {
        let waking = |now: &mut Now, by_thread: bool, change: i64| match by_thread {
            true => now.waking_by_thread += change,
            false => now.waking_by_device += change,
        };
        match event {
            Event::Born => self.running += 1,
            Event::Sleeps => self.running -= 1,
            Event::Wakes { by_thread, .. } => waking(self, by_thread, 1),
            Event::Runs { by_thread } => {
                waking(self, by_thread, -1);
                self.running += 1;
            }
        }
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
            waker_kind: "task".into(),
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
    fn a_woken_thread_waits_until_it_runs() {
        let mut one = call(1, 0, 100, &[(10, 50, "idle")]);
        one.sleeps[0].runqueue_ns = 15;
        let mut device = call(1, 200, 100, &[(210, 20, "disk")]);
        device.sleeps[0].runqueue_ns = 5;
        device.sleeps[0].waker_kind = "hardirq".into();
        // Runs while the first one is still being woken.
        let found = found(&[one, call(2, 0, 65, &[]), device]);
        let wait = |kind: &str| found.waits.get(kind).copied();
        assert_eq!(wait(WAKING), Some((10, 1)));
        assert_eq!(wait(WAKING_BY_DEVICE), Some((5, 1)));
        assert_eq!(wait("disk.sync"), Some((20, 1)));
        assert_eq!(found.elapsed_ns(), 300);
        assert_eq!(found.active_ns, 10 + 65 + 25 + 110 + 65);
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
