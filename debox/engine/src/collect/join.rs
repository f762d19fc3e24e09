//! Joins the results of two sessions of one run, the second of which began after the first had ended.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::Snapshot;
use crate::sums;
use crate::tables::{self, add, types};

/// Distinguishes the names of stacks of open sleeps from others.
const OPEN: &str = "open";

impl Snapshot {
    /// Adds the results of an earlier session. A thread that was alive when that session ended is
    /// matched with the thread of the same ids here, if there is one; its life then lacks the time in
    /// between.
    pub(crate) fn add_earlier(&mut self, mut earlier: Snapshot) {
        earlier.end_open_sleeps();
        self.add_lives(&earlier);
        for (call, row) in &earlier.rows {
            sums::add_to_row(self.rows.entry(*call).or_default(), row);
        }
        add_table(&mut self.sleeps, earlier.sleeps, add_sleep);
        add_table(&mut self.wakers, earlier.wakers, add_waker);
        add_table(&mut self.owners, earlier.owners, |sum, row| {
            add(&mut sum.count, row.count);
            add(&mut sum.blocked_ns, row.blocked_ns);
        });
        add_table(&mut self.resources, earlier.resources, |sum, row| {
            add(&mut sum.count, row.count);
            add(&mut sum.blocked_ns, row.blocked_ns);
        });
        add_table(&mut self.sites, earlier.sites, |sum, row| {
            add(&mut sum.count, row.count);
            add(&mut sum.blocked_ns, row.blocked_ns);
            add(&mut sum.wall_ns, row.wall_ns);
            sum.max_ns = sum.max_ns.max(row.max_ns);
        });
        add_table(&mut self.cpu_waits, earlier.cpu_waits, |sum, row| {
            add(&mut sum.turns, row.turns);
            add(&mut sum.ns, row.ns);
            sum.max_ns = sum.max_ns.max(row.max_ns);
            sum.cpus_allowed = sum.cpus_allowed.min(row.cpus_allowed);
            sum.flags |= row.flags;
        });
        add_table(&mut self.spins, earlier.spins, |sum, row| {
            add(&mut sum.count, row.count);
            add(&mut sum.ns, row.ns);
            sum.max_ns = sum.max_ns.max(row.max_ns);
        });
        self.chains.extend(earlier.chains);
        // Names of stacks are unique to the session, or are determined by the stack.
        self.stacks.extend(earlier.stacks);
        sums::add_lost(&mut self.lost, &earlier.lost);
        add(&mut self.probe_misses, earlier.probe_misses);
        add(&mut self.refused, earlier.refused);
        self.finds_owners &= earlier.finds_owners;
        self.tells_steal &= earlier.tells_steal;
        self.steal_ns = self
            .steal_ns
            .zip(earlier.steal_ns)
            .map(|(now, before)| now.saturating_add(before));
        self.started_ns = earlier.started_ns;
    }

    /// Counts the sleeps that were open when the session ended, up to that time. Their wakers are
    /// unknown.
    fn end_open_sleeps(&mut self) {
        for (at, stack) in std::mem::take(&mut self.open_calls) {
            let thread = &self.threads[at];
            if thread.mode != tables::MODE_BLOCKED {
                continue;
            }
            let since = match thread.has_parts {
                0 => thread.begin_ns,
                _ => thread.stamp_ns,
            };
            let blocked_ns = self.stopped_ns.saturating_sub(since);
            let mut hasher = DefaultHasher::new();
            (OPEN, &stack).hash(&mut hasher);
            let name = hasher.finish();
            let key = types::sleep_key {
                stack: name,
                call: thread.call,
                lock_flags: 0,
            };
            let row = types::sleep_row {
                count: 1,
                blocked_ns,
                max_ns: blocked_ns,
                ..types::sleep_row::default()
            };
            add_table(&mut self.sleeps, vec![(key, row)], add_sleep);
            let woken = types::waker_key {
                stack: name,
                call: thread.call,
                ..types::waker_key::default()
            };
            let once = types::waker_row {
                count: 1,
                ..types::waker_row::default()
            };
            add_table(&mut self.wakers, vec![(woken, once)], add_waker);
            self.stacks.kernel.insert(name, stack);
        }
    }

    fn add_lives(&mut self, earlier: &Snapshot) {
        let numbers = |thread: &types::thread| (thread.tgid, thread.tid);
        let listed = self.threads.iter().enumerate();
        let listed = listed.filter(|(at, _)| Some(*at) != self.unlisted);
        let places: HashMap<_, usize> = listed.map(|(at, thread)| (numbers(thread), at)).collect();
        for (at, thread) in earlier.threads.iter().enumerate() {
            if earlier.unlisted == Some(at) {
                match self.unlisted {
                    Some(at) => tables::add_life(&mut self.threads[at], thread),
                    None => {
                        self.unlisted = Some(self.threads.len());
                        self.threads.push(*thread);
                    }
                }
                continue;
            }
            match places.get(&numbers(thread)) {
                Some(at) if thread.end_ns == 0 => {
                    let whole = &mut self.threads[*at];
                    // The number of faults between calls is only known of threads that have ended.
                    let cut = types::thread {
                        birth_faults_minor: 0,
                        birth_faults_major: 0,
                        end_faults_minor: thread.call_faults_minor,
                        end_faults_major: thread.call_faults_major,
                        ..*thread
                    };
                    tables::add_life(whole, &cut);
                    whole.birth_ns = thread.birth_ns;
                    whole.flags = thread.flags | (whole.flags & !tables::THREAD_PARTIAL);
                }
                _ => self.threads.push(types::thread {
                    end_ns: match thread.end_ns {
                        0 => earlier.stopped_ns,
                        end => end,
                    },
                    ..*thread
                }),
            }
        }
    }
}

fn add_sleep(sum: &mut types::sleep_row, row: &types::sleep_row) {
    add(&mut sum.count, row.count);
    add(&mut sum.blocked_ns, row.blocked_ns);
    sum.max_ns = sum.max_ns.max(row.max_ns);
    sum.waiters_entry = sum.waiters_entry.max(row.waiters_entry);
    sum.waiters_exit = sum.waiters_exit.max(row.waiters_exit);
}

fn add_waker(sum: &mut types::waker_row, row: &types::waker_row) {
    add(&mut sum.count, row.count);
}

fn add_table<K: Copy, V: Copy>(sum: &mut Vec<(K, V)>, more: Vec<(K, V)>, add: impl Fn(&mut V, &V)) {
    let keys = sum.iter().enumerate();
    let places: HashMap<Vec<u8>, usize> = keys
        .map(|(at, (key, _))| (tables::bytes_of(key).to_vec(), at))
        .collect();
    for (key, value) in more {
        match places.get(tables::bytes_of(&key)) {
            Some(at) => add(&mut sum[*at].1, &value),
            None => sum.push((key, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::options::{Detail, Tap};

    fn thread(tid: u32, end_ns: u64) -> types::thread {
        types::thread {
            tid,
            tgid: 7,
            birth_ns: 100,
            end_ns,
            calls: 3,
            between: [10, 0, 0, 0, 0, 0],
            in_calls: [5, 20, 0, 0, 0, 0],
            birth_faults_minor: 1_000,
            end_faults_minor: 1_009,
            call_faults_minor: 4,
            ..types::thread::default()
        }
    }

    fn snapshot(threads: Vec<types::thread>, unlisted: Option<usize>) -> Snapshot {
        let row = types::row {
            calls: 3,
            max_ns: 9,
            ..types::row::default()
        };
        let sleep = types::sleep_row {
            count: 2,
            blocked_ns: 20,
            max_ns: 15,
            ..types::sleep_row::default()
        };
        let key = |stack| types::sleep_key {
            stack,
            ..types::sleep_key::default()
        };
        Snapshot {
            threads,
            unlisted,
            rows: BTreeMap::from([(0, row)]),
            sleeps: vec![(key(0), sleep), (key(1), sleep)],
            ..Snapshot::empty(Tap::Kernel, Detail::default(), 500)
        }
    }

    #[test]
    fn lives_and_tables_are_added_up() {
        let earlier = snapshot(
            vec![thread(1, 200), thread(0, 0), thread(2, 0), thread(3, 0)],
            Some(1),
        );
        // The id 1 was reused.
        let later = vec![thread(1, 0), thread(2, 900), thread(0, 0)];
        let mut both = snapshot(later, Some(2));
        both.sleeps[1].0.stack = 2;
        both.stopped_ns = 1_000;
        both.add_earlier(earlier);
        let seen: Vec<_> = both
            .threads
            .iter()
            .map(|thread| (thread.tid, thread.end_ns, thread.calls))
            .collect();
        // The third thread was not found again: its life is known up to the end of the first session.
        assert_eq!(
            seen,
            [(1, 0, 3), (2, 900, 6), (0, 0, 6), (1, 200, 3), (3, 500, 3)]
        );
        let whole = &both.threads[1];
        assert_eq!((whole.between[0], whole.in_calls[1]), (20, 40));
        let faults = whole.end_faults_minor - whole.birth_faults_minor;
        assert_eq!((faults, whole.call_faults_minor), (13, 8));
        assert_eq!((both.rows[&0].calls, both.rows[&0].max_ns), (6, 9));
        let sleeps: Vec<_> = both
            .sleeps
            .iter()
            .map(|(key, row)| (key.stack, row.count, row.max_ns))
            .collect();
        assert_eq!(sleeps, [(0, 4, 15), (2, 2, 15), (1, 2, 15)]);
        assert_eq!((both.unlisted, both.stopped_ns), (Some(2), 1_000));
    }
}
