//! Threads that rest, threads that are stuck, and threads that may be either.
//!
//! [`debox_model::rest`] decides what a wait is for. A thread rests if nearly all of its time in calls is spent in
//! waits for work. It is stuck if nearly all of it is spent in waits for something that is held, and the last of these
//! waits has not ended. A thread whose waits look like waits for work, but none of them has ended, may be either.

use std::collections::{BTreeMap, BTreeSet};

use debox_model::rest::{For, Waits, MEAN_MIN_NS};

use crate::report::{Rest, SlowCall, Thread, Wait};

/// The part of a thread's time in calls that counts as nearly all.
const PART_MIN: f64 = 0.9;

/// The label of waits that may be for work.
pub const FUTEX: &str = "futex";

/// The wait as the rule expects it.
fn observed(wait: &Wait) -> Waits<'_> {
    Waits {
        label: &wait.label,
        class: &wait.class,
        count: wait.count,
        open: wait.in_flight,
        blocked_ns: wait.blocked_ns,
        is_for_lock: wait.owner_certainty.is_some(),
        // A row has only one frame of the stack: the program's own function.
        is_parked: false,
    }
}

/// A row of the table has the waits of one thread, or of several threads with the same name.
type Group = (String, bool, Option<u32>);

fn group(wait: &Wait) -> Group {
    let tid = (!wait.many_threads).then_some(wait.tid);
    (wait.comm.clone(), wait.is_main, tid)
}

/// Whether the thread's waits are in rows of the group.
fn is_of(thread: &Thread, group: &Group) -> bool {
    has(group, (thread.pid, thread.tid), &thread.comm)
}

fn has((comm, is_main, only): &Group, (pid, tid): (u32, u32), name: &str) -> bool {
    match only {
        Some(only) => tid == *only,
        None => name == comm && (tid == pid) == *is_main,
    }
}

/// A group's waits on futexes that no thread holds, and its waits for what can be held.
#[derive(Default)]
struct Sums {
    free: Waits<'static>,
    /// Waits for what a known thread holds.
    held_ns: u64,
    held_open: u64,
    /// Waits for what looks like a lock whose holder is unknown.
    unknown_ns: u64,
}

impl Sums {
    fn add(&mut self, wait: &Wait) {
        let seen = observed(wait);
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        if wait.owner_comm.is_some() {
            add(&mut self.held_ns, seen.blocked_ns);
            add(&mut self.held_open, seen.open);
        } else if seen.label == FUTEX && seen.is_for_lock {
            add(&mut self.unknown_ns, seen.blocked_ns);
        } else if seen.label == FUTEX {
            (self.free.label, self.free.class) = (FUTEX, "lock");
            add(&mut self.free.count, seen.count);
            add(&mut self.free.open, seen.open);
            add(&mut self.free.blocked_ns, seen.blocked_ns);
        }
    }

    /// `active`: the time of the group's threads in calls, without idle waits.
    fn rest(&self, active: u64) -> Option<Rest> {
        let is_nearly_all = |ns: u64| active > 0 && ns as f64 >= active as f64 * PART_MIN;
        if is_nearly_all(self.held_ns) && self.held_open > 0 {
            return Some(Rest::Stuck);
        }
        // The word of a condition variable occasionally has the value of a contended lock; a lock's word always does.
        let on_futexes = self.free.blocked_ns.saturating_add(self.unknown_ns);
        if !is_nearly_all(on_futexes) {
            return None;
        }
        match self.free.are_for() {
            For::Work if self.free.blocked_ns >= self.unknown_ns => Some(Rest::AtRest),
            For::Work | For::CannotTell => Some(Rest::CannotTell),
            For::Idle | For::Other => None,
        }
    }
}

/// Marks the threads. `are_all`: the list of threads is complete.
pub fn mark(threads: &mut [Thread], are_all: bool, waits: &[Wait]) {
    let mut groups: BTreeMap<Group, Sums> = BTreeMap::new();
    for wait in waits {
        let (comm, is_main, _) = group(wait);
        // The waits of one thread also count for all threads of its name.
        groups.entry((comm, is_main, None)).or_default().add(wait);
        if !wait.many_threads {
            groups.entry(group(wait)).or_default().add(wait);
        }
    }
    let are_several = |(comm, is_main, _): &Group| {
        let mut waits = waits.iter().filter(|wait| wait.many_threads);
        waits.any(|wait| wait.comm == *comm && wait.is_main == *is_main)
    };
    for (group, sums) in groups {
        if group.2.is_none() && (!are_all || !are_several(&group)) {
            continue;
        }
        let of_group = || threads.iter().filter(|thread| is_of(thread, &group));
        let active = of_group().fold(0u64, |sum, thread| sum.saturating_add(active(thread)));
        let Some(rest) = sums.rest(active) else {
            continue;
        };
        for thread in threads.iter_mut().filter(|thread| is_of(thread, &group)) {
            thread.rest = Some(rest);
            thread.at_rest = rest == Rest::AtRest;
        }
    }
}

fn active(thread: &Thread) -> u64 {
    thread.budget.wall_ns.saturating_sub(thread.budget.idle_ns)
}

/// Whether the thread is left out of the findings: it rests, or whether it rests is unknown.
pub fn is_aside(thread: &Thread) -> bool {
    matches!(thread.rest, Some(Rest::AtRest | Rest::CannotTell))
}

/// Whether the wait is one that such threads rest in.
pub fn is_rest(wait: &Wait, threads: &[Thread]) -> bool {
    let group = group(wait);
    let is_free = wait.label == FUTEX && wait.class != "idle" && wait.owner_comm.is_none();
    let mut of_group = threads.iter().filter(|thread| is_of(thread, &group));
    is_free && of_group.any(is_aside)
}

/// Threads with waits that the findings leave out.
pub struct Groups(BTreeSet<Group>);

impl Groups {
    /// From the waits that are marked.
    pub fn of(waits: &[Wait]) -> Groups {
        let waits = waits.iter().filter(|wait| wait.is_rest);
        Groups(waits.map(group).collect())
    }

    pub fn have(&self, thread: (u32, u32), name: &str) -> bool {
        self.0.iter().any(|group| has(group, thread, name))
    }
}

/// Waits of such threads that ended, in another place than those where the thread and others of its name rest: a lock
/// that the program builds from a condition variable looks like this. The longest first.
pub fn elsewhere<'a>(waits: &'a [Wait], threads: &[Thread]) -> Vec<&'a Wait> {
    let resting = || waits.iter().filter(|wait| is_rest(wait, threads));
    let is_elsewhere = |wait: &&Wait| {
        let is_same = |other: &&Wait| other.comm == wait.comm && other.is_main == wait.is_main;
        let mut others = resting().filter(|other| !std::ptr::eq(*other, *wait));
        let is_unique = !others.any(|other| is_same(&other) && other.caller == wait.caller);
        let mut usual = resting().filter(is_same);
        let is_small = usual.any(|other| other.blocked_ns / 2 >= wait.blocked_ns);
        let is_long = wait.blocked_ns / wait.count.max(1) >= MEAN_MIN_NS;
        let has_ended = wait.in_flight == 0 && wait.waker.starts_with("task ");
        !wait.many_threads && wait.caller.is_some() && is_unique && is_small && is_long && has_ended
    };
    let mut found: Vec<&Wait> = resting().filter(is_elsewhere).collect();
    found.sort_by_key(|wait| std::cmp::Reverse(wait.longest_ns));
    found
}

/// Whether the call is one that such threads rest in.
pub fn is_rest_call(call: &SlowCall, threads: &[Thread]) -> bool {
    let longest = call.sleeps.first();
    let slept = longest.is_some_and(|sleep| {
        sleep.label == FUTEX && sleep.blocked_ns as f64 >= call.budget.wall_ns as f64 * PART_MIN
    });
    let mut resting = threads.iter().filter(|thread| is_aside(thread));
    slept && resting.any(|thread| thread.tid == call.tid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Budget;

    fn thread(tid: u32, wall_ns: u64) -> Thread {
        Thread {
            pid: 1,
            tid,
            comm: "worker".into(),
            calls: 10,
            budget: Budget {
                wall_ns,
                ..Budget::default()
            },
            user_cpu_ns: None,
            resting_ns: 0,
            at_rest: false,
            rest: None,
        }
    }

    fn wait(tid: Option<u32>, count: u64, blocked_ns: u64, owner: Option<&str>) -> Wait {
        Wait {
            comm: "worker".into(),
            is_main: false,
            tid: tid.unwrap_or(2),
            many_threads: tid.is_none(),
            call: "futex".into(),
            label: "futex".into(),
            class: "lock".into(),
            resource: None,
            resources: 0,
            caller: None,
            count,
            in_flight: 0,
            blocked_ns,
            longest_ns: blocked_ns,
            first_ns: 0,
            last_ns: blocked_ns,
            is_rest: false,
            owner_certainty: owner.map(|_| "exact".to_string()),
            owner_comm: owner.map(str::to_string),
            owner_tid: owner.map(|_| 3),
            many_owners: false,
            owner_doing: None,
            waker: "main".into(),
        }
    }

    fn marked(mut threads: Vec<Thread>, waits: &[Wait]) -> Vec<Option<Rest>> {
        mark(&mut threads, true, waits);
        let is_same = |thread: &Thread| thread.at_rest == (thread.rest == Some(Rest::AtRest));
        assert!(threads.iter().all(is_same));
        threads.iter().map(|thread| thread.rest).collect()
    }

    const SECOND: u64 = 1_000_000_000;
    const AT_REST: Option<Rest> = Some(Rest::AtRest);

    #[test]
    fn a_worker_between_two_pieces_of_work_is_at_rest() {
        let threads = vec![thread(2, SECOND), thread(3, SECOND)];
        let waits = [wait(Some(2), 4, SECOND - 1000, None)];
        assert_eq!(marked(threads, &waits), [AT_REST, None]);
    }

    /// A row lock of a database, which the threads of its connections rarely wait for.
    #[test]
    fn a_wait_in_another_place_is_found() {
        let mut threads = vec![thread(2, SECOND), thread(3, SECOND)];
        let at = |caller: &str, wait: Wait| Wait {
            caller: Some(caller.into()),
            waker: "task server".into(),
            ..wait
        };
        let waits = [
            at("next_request", wait(None, 8, SECOND, None)),
            at("next_request", wait(Some(2), 1, SECOND * 6 / 10, None)),
            at("lock_row", wait(Some(2), 1, SECOND * 4 / 10, None)),
            at("short", wait(Some(2), 100, SECOND / 1000, None)),
        ];
        mark(&mut threads, true, &waits);
        assert_eq!(threads[0].rest, AT_REST);
        let found = elsewhere(&waits, &threads);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(found[0].caller.as_deref(), Some("lock_row"));
        assert!(elsewhere(&waits[2..], &threads).is_empty());
    }

    #[test]
    fn several_of_a_name_are_at_rest_together() {
        let threads = vec![thread(2, SECOND), thread(3, SECOND)];
        let waits = [wait(None, 20, 2 * SECOND - 1000, None)];
        assert_eq!(marked(threads.clone(), &waits), [AT_REST, AT_REST]);
        // One of the two threads may have worked all the time.
        let waits = [wait(None, 20, SECOND, None)];
        assert_eq!(marked(threads, &waits), [None, None]);
    }

    /// Three threads of a pool share a row, and a fourth one has its own.
    #[test]
    fn rows_of_one_thread_are_a_part_of_its_names() {
        let threads: Vec<Thread> = (2..6).map(|tid| thread(tid, SECOND)).collect();
        let waits = [
            wait(None, 30, 3 * SECOND - 1000, None),
            wait(Some(5), 4, SECOND - 1000, None),
        ];
        assert_eq!(marked(threads, &waits), [AT_REST; 4]);
    }

    #[test]
    fn a_contended_lock_is_no_rest() {
        let threads = || vec![thread(2, SECOND)];
        let held = [wait(Some(2), 4, SECOND - 1000, Some("holder"))];
        assert_eq!(marked(threads(), &held), [None]);
        let short = [wait(Some(2), 4000, SECOND - 1000, None)];
        assert_eq!(marked(threads(), &short), [None]);
        let works = [wait(Some(2), 4, SECOND / 2, None)];
        assert_eq!(marked(threads(), &works), [None]);
        // A lock of a library that does not record its holder.
        let mut unknown = wait(Some(2), 4, SECOND - 1000, None);
        unknown.owner_certainty = Some("none".into());
        assert_eq!(marked(threads(), &[unknown]), [None]);
    }

    #[test]
    fn a_wait_that_does_not_end_is_stuck_or_cannot_be_told() {
        let mut held = wait(Some(2), 1, SECOND - 1000, Some("holder"));
        held.in_flight = 1;
        let threads = vec![thread(2, SECOND)];
        assert_eq!(marked(threads.clone(), &[held]), [Some(Rest::Stuck)]);
        let mut free = wait(Some(2), 1, SECOND - 1000, None);
        free.in_flight = 1;
        let waits = [free];
        assert_eq!(marked(threads.clone(), &waits), [Some(Rest::CannotTell)]);
        let mut again = threads;
        mark(&mut again, true, &waits);
        assert!(is_rest(&waits[0], &again) && !again[0].at_rest);
    }

    /// A condition variable that counts its signals once passed the value of a contended lock.
    #[test]
    fn one_wait_that_looks_like_a_locks_is_no_lock() {
        let mut like_a_lock = wait(Some(2), 1, SECOND / 4, None);
        like_a_lock.owner_certainty = Some("none".into());
        let waits = [like_a_lock, wait(Some(2), 5, SECOND * 3 / 4 - 1000, None)];
        assert_eq!(marked(vec![thread(2, SECOND)], &waits), [AT_REST]);
    }
}
