// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows: the waits of an interval by process, thread, unit, call, label, class, resource or owner.

use std::cmp::Reverse;
use std::rc::Rc;

use debox::live::LiveWait;
use debox::predicate::Predicate;
use foldhash::HashMap;
use kit_console::printable;

use super::facts::{Fact, Facts, Meaning, ThreadFact};
use super::process_names::Inside;
use crate::options::{By, SortBy};
use crate::task_name::task_name;

/// The label and class of waits for a CPU.
const CPU_WAIT: (&str, &str) = ("waiting for a CPU", "cpu");

/// Waits that keep an event loop from its events are a class of their own.
const BLOCKED_LOOP: &str = "blocked event loop";

/// What is shown.
#[derive(Debug, Clone)]
pub struct Choice {
    pub by: By,
    pub sort: SortBy,
    pub filter: Option<Predicate>,
    pub with_idle: bool,
    /// Only what belongs to all of these groups.
    pub within: Vec<(By, Rc<str>)>,
}

/// A group of waits.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// What the group is, unique among its kind.
    pub key: Rc<str>,
    pub name: String,
    pub pid: Option<u32>,
    pub tid: Option<u32>,
    /// The number of this process or thread inside of its container, if that is asked for and another one.
    pub inside: Option<u32>,
    /// How many waits: ended, and not.
    pub waits: u64,
    pub open: u64,
    pub waiting_ns: u64,
    /// Of these, the time that holds something up.
    pub harm_ns: u64,
    pub cpu_ns: u64,
    pub longest_ns: u64,
    pub blocks_loop: bool,
    /// What was waited for, with the class, the longest first; before that, what holds something up, unless it is little.
    pub why: Vec<Share>,
    /// Who held it, or else what it was, or who ended it.
    pub held_by: Vec<Share>,
}

/// A part of a row's time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    pub what: Rc<str>,
    pub kind: Rc<str>,
    pub ns: u64,
}

/// What it is, and of which kind.
type Named = (Rc<str>, Rc<str>);

/// The sums of a row while it is made.
#[derive(Default)]
struct Sums {
    row: Row,
    why: HashMap<Named, Time>,
    held_by: HashMap<Named, Time>,
}

/// A part of a row's time, and how much of it holds something up. Parts that hold something up are shown first, unless they
/// are a small share of the row.
#[derive(Default)]
struct Time {
    harm_ns: u64,
    ns: u64,
}

impl Time {
    fn add(&mut self, ns: u64, is_harm: bool) {
        self.ns += ns;
        self.harm_ns += if is_harm { ns } else { 0 };
    }
}

/// The rows, sorted.
pub fn rows(facts: &Facts, choice: &Choice) -> Vec<Row> {
    let mut sums: HashMap<Rc<str>, Sums> = HashMap::default();
    for fact in &facts.waits {
        if is_shown(fact, choice) {
            add_wait(&mut sums, fact, choice.by);
        }
    }
    // A filter is about waits at a place; waits for a CPU and computing are not among those.
    if choice.filter.is_none() {
        for fact in &facts.threads {
            let belongs =
                |(by, key): &(By, Rc<str>)| thread_key(fact, *by).is_some_and(|own| own == *key);
            if choice.within.iter().all(belongs) {
                add_thread(&mut sums, fact, choice.by);
            }
        }
    }
    let mut rows: Vec<Row> = sums.into_values().map(Sums::finish).collect();
    rows.retain(|row| row.waits + row.open > 0 || row.waiting_ns > 0 || row.cpu_ns > 0);
    sort(&mut rows, choice.sort);
    rows
}

fn sort(rows: &mut [Row], by: SortBy) {
    rows.sort_by(|one, other| {
        let key = |row: &Row| match by {
            SortBy::Wait | SortBy::Name => (row.harm_ns, row.waiting_ns),
            SortBy::Cpu => (row.cpu_ns, row.waiting_ns),
            SortBy::Longest => (row.longest_ns, row.waiting_ns),
            SortBy::Waits => (row.waits + row.open, row.waiting_ns),
        };
        let by_name = one.name.cmp(&other.name).then(one.key.cmp(&other.key));
        match by {
            SortBy::Name => by_name,
            _ => key(other).cmp(&key(one)).then(by_name),
        }
    });
}

/// Whether a wait is among those that are chosen.
pub fn is_shown(fact: &Fact, choice: &Choice) -> bool {
    (choice.with_idle || fact.meaning != Meaning::Rest)
        && choice
            .within
            .iter()
            .all(|(by, key)| key_of(fact, *by) == *key)
        && choice
            .filter
            .as_ref()
            .is_none_or(|filter| filter.holds(&fact.wait))
}

/// What group a wait belongs to.
fn key_of(fact: &Fact, by: By) -> Rc<str> {
    let wait = &fact.wait;
    match by {
        By::Process => wait.pid.to_string().into(),
        By::Thread => wait.tid.to_string().into(),
        By::Unit => Rc::clone(&fact.place),
        By::Call => Rc::clone(&wait.call),
        By::Label => Rc::clone(&wait.label),
        By::Class if fact.meaning == Meaning::BlocksLoop => BLOCKED_LOOP.into(),
        By::Class => Rc::clone(&wait.class),
        By::Resource => match resource(wait) {
            Some(resource) => resource.into(),
            None => "(not known)".into(),
        },
        By::Owner => match owner(fact) {
            Some(owner) => owner.into(),
            None => "(no owner known)".into(),
        },
    }
}

fn thread_key(fact: &ThreadFact, by: By) -> Option<Rc<str>> {
    let thread = &fact.thread;
    Some(match by {
        By::Process => thread.pid.to_string().into(),
        By::Thread => thread.tid.to_string().into(),
        By::Unit => Rc::clone(&fact.place),
        By::Call | By::Resource => return None,
        By::Label => CPU_WAIT.0.into(),
        By::Class => CPU_WAIT.1.into(),
        By::Owner => fact.cpu_holder.clone()?,
    })
}

fn add_wait(sums: &mut HashMap<Rc<str>, Sums>, fact: &Fact, by: By) {
    let wait = &fact.wait;
    let sum = sum_of(sums, key_of(fact, by), |key| {
        let name = match by {
            By::Process => fact.process.to_string(),
            By::Thread => printable(&wait.comm).into_owned(),
            _ => printable(key).into_owned(),
        };
        begun(key, name, by, (wait.pid, wait.tid), fact.inside)
    });
    let row = &mut sum.row;
    row.waits += wait.count;
    row.open += u64::from(wait.open_ns.is_some());
    row.waiting_ns += wait.blocked_ns;
    row.longest_ns = row.longest_ns.max(wait.max_ns);
    let is_harm = matches!(fact.meaning, Meaning::Harm | Meaning::BlocksLoop);
    if is_harm {
        row.harm_ns += wait.blocked_ns;
    }
    row.blocks_loop |= fact.meaning == Meaning::BlocksLoop && wait.blocked_ns > 0;
    let why = (Rc::clone(&wait.label), Rc::clone(&wait.class));
    let why = sum.why.entry(why).or_default();
    why.add(wait.blocked_ns, is_harm);
    if let Some(held_by) = held_by(fact) {
        let held_by = sum.held_by.entry(held_by).or_default();
        held_by.add(wait.blocked_ns, is_harm);
    }
}

fn add_thread(sums: &mut HashMap<Rc<str>, Sums>, fact: &ThreadFact, by: By) {
    let thread = &fact.thread;
    let ready_ns = thread.runqueue_ns + thread.preempted_ns;
    let is_of_tasks = matches!(by, By::Process | By::Thread | By::Unit);
    if ready_ns == 0 && !(is_of_tasks && thread.cpu_ns > 0) {
        return;
    }
    let Some(key) = thread_key(fact, by) else {
        return;
    };
    let sum = sum_of(sums, key, |key| {
        let name = match by {
            By::Process => fact.process.to_string(),
            By::Thread => printable(&thread.comm).into_owned(),
            _ => key.to_string(),
        };
        begun(key, name, by, (thread.pid, thread.tid), fact.inside)
    });
    sum.row.waiting_ns += ready_ns;
    sum.row.harm_ns += ready_ns;
    if is_of_tasks {
        sum.row.cpu_ns += thread.cpu_ns;
    }
    if ready_ns > 0 {
        let why = (CPU_WAIT.0.into(), CPU_WAIT.1.into());
        sum.why.entry(why).or_default().add(ready_ns, true);
        if let Some(holder) = &fact.cpu_holder {
            let held_by = (Rc::clone(holder), "cpu".into());
            sum.held_by.entry(held_by).or_default().add(ready_ns, true);
        }
    }
}

/// The sums of that key; there is a row from the first fact on.
fn sum_of(
    sums: &mut HashMap<Rc<str>, Sums>,
    key: Rc<str>,
    first: impl FnOnce(&Rc<str>) -> Row,
) -> &mut Sums {
    sums.entry(key).or_insert_with_key(|key| Sums {
        row: first(key),
        ..Sums::default()
    })
}

fn begun(key: &Rc<str>, name: String, by: By, (pid, tid): (u32, u32), inside: Inside) -> Row {
    Row {
        key: Rc::clone(key),
        name,
        pid: matches!(by, By::Process | By::Thread).then_some(pid),
        tid: (by == By::Thread).then_some(tid),
        inside: inside.and_then(|(pid, tid)| match by {
            By::Process => Some(pid),
            By::Thread => Some(tid),
            _ => None,
        }),
        ..Row::default()
    }
}

impl Sums {
    fn finish(self) -> Row {
        let is_held_up = self.row.harm_ns.saturating_mul(10) > self.row.waiting_ns;
        Row {
            why: shares(self.why, is_held_up),
            held_by: shares(self.held_by, is_held_up),
            ..self.row
        }
    }
}

fn shares(of: HashMap<Named, Time>, harm_first: bool) -> Vec<Share> {
    let mut shares: Vec<(Named, Time)> = of.into_iter().collect();
    shares.sort_by_key(|((what, _), time)| {
        let harm_ns = if harm_first { time.harm_ns } else { 0 };
        (Reverse((harm_ns, time.ns)), Rc::clone(what))
    });
    let shares = shares.into_iter();
    let shares = shares.map(|((what, kind), Time { ns, .. })| Share { what, kind, ns });
    shares.collect()
}

/// Who held what was waited for: `name/tid`.
pub fn holder(wait: &LiveWait) -> Option<String> {
    let holder = wait.holder.as_ref()?;
    Some(printable(&task_name(&holder.comm, holder.tid)).into_owned())
}

/// What was waited for, in words.
pub fn resource(wait: &LiveWait) -> Option<String> {
    let kind = wait.resource_kind.as_ref()?;
    Some(match &wait.resource {
        Some(name) => format!("{kind} {}", printable(name)),
        None => kind.to_string(),
    })
}

/// Who holds what was waited for, or keeps the disk busy.
fn owner(fact: &Fact) -> Option<String> {
    holder(&fact.wait).or_else(|| disk_user(fact))
}

fn disk_user(fact: &Fact) -> Option<String> {
    let user = fact.disk_user.as_ref()?;
    Some(format!("{}/{}", user.name, user.pid))
}

/// The best that is known about who or what held a wait up, and what that is: `owner`, `user` of a disk, `resource` or
/// `waker`.
fn held_by(fact: &Fact) -> Option<(Rc<str>, Rc<str>)> {
    let wait = &fact.wait;
    if let Some(holder) = holder(wait) {
        return Some((holder.into(), "owner".into()));
    }
    if let Some(user) = disk_user(fact) {
        return Some((user.into(), "user".into()));
    }
    if let Some(resource) = resource(wait) {
        return Some((resource.into(), "resource".into()));
    }
    let waker = wait.waker.as_ref()?;
    let (comm, tid) = (waker.comm.as_ref()?, waker.tid?);
    Some((
        format!("woken by {}", printable(&task_name(comm, tid))).into(),
        "waker".into(),
    ))
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
