//! Threads that wait for work.
//!
//! A thread of a pool sleeps on a futex between two pieces of work. To the kernel that is a lock like any
//! other, and so it is one in every table; as a finding it would stand above all that anybody is slowed
//! down by. What tells it from a contended lock: nearly all of the thread's time in calls goes into such
//! waits, they are long, and no lock that the kernel could see the holder of is there.

use std::collections::BTreeMap;

use crate::report::{SlowCall, Thread, Wait};

/// Of a thread's time in calls that is no idle wait: this part goes into such waits.
const PART_MIN: f64 = 0.9;
/// So long is each on average: locks are held for less.
const MEAN_MIN_NS: u64 = 10_000_000;

const FUTEX: &str = "futex";

/// Whether it may be a wait for work.
fn is_candidate(wait: &Wait) -> bool {
    wait.label == FUTEX && wait.class != "idle" && wait.owner_comm.is_none()
}

/// The waits of a table are those of one thread, or of several with the same name.
type Group = (String, bool, Option<u32>);

fn group(wait: &Wait) -> Group {
    let tid = (!wait.many_threads).then_some(wait.tid);
    (wait.comm.clone(), wait.is_main, tid)
}

/// Whether the thread's waits are in rows of the group.
fn is_of(thread: &Thread, (comm, is_main, tid): &Group) -> bool {
    match tid {
        Some(tid) => thread.tid == *tid,
        None => thread.comm == *comm && (thread.tid == thread.pid) == *is_main,
    }
}

/// Marks the threads that are at rest. `are_all`: no thread is left out of the list.
pub fn mark(threads: &mut [Thread], are_all: bool, waits: &[Wait]) {
    let mut groups: BTreeMap<Group, (u64, u64)> = BTreeMap::new();
    for wait in waits.iter().filter(|wait| is_candidate(wait)) {
        let sums = groups.entry(group(wait)).or_default();
        sums.0 = sums.0.saturating_add(wait.blocked_ns);
        sums.1 = sums.1.saturating_add(wait.count);
    }
    for (group, (blocked, count)) in groups {
        if (group.2.is_none() && !are_all) || blocked / count.max(1) < MEAN_MIN_NS {
            continue;
        }
        let of_group = || threads.iter().filter(|thread| is_of(thread, &group));
        let active = of_group().fold(0u64, |sum, thread| sum.saturating_add(active(thread)));
        if blocked as f64 >= active as f64 * PART_MIN && active > 0 {
            let resting = threads.iter_mut().filter(|thread| is_of(thread, &group));
            resting.for_each(|thread| thread.at_rest = true);
        }
    }
}

fn active(thread: &Thread) -> u64 {
    thread.budget.wall_ns.saturating_sub(thread.budget.idle_ns)
}

/// Whether this is what threads at rest do.
pub fn is_rest(wait: &Wait, threads: &[Thread]) -> bool {
    let group = group(wait);
    let mut of_group = threads.iter().filter(|thread| is_of(thread, &group));
    is_candidate(wait) && of_group.any(|thread| thread.at_rest)
}

/// The same of a call.
pub fn is_rest_call(call: &SlowCall, threads: &[Thread]) -> bool {
    let longest = call.sleeps.first();
    let slept = longest.is_some_and(|sleep| {
        sleep.label == FUTEX && sleep.blocked_ns as f64 >= call.budget.wall_ns as f64 * PART_MIN
    });
    let mut resting = threads.iter().filter(|thread| thread.at_rest);
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
            at_rest: false,
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
            blocked_ns,
            longest_ns: blocked_ns,
            owner_certainty: Some("none".into()),
            owner_comm: owner.map(str::to_string),
            owner_tid: owner.map(|_| 3),
            many_owners: false,
            owner_doing: None,
            waker: "main".into(),
        }
    }

    fn resting(mut threads: Vec<Thread>, waits: &[Wait]) -> Vec<u32> {
        mark(&mut threads, true, waits);
        let resting = threads.iter().filter(|thread| thread.at_rest);
        resting.map(|thread| thread.tid).collect()
    }

    const SECOND: u64 = 1_000_000_000;
    const NOBODY: [u32; 0] = [];

    #[test]
    fn a_worker_between_two_pieces_of_work_is_at_rest() {
        let threads = vec![thread(2, SECOND), thread(3, SECOND)];
        let waits = [wait(Some(2), 4, SECOND - 1000, None)];
        assert_eq!(resting(threads, &waits), [2]);
    }

    #[test]
    fn several_of_a_name_are_at_rest_together() {
        let threads = vec![thread(2, SECOND), thread(3, SECOND)];
        let waits = [wait(None, 20, 2 * SECOND - 1000, None)];
        assert_eq!(resting(threads.clone(), &waits), [2, 3]);
        // One of the two may have worked all the time.
        let waits = [wait(None, 20, SECOND, None)];
        assert_eq!(resting(threads, &waits), NOBODY);
    }

    #[test]
    fn a_contended_lock_is_no_rest() {
        let threads = || vec![thread(2, SECOND)];
        let held = [wait(Some(2), 4, SECOND - 1000, Some("holder"))];
        assert_eq!(resting(threads(), &held), NOBODY);
        let short = [wait(Some(2), 4000, SECOND - 1000, None)];
        assert_eq!(resting(threads(), &short), NOBODY);
        let works = [wait(Some(2), 4, SECOND / 2, None)];
        assert_eq!(resting(threads(), &works), NOBODY);
    }
}
