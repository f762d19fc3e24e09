//! The one thing that a report opens with: where the time went, by cause, and what of it matters most.
//!
//! The account is of the threads' time together. Left out is what another monitored process accounts for
//! (waiting for a child), and, where several threads run side by side and something else goes on, what
//! threads do that wait for work; the report gives that time beside the shares.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{CpuWait, InFlight, Report, Resource, Sleep, Totals};
use crate::rest::{For, Waits};

/// Where the time went.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headline {
    /// The time that is accounted for: of all threads together.
    pub of_ns: u64,
    /// Idle waits beside it, of threads that wait for work while others work.
    pub idle_ns: u64,
    /// Whether the longest share is a server's wait for requests.
    pub is_served: bool,
    /// The longest first. They add up to `of_ns`.
    pub shares: Vec<Share>,
}

/// A part of the time with one cause.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// `user CPU`, `kernel CPU`, `waiting for a CPU`, `CPU quota`, `interrupts`, `outside` (user tap), `asleep` (where
    /// it is not known on what), or the label of sleeps.
    pub cause: String,
    pub ns: u64,
    /// Of sleeps; null for others.
    pub class: Option<String>,
    /// The call with the sleeps, or the one with the most of the kernel's CPU time.
    pub call: Option<String>,
    /// Sleeps; null for others.
    pub count: Option<u64>,
    pub max_ns: Option<u64>,
    /// What most of it waited on.
    pub resource: Option<Resource>,
    /// Who held that, most of the time; of a wait for a CPU: who had it.
    pub owner: Option<String>,
    /// From where in the program most of it was called.
    pub caller: Option<String>,
    /// Most of it was for what can be held.
    #[serde(skip)]
    pub is_for_lock: bool,
    /// Of the sleeps, those that had not ended.
    #[serde(skip)]
    pub open: u64,
}

/// Threads that take turns live little longer together than the run lasts.
const SIDE_BY_SIDE: f64 = 1.25;
/// Something goes on: so much of the run's time is no idle wait.
const GOES_ON: f64 = 0.5;

/// Who had the CPU for so much of the time in which threads waited for one is named.
const MUST_HAVE: f64 = 0.4;
const QUOTA: &str = "quota";

/// What the children account for.
const CHILDREN: [&str; 2] = ["child process", "vfork child"];
/// What calls do that had not returned and do not sleep.
const AWAKE: [&str; 2] = ["running", "waiting for a CPU"];
const TIMER: &str = "timer";
/// A server's calls.
const SERVING: [&str; 3] = ["listen", "accept", "accept4"];

/// What a headline is made of.
#[derive(Debug, Clone, Default)]
pub struct Account {
    pub duration_ns: u64,
    pub threads: usize,
    pub processes: usize,
    /// Without user CPU time where that is not known.
    pub totals: Totals,
    /// One for each label and call, with `count`.
    pub sleeps: Vec<Share>,
    /// What is known of the waits for a CPU: no more than `totals` has.
    pub cpu_waits: Vec<CpuWait>,
    /// The call with the most of the kernel's CPU time.
    pub busiest: Option<String>,
    /// Whether there is a call that only servers make.
    pub has_server_calls: bool,
}

/// Whether the call is one that only servers make.
pub fn is_server_call(name: &str) -> bool {
    SERVING.contains(&name)
}

impl Report {
    /// The report with the headline that follows from all else in it.
    pub fn with_headline(mut self) -> Report {
        self.headline = Headline::of(&self);
        self
    }
}

impl Headline {
    /// `None` if no time was seen.
    pub fn of(report: &Report) -> Option<Headline> {
        let mut sleeps = sleeps(report);
        let going_on = report.totals.blocked_ns.saturating_sub(sum(&sleeps));
        add_in_flight(&mut sleeps, report, going_on);
        let processes: BTreeSet<u32> = report.threads.iter().map(|thread| thread.pid).collect();
        let calls = || report.syscalls.iter().filter(|call| call.name != "(user)");
        Headline::of_account(Account {
            duration_ns: report.duration_ns,
            threads: report.threads.len(),
            processes: processes.len(),
            totals: report.totals.clone(),
            sleeps,
            cpu_waits: report.cpu_waits.clone(),
            busiest: calls()
                .max_by_key(|call| call.cpu_ns)
                .map(|call| call.name.clone()),
            has_server_calls: calls().any(|call| is_server_call(&call.name)),
        })
    }

    /// `None` if there is no time in it.
    pub fn of_account(account: Account) -> Option<Headline> {
        let others = others(&account);
        let mut shares = account.sleeps;
        shares.extend(others);
        let has_several = account.threads > account.processes;
        let is_told = |share: &Share| {
            let by_child = account.processes > 1 && CHILDREN.contains(&share.cause.as_str());
            share.ns > 0 && !by_child
        };
        shares.retain(is_told);

        let waits = |share: &Share| share.waits_for_work(has_several);
        let all = sum(&shares);
        let idle_ns = sum(shares.iter().filter(|share| waits(share)));
        let run = account.duration_ns as f64;
        let are_side_by_side = all as f64 > run * SIDE_BY_SIDE;
        let is_aside = are_side_by_side && all.saturating_sub(idle_ns) as f64 >= run * GOES_ON;
        if is_aside {
            shares.retain(|share| !waits(share));
        }
        shares.sort_by_key(|share| std::cmp::Reverse(share.ns));
        let first = shares.first()?;
        let is_served = first.class.as_deref() == Some("idle") && first.cause != TIMER;
        Some(Headline {
            of_ns: sum(&shares),
            idle_ns: if is_aside { idle_ns } else { 0 },
            is_served: is_served && account.has_server_calls,
            shares,
        })
    }
}

fn sum<'a>(shares: impl IntoIterator<Item = &'a Share>) -> u64 {
    let times = shares.into_iter().map(|share| share.ns);
    times.fold(0, u64::saturating_add)
}

/// All that is no sleep on something known.
fn others(account: &Account) -> Vec<Share> {
    let totals = &account.totals;
    let slept = sum(&account.sleeps);
    let plain = |(cause, ns): (&str, u64)| Share {
        cause: cause.to_string(),
        ns,
        call: (cause == "kernel CPU")
            .then(|| account.busiest.clone())
            .flatten(),
        ..Share::default()
    };
    let waiting = totals.runqueue_ns.saturating_add(totals.preempted_ns);
    let (quota, had_by) = cpu_waits(&account.cpu_waits, waiting);
    let waiting = waiting.saturating_sub(sum(&quota));
    // The user tap lists sleeps beside the calls, too (a stop inside one): that time is a part of `outside`.
    let slept_outside = slept.saturating_sub(totals.blocked_ns);
    let outside = totals.outside_ns.unwrap_or(0);
    [
        ("asleep", totals.blocked_ns.saturating_sub(slept)),
        ("user CPU", totals.user_cpu_ns),
        ("kernel CPU", totals.kernel_cpu_ns),
        ("interrupts", totals.irq_ns.unwrap_or(0)),
        ("outside", outside.saturating_sub(slept_outside)),
    ]
    .map(plain)
    .into_iter()
    .chain(quota)
    .chain([Share {
        cause: "waiting for a CPU".to_string(),
        ns: waiting,
        owner: had_by,
        ..Share::default()
    }])
    .collect()
}

/// Name, time and period.
type Quota<'a> = (&'a Option<String>, Option<u64>, Option<u64>);

/// What quotas of control groups took, and in words who had the CPU most of the time otherwise.
fn cpu_waits(waits: &[CpuWait], waited_ns: u64) -> (Vec<Share>, Option<String>) {
    let mut quotas: BTreeMap<Quota, Share> = BTreeMap::new();
    let mut owners: BTreeMap<(bool, &str), (u64, BTreeSet<u32>)> = BTreeMap::new();
    let mut left_ns = waited_ns;
    for wait in waits {
        if wait.kind == QUOTA {
            let ns = wait.ns.min(left_ns);
            left_ns -= ns;
            let quota = quotas.entry((&wait.group, wait.quota_ns, wait.period_ns));
            let share = quota.or_insert_with(|| Share {
                cause: "CPU quota".to_string(),
                resource: Some(Resource {
                    kind: "cgroup".to_string(),
                    name: wait.group.clone(),
                }),
                count: Some(0),
                max_ns: Some(0),
                ..Share::default()
            });
            share.ns = share.ns.saturating_add(ns);
            share.count = Some(share.count.unwrap_or(0).saturating_add(wait.turns));
            share.max_ns = share.max_ns.max(Some(wait.max_ns));
        }
        if let (Some(comm), Some(pid)) = (&wait.comm, wait.pid) {
            let owner = owners.entry((wait.is_own, comm)).or_default();
            owner.0 = owner.0.saturating_add(wait.ns);
            owner.1.insert(pid);
        }
    }
    let most = owners.iter().max_by_key(|(_, (ns, _))| *ns);
    // One of many that took turns is not the one that had it.
    let most = most.filter(|(_, (ns, _))| *ns as f64 >= left_ns as f64 * MUST_HAVE);
    let had_by = most.map(|((is_own, comm), (_, pids))| match (is_own, pids.len()) {
        (true, _) => format!("{comm} itself"),
        (false, 1) => comm.to_string(),
        (false, count) => format!("{comm} ({count} processes)"),
    });
    (quotas.into_values().collect(), had_by)
}

/// One share for each label and call.
fn sleeps(report: &Report) -> Vec<Share> {
    let mut groups: BTreeMap<(&str, &str), Vec<&Sleep>> = BTreeMap::new();
    for sleep in &report.sleeps {
        let group = groups.entry((&sleep.label, &sleep.syscall));
        group.or_default().push(sleep);
    }
    let share = |((label, call), sleeps): ((&str, &str), Vec<&Sleep>)| {
        let total = |of: fn(&Sleep) -> u64| {
            let parts = sleeps.iter().map(|sleep| of(sleep));
            parts.fold(0, u64::saturating_add)
        };
        let resources = sleeps.iter().flat_map(|sleep| &sleep.resources);
        let owners = sleeps.iter().flat_map(|sleep| &sleep.owners);
        let held = owners.clone().map(|owner| owner.blocked_ns);
        let held = held.fold(0, u64::saturating_add);
        let is_for_lock = held > total(|sleep| sleep.blocked_ns) / 2;
        let known = owners.filter(|owner| is_for_lock && owner.comm.is_some());
        let sites = sleeps.iter().flat_map(|sleep| &sleep.call_sites);
        Share {
            cause: label.to_string(),
            ns: total(|sleep| sleep.blocked_ns),
            class: sleeps.first().map(|sleep| sleep.class.clone()),
            call: Some(call.to_string()),
            count: Some(total(|sleep| sleep.count)),
            max_ns: sleeps.iter().map(|sleep| sleep.max_ns).max(),
            resource: resources
                .max_by_key(|share| share.blocked_ns)
                .map(|share| share.resource.clone()),
            owner: known
                .max_by_key(|owner| owner.blocked_ns)
                .and_then(|owner| owner.comm.clone()),
            caller: sites
                .max_by_key(|site| site.blocked_ns)
                .and_then(|site| site.caller.clone()),
            is_for_lock,
            open: 0,
        }
    };
    groups.into_iter().map(share).collect()
}

impl Share {
    /// `has_several`: some process has more than one thread. Else a wait for time is what a process does,
    /// and no thread that looks after things now and then.
    fn waits_for_work(&self, has_several: bool) -> bool {
        let waits = Waits {
            label: &self.cause,
            class: self.class.as_deref().unwrap_or_default(),
            count: self.count.unwrap_or(0),
            open: self.open,
            blocked_ns: self.ns,
            is_for_lock: self.is_for_lock,
        };
        match waits.are_for() {
            For::Idle => has_several || self.cause != TIMER,
            For::Work | For::CannotTell => has_several,
            For::Other => false,
        }
    }
}

/// Sleeps that had not ended are in no row of sleeps, but in the sum of what threads slept: `going_on_ns`.
/// Each call that had not returned has a part of that, by its length.
fn add_in_flight(shares: &mut Vec<Share>, report: &Report, going_on_ns: u64) {
    let asleep = |call: &&InFlight| !AWAKE.contains(&call.label.as_str());
    let calls: Vec<&InFlight> = report.in_flight.iter().filter(asleep).collect();
    let all: f64 = calls.iter().map(|call| call.for_ns as f64).sum();
    let scale = (going_on_ns as f64 / all.max(1.0)).min(1.0);
    for call in calls {
        let ns = (call.for_ns as f64 * scale) as u64;
        let is_same = |share: &&mut Share| {
            share.cause == call.label && share.call.as_deref() == Some(&call.syscall)
        };
        let known = match shares.iter_mut().find(is_same) {
            Some(known) => known,
            None => {
                shares.push(Share {
                    cause: call.label.clone(),
                    class: Some(call.class.clone()),
                    call: Some(call.syscall.clone()),
                    ..Share::default()
                });
                shares.last_mut().expect("one was added")
            }
        };
        known.count = Some(known.count.unwrap_or(0).saturating_add(1));
        known.open += 1;
        if call.owner.is_some() && ns >= known.ns {
            known.is_for_lock = true;
        }
        if ns > known.max_ns.unwrap_or(0) {
            known.max_ns = Some(ns);
            known.resource = call.resource.clone().or(known.resource.take());
            let owner = call.owner.as_ref().and_then(|owner| owner.comm.clone());
            known.owner = owner.or(known.owner.take());
        }
        known.ns = known.ns.saturating_add(ns);
    }
}

#[cfg(test)]
#[path = "headline/tests.rs"]
mod tests;
