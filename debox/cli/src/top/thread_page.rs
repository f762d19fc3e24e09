// SPDX-License-Identifier: MIT OR Apache-2.0
//! One thread: what it waits for, who holds that and what that waits for, and its last calls with their stacks.
//!
//! The calls come from a session of their own, which records this thread's process only, and only as long as the page
//! is open.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Result;
use debox::history::Call;
use debox::{Detail, Options, Recorder};
use kit_console::printable;

use super::facts::{Fact, Facts, Meaning};
use super::rows::{holder, resource};
use crate::task_name::task_name;

/// The most calls that are kept.
const CALLS: usize = 200;

/// Calls that were shorter are left out, and so are those that did not wait.
const SHOWN_FROM_NS: u64 = 100_000;

/// Bytes of records that may wait for being read.
const BUFFER: u32 = 4 << 20;

/// The longest chain that is followed.
const LINKS: usize = 6;

pub struct ThreadPage {
    pub tid: u32,
    pub title: String,
    /// The last first.
    pub calls: VecDeque<Call>,
    /// Calls that the recorder was too slow for.
    pub lost: u64,
    /// Why there are no calls.
    pub problem: Option<String>,
    recorder: Option<Recorder>,
}

impl ThreadPage {
    pub fn open(pid: u32, tid: u32, title: String) -> ThreadPage {
        let (recorder, problem) = match record(pid) {
            Ok(recorder) => (Some(recorder), None),
            Err(error) => (
                None,
                Some(format!("its calls cannot be recorded: {error:#}")),
            ),
        };
        ThreadPage {
            tid,
            title,
            calls: VecDeque::new(),
            lost: 0,
            problem,
            recorder,
        }
    }

    /// Takes in the calls that have ended.
    pub fn poll(&mut self, is_paused: bool) -> Result<()> {
        let Some(recorder) = &mut self.recorder else {
            return Ok(());
        };
        let (tid, calls) = (self.tid, &mut self.calls);
        let mut keep = |call: Call| {
            let is_shown =
                call.number >= 0 && call.wall_ns >= SHOWN_FROM_NS && !call.sleeps.is_empty();
            if call.tid == tid && is_shown && !is_paused {
                calls.truncate(CALLS - 1);
                calls.push_front(call);
            }
            Ok(())
        };
        while recorder.poll(Duration::ZERO, &mut keep)? {}
        self.lost = recorder.missing()?.records;
        Ok(())
    }

    /// What the thread waits for in this interval, the longest first.
    pub fn waits<'a>(&self, facts: &'a Facts) -> Vec<&'a Fact> {
        let mut waits: Vec<&Fact> = facts
            .waits
            .iter()
            .filter(|fact| fact.wait.tid == self.tid)
            .collect();
        waits.sort_by_key(|fact| {
            std::cmp::Reverse((fact.meaning != Meaning::Rest, fact.wait.blocked_ns))
        });
        waits
    }
}

fn record(pid: u32) -> Result<Recorder> {
    let mut recorder = Recorder::open(Options {
        detail: Detail {
            sleeps: true,
            callsites: true,
            ..Detail::default()
        },
        slow_ns: SHOWN_FROM_NS,
        max_threads: 4096,
        // It runs already, which a broker has to know.
        adopts_sleeps: true,
        one_process: true,
        history_bytes: BUFFER,
        ..Options::default()
    })?;
    recorder.enrol_running(&[pid])?;
    Ok(recorder)
}

/// Who holds what a wait is for, what that waits for, and so on: one line for each.
pub fn chain(facts: &Facts, wait: &Fact) -> Vec<String> {
    let mut lines = Vec::new();
    let mut passed = vec![wait.wait.tid];
    let mut at = wait;
    while let Some(held) = &at.wait.holder {
        let name = holder(&at.wait).unwrap_or_default();
        let doing = match &held.doing {
            Some(doing) => format!(", then {}", printable(doing)),
            None => String::new(),
        };
        lines.push(format!("held by {name} ({}){doing}", held.certainty));
        if passed.contains(&held.tid) {
            lines.push("  and so in a circle: a deadlock, if it lasts".to_string());
            break;
        }
        passed.push(held.tid);
        let next = facts
            .waits
            .iter()
            .filter(|fact| fact.wait.tid == held.tid && fact.meaning != Meaning::Rest);
        let Some(next) =
            next.max_by_key(|fact| (fact.wait.open_ns.is_some(), fact.wait.blocked_ns))
        else {
            break;
        };
        lines.push(format!("  which waits: {}", what(next)));
        at = next;
        if passed.len() > LINKS {
            lines.push("  and so on".to_string());
            break;
        }
    }
    if let (true, Some(waker)) = (lines.is_empty(), &wait.wait.waker) {
        lines.push(match (&waker.comm, waker.tid) {
            (Some(comm), Some(tid)) => format!("ended by {}", printable(&task_name(comm, tid))),
            _ => format!("ended by {}", waker.kind),
        });
    }
    lines
}

/// A wait in words: its label, what it is for, and in which call.
pub fn what(fact: &Fact) -> String {
    let wait = &fact.wait;
    let resource = resource(wait).map_or(String::new(), |resource| format!(" for {resource}"));
    format!(
        "{} in {}{resource}",
        printable(&wait.label),
        printable(&wait.call)
    )
}

/// A folded stack, the innermost function first.
pub fn stack(folded: Option<&str>) -> String {
    let frames: Vec<&str> = folded
        .unwrap_or("")
        .split(';')
        .rev()
        .filter(|frame| !frame.is_empty())
        .collect();
    match frames.is_empty() {
        true => "not known".to_string(),
        false => printable(&frames.join(" < ")).into_owned(),
    }
}
