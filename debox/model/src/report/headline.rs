//! The opening of a report: where the time went, by cause, and which cause matters most.
//!
//! The account covers the time of all threads together. It leaves out what another monitored process accounts for
//! (waiting for a child). If several threads run side by side and something else goes on, it also leaves out threads
//! that wait for work; the report gives that time separately from the shares.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    CallPart, CpuWait, CpuWaitKind, Headline, InCall, InFlight, Report, Resource, ResourceShare,
    SampledPlace, Samples, Share, ShortLived, Sleep, SleepCallSite, Syscall, Totals,
};
use crate::rest::{For, Waits};

/// Threads run side by side if their time adds up to more than this many times the run's duration; the time of threads
/// that take turns adds up to little more than the duration.
const SIDE_BY_SIDE: f64 = 1.25;
/// Something goes on if at least this part of the run's time is not idle waits.
const GOES_ON: f64 = 0.5;

/// A process is named if it had the CPU for at least this part of the time in which threads waited for one, and a
/// resource if it was waited on for at least this part of the time of sleeps.
const MUST_HAVE: f64 = 0.4;
/// A call has most of the time if it has at least this part.
const MOST: f64 = 0.5;
/// Short-lived processes are reported if there are at least [`MANY`] that live no longer than [`SHORT_NS`] and
/// together have at least [`SHORT_PART`] of the time.
const MANY: u64 = 20;
const SHORT_NS: u64 = 50_000_000;
const SHORT_PART: f64 = 0.3;

/// Labels of waits that the children account for.
pub const WAITS_FOR_CHILDREN: [&str; 2] = ["child process", "vfork child"];
/// Labels of calls that had not returned and were not asleep.
const AWAKE: [&str; 2] = ["running", "waiting for a CPU"];
const TIMER: &str = "timer";
const IDLE: &str = "idle";
/// `epoll`: waits for files of which none was ready, so a signal or the end of the process ended them. `eventfd`: what
/// threads wake each other with.
const WITHIN: [&str; 2] = ["epoll", "eventfd"];
/// Calls in which servers wait for requests.
const WAITS_FOR_FILES: [&str; 10] = [
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "accept",
    "accept4",
    "io_uring_enter",
];
/// Calls that only servers make.
const SERVING: [&str; 3] = ["listen", "accept", "accept4"];

/// The data that a headline is made from.
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
    /// One for each call.
    pub calls: Vec<CallTime>,
    pub short_lived: Option<ShortLived>,
    /// Whether there is a call that only servers make.
    pub has_server_calls: bool,
    /// The functions with the most samples between calls, and in calls.
    pub computing: Option<SampledPlace>,
    pub in_kernel: Option<SampledPlace>,
}

/// Kernel CPU time of all calls of one name.
#[derive(Debug, Clone, Default)]
pub struct CallTime {
    pub name: String,
    pub cpu_ns: u64,
}

/// Whether the call is one that only servers make.
pub fn is_server_call(name: &str) -> bool {
    SERVING.contains(&name)
}

impl Report {
    /// Adds the headline, which follows from the rest of the report.
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
        let lives = lives(report);
        let calls = || report.syscalls.iter().filter(|call| call.name != "(user)");
        let time = |call: &Syscall| CallTime {
            name: call.name.clone(),
            cpu_ns: call.cpu_ns,
        };
        Headline::of_account(Account {
            duration_ns: report.duration_ns,
            threads: report.threads.len(),
            processes: lives.len(),
            totals: report.totals.clone(),
            sleeps,
            cpu_waits: report.cpu_waits.clone(),
            calls: calls().map(time).collect(),
            short_lived: short_lived(lives.values(), report.totals.wall_ns),
            has_server_calls: report.has_listener || calls().any(|call| is_server_call(&call.name)),
            computing: report.samples.as_ref().and_then(Samples::computing),
            in_kernel: report.samples.as_ref().and_then(Samples::in_kernel),
        })
    }

    /// `None` if there is no time in it.
    pub fn of_account(account: Account) -> Option<Headline> {
        let others = others(&account);
        let mut shares = account.sleeps;
        shares.extend(others);
        let has_several = account.threads > account.processes;
        let is_told = |share: &Share| {
            let by_child =
                account.processes > 1 && WAITS_FOR_CHILDREN.contains(&share.cause.as_str());
            share.ns > 0 && !by_child
        };
        shares.retain(is_told);

        let run = account.duration_ns as f64;
        let all = sum(&shares);
        let mut idle_ns = 0;
        if all as f64 > run * SIDE_BY_SIDE {
            // Waits of pools first, then waits that their own process ends, then all waits for events.
            for are_aside in [Share::is_parked, Share::is_within, Share::waits_for_work] {
                let aside = |share: &Share| are_aside(share, has_several);
                let ns = sum(shares.iter().filter(|share| aside(share)));
                if all.saturating_sub(idle_ns + ns) as f64 >= run * GOES_ON {
                    shares.retain(|share| !aside(share));
                    idle_ns += ns;
                }
            }
        }
        let of_ns = sum(&shares);
        let in_call = in_call(&account.calls, &shares, of_ns);
        let serving_ns = sum(shares.iter().filter(|share| share.is_for_files()));
        let mut shares = by_cause(shares);
        shares.sort_by_key(|share| std::cmp::Reverse(share.ns));
        let first = shares.first()?;
        let is_idle = first.class.as_deref() == Some(IDLE);
        // A runtime's thread that looks after its timers may wait for requests by itself.
        let may_serve = first.is_parked || serving_ns as f64 >= of_ns as f64 * MUST_HAVE;
        let is_served = is_idle && may_serve;
        let is_most = first.ns as f64 >= of_ns as f64 * MOST;
        Some(Headline {
            of_ns,
            idle_ns,
            is_served: is_served && account.has_server_calls,
            in_call: in_call.filter(|_| !is_most),
            short_lived: account.short_lived,
            shares,
        })
    }
}

/// How long each process lived: as long as the longest of its threads.
fn lives(report: &Report) -> BTreeMap<u32, u64> {
    let mut lives = BTreeMap::new();
    for thread in &report.threads {
        let life: &mut u64 = lives.entry(thread.pid).or_default();
        *life = thread.totals.wall_ns.max(*life);
    }
    lives
}

fn short_lived<'a>(lives: impl Iterator<Item = &'a u64>, all_ns: u64) -> Option<ShortLived> {
    let short = lives.filter(|life| **life <= SHORT_NS);
    let (processes, ns) = short.fold((0, 0u64), |(count, sum), life| {
        (count + 1, sum.saturating_add(*life))
    });
    let is_much = processes >= MANY && ns as f64 >= all_ns as f64 * SHORT_PART;
    is_much.then(|| ShortLived {
        processes,
        mean_ns: ns / processes,
    })
}

/// The call with most of the time, not counting what is left out of the shares.
fn in_call(calls: &[CallTime], shares: &[Share], of_ns: u64) -> Option<InCall> {
    let in_call = |call: &CallTime| {
        let sleeps = shares.iter().filter(|share| share.count.is_some());
        let own = sleeps.filter(|share| share.call.as_deref() == Some(&call.name));
        let mut parts: Vec<CallPart> = own
            .map(|share| CallPart {
                cause: share.cause.clone(),
                ns: share.ns,
            })
            .collect();
        parts.push(CallPart {
            cause: "kernel CPU".to_string(),
            ns: call.cpu_ns,
        });
        parts.sort_by_key(|part| std::cmp::Reverse(part.ns));
        InCall {
            call: call.name.clone(),
            ns: parts.iter().fold(0, |sum, part| sum + part.ns),
            shares: parts,
        }
    };
    let most = calls.iter().map(in_call).max_by_key(|call| call.ns)?;
    (most.ns as f64 >= of_ns as f64 * MOST).then_some(most)
}

/// Merges sleeps with the same label into one share: a lock may be waited for in several calls.
fn by_cause(shares: Vec<Share>) -> Vec<Share> {
    let (mut labels, mut others) = (BTreeMap::<String, Vec<Share>>::new(), Vec::new());
    for share in shares {
        match share.class {
            Some(_) => labels.entry(share.cause.clone()).or_default().push(share),
            None => others.push(share),
        }
    }
    let sleeps = labels.into_values().filter_map(one_share);
    sleeps.chain(others).collect()
}

fn one_share(mut shares: Vec<Share>) -> Option<Share> {
    shares.sort_by_key(|share| std::cmp::Reverse(share.ns));
    let all = sum(&shares);
    let count = shares.iter().filter_map(|share| share.count);
    let count = count.fold(0, u64::saturating_add);
    let max_ns = shares.iter().filter_map(|share| share.max_ns).max();
    let mut one = shares.into_iter().next()?;
    if (one.ns as f64) < all as f64 * MOST {
        one.call = None;
        one.caller = None;
    }
    if (one.ns as f64) < all as f64 * MUST_HAVE {
        one.resource = None;
        one.owner = None;
    }
    one.ns = all;
    one.count = Some(count);
    one.max_ns = max_ns;
    Some(one)
}

fn sum<'a>(shares: impl IntoIterator<Item = &'a Share>) -> u64 {
    let times = shares.into_iter().map(|share| share.ns);
    times.fold(0, u64::saturating_add)
}

/// The shares of everything that is not a sleep on something known.
fn others(account: &Account) -> Vec<Share> {
    let totals = &account.totals;
    let slept = sum(&account.sleeps);
    let busiest = account.calls.iter().max_by_key(|call| call.cpu_ns);
    let plain = |(cause, ns): (&str, u64)| Share {
        cause: cause.to_string(),
        ns,
        call: busiest
            .filter(|_| cause == "kernel CPU")
            .map(|call| call.name.clone()),
        place: match cause {
            "user CPU" => account.computing.clone(),
            "kernel CPU" => account.in_kernel.clone(),
            _ => None,
        },
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

/// The shares of control groups' quotas, and, in words, who had the CPU for most of the remaining time.
fn cpu_waits(waits: &[CpuWait], waited_ns: u64) -> (Vec<Share>, Option<String>) {
    let mut quotas: BTreeMap<Quota, Share> = BTreeMap::new();
    let mut owners: BTreeMap<(bool, &str), (u64, BTreeSet<u32>)> = BTreeMap::new();
    let mut left_ns = waited_ns;
    for wait in waits {
        if wait.kind == CpuWaitKind::Quota {
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
    // A process that was only one of many taking turns is not named.
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
        let within = sleeps
            .iter()
            .filter(|sleep| sleep.class == IDLE && label != TIMER);
        let within = within.flat_map(|sleep| &sleep.resources);
        let within = within.filter(|share| is_within(&share.resource));
        let within: Vec<&ResourceShare> = within.collect();
        let total = |of: fn(&Sleep) -> u64| {
            let parts = sleeps.iter().map(|sleep| of(sleep));
            parts.fold(0, u64::saturating_add)
        };
        let resources = sleeps.iter().flat_map(|sleep| &sleep.resources);
        let resources = resources.filter(|share| within.is_empty() || !is_within(&share.resource));
        let slept_ns = total(|sleep| sleep.blocked_ns);
        let within_ns = within
            .iter()
            .fold(0u64, |sum, part| sum.saturating_add(part.blocked_ns));
        let owners = sleeps.iter().flat_map(|sleep| &sleep.owners);
        let is_for_lock = Sleep::are_for_lock(&sleeps);
        let known = owners.filter(|owner| is_for_lock && owner.comm.is_some());
        let sites = sleeps.iter().flat_map(|sleep| &sleep.call_sites);
        let parked_ns = total(Sleep::parked_ns);
        let share = Share {
            cause: label.to_string(),
            ns: slept_ns,
            class: sleeps.first().map(|sleep| sleep.class.clone()),
            call: Some(call.to_string()),
            count: Some(total(|sleep| sleep.count)),
            max_ns: sleeps.iter().map(|sleep| sleep.max_ns).max(),
            resource: most_waited_on(resources, slept_ns.saturating_sub(within_ns)),
            owner: known
                .max_by_key(|owner| owner.blocked_ns)
                .and_then(|owner| owner.comm.clone()),
            caller: sites
                .max_by_key(|site| site.blocked_ns)
                .and_then(|site| site.caller.clone()),
            is_for_lock,
            is_parked: parked_ns > slept_ns / 2,
            ..Share::default()
        };
        let apart: Vec<&SleepCallSite> = match share.is_for_lock {
            true => Vec::new(), // all of it is
            false => sleeps
                .iter()
                .flat_map(|sleep| sleep.not_for_work())
                .collect(),
        };
        match apart.is_empty() {
            true => without(share, &within),
            false => not_for_work(share, &apart),
        }
    };
    groups.into_iter().flat_map(share).collect()
}

/// Splits the share of all threads' futex waits into one without those at these call sites and one of those.
fn not_for_work(mut share: Share, sites: &[&SleepCallSite]) -> Vec<Share> {
    let sum = |of: fn(&SleepCallSite) -> u64| {
        let each = sites.iter().map(|site| of(site));
        each.fold(0, u64::saturating_add)
    };
    let most = sites.iter().max_by_key(|site| site.blocked_ns);
    let own = Share {
        ns: sum(|site| site.blocked_ns).min(share.ns),
        count: Some(sum(|site| site.count)),
        max_ns: None, // not known of a call site
        resource: None,
        owner: None,
        caller: most.and_then(|site| site.caller.clone()),
        is_for_lock: true,
        is_parked: false,
        ..share.clone()
    };
    share.ns -= own.ns;
    share.count = Some(
        share
            .count
            .unwrap_or(0)
            .saturating_sub(own.count.unwrap_or(0)),
    );
    vec![share, own]
}

fn is_within(resource: &Resource) -> bool {
    WITHIN.contains(&resource.kind.as_str())
}

/// Splits the share into one without these waits and one of these waits.
fn without(mut share: Share, within: &[&ResourceShare]) -> Vec<Share> {
    let count = within
        .iter()
        .fold(0u64, |sum, part| sum.saturating_add(part.count));
    let ns = within
        .iter()
        .fold(0u64, |sum, part| sum.saturating_add(part.blocked_ns));
    if count == 0 {
        return vec![share];
    }
    let own = Share {
        ns: ns.min(share.ns),
        count: Some(count),
        resource: None,
        is_within: true,
        ..share.clone()
    };
    share.ns -= own.ns;
    share.count = share.count.map(|all| all.saturating_sub(count));
    share.resource = share.resource.filter(|most| !is_within(most));
    vec![share, own]
}

/// A resource's kind, and its name without the parts that differ between connections to one peer.
type Peer<'a> = (&'a str, Option<String>);

/// The resource that was waited on most; `None` if it is only one of many. Connections to the same peer count as one.
fn most_waited_on<'a>(
    resources: impl Iterator<Item = &'a ResourceShare>,
    slept_ns: u64,
) -> Option<Resource> {
    let mut peers: BTreeMap<Peer, (u64, Vec<&Resource>)> = BTreeMap::new();
    for share in resources {
        let resource = &share.resource;
        let peer = resource.name.as_deref().map(without_own_end);
        let known = peers.entry((&resource.kind, peer)).or_default();
        known.0 = known.0.saturating_add(share.blocked_ns);
        known.1.push(resource);
    }
    let most = peers.into_iter().max_by_key(|(_, (ns, _))| *ns);
    let most = most.filter(|(_, (ns, _))| *ns as f64 >= slept_ns as f64 * MUST_HAVE);
    most.map(
        |((kind, peer), (_, resources))| match resources.as_slice() {
            [one] => (*one).clone(),
            _ => Resource {
                kind: kind.to_string(),
                name: peer,
            },
        },
    )
}

/// `tcp to PEER` of `tcp OWN to PEER`.
fn without_own_end(name: &str) -> String {
    let parts = name.split_once(' ').zip(name.rsplit_once(" to "));
    match parts {
        Some(((protocol @ ("tcp" | "udp" | "ip"), _), (_, peer))) => {
            format!("{protocol} to {peer}")
        }
        _ => name.to_string(),
    }
}

impl Share {
    fn are_for(&self) -> For {
        let waits = Waits {
            label: &self.cause,
            class: self.class.as_deref().unwrap_or_default(),
            count: self.count.unwrap_or(0),
            open: self.open,
            blocked_ns: self.ns,
            is_for_lock: self.is_for_lock,
            is_parked: self.is_parked,
        };
        waits.are_for()
    }

    /// Whether the wait is for files, as waits for requests are, with or without a time limit.
    fn is_for_files(&self) -> bool {
        let call = self.call.as_deref().unwrap_or_default();
        self.class.as_deref() == Some(IDLE) && WAITS_FOR_FILES.contains(&call)
    }

    /// Whether the wait is that of a pool's thread without work. `has_several`: some process has more than one thread.
    fn is_parked(&self, has_several: bool) -> bool {
        has_several && matches!(self.are_for(), For::Work | For::CannotTell)
    }

    fn is_within(&self, has_several: bool) -> bool {
        has_several && self.is_within
    }

    /// Like `is_parked`, or a wait for events. In a process with one thread, a wait for time is what the process
    /// itself does, not a housekeeping thread.
    fn waits_for_work(&self, has_several: bool) -> bool {
        match self.are_for() {
            For::Idle => has_several || self.cause != TIMER,
            For::Work | For::CannotTell => has_several,
            For::Exchange | For::Other => false,
        }
    }
}

/// Sleeps that had not ended are in no row of sleeps, but in the sum of the time that threads slept. `going_on_ns` is
/// that part of the sum; it is divided among the calls that had not returned, by their length.
fn add_in_flight(shares: &mut Vec<Share>, report: &Report, going_on_ns: u64) {
    let asleep = |call: &&InFlight| !AWAKE.contains(&call.label.as_str());
    let calls: Vec<&InFlight> = report.in_flight.iter().filter(asleep).collect();
    let all: f64 = calls.iter().map(|call| call.for_ns as f64).sum();
    let scale = (going_on_ns as f64 / all.max(1.0)).min(1.0);
    for call in calls {
        let ns = (call.for_ns as f64 * scale) as u64;
        // Nothing ended the wait during nearly all of the run.
        let is_within = call.class == IDLE && call.for_ns >= report.duration_ns / 10 * 9;
        let is_same = |share: &&mut Share| {
            share.cause == call.label
                && share.call.as_deref() == Some(&call.syscall)
                && share.is_within == is_within
        };
        let known = match shares.iter_mut().find(is_same) {
            Some(known) => known,
            None => {
                shares.push(Share {
                    cause: call.label.clone(),
                    class: Some(call.class.clone()),
                    call: Some(call.syscall.clone()),
                    is_within,
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
        if known.resource.is_none() && ns as f64 >= (known.ns + ns) as f64 * MUST_HAVE {
            known.resource = call.resource.clone();
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
