//! Under the user tap, threads keep the sums of their calls in memory that they can write to. A report
//! uses none of these sums that cannot be true.

use super::Snapshot;
use crate::options::Tap;
use crate::tables::{self, add, total, types, Possible};

/// Whether a thread's sums of its calls fit into its life, which the probes measured.
pub(super) fn is_possible(thread: &types::thread, stopped_ns: u64) -> bool {
    let end_ns = match thread.end_ns {
        0 => stopped_ns,
        end_ns => end_ns,
    };
    let possible = Possible::within(end_ns.saturating_sub(thread.birth_ns));
    possible.has_time(total(&thread.in_calls))
        && possible.has_calls(thread.calls)
        && possible.has_calls(thread.unstamped.into())
        && possible.has_calls(thread.call_faults_minor)
}

/// Drops a thread's sums of its calls. The division of its time between calls and its own code is then
/// unknown.
fn refuse(thread: &mut types::thread) {
    thread.in_calls = Default::default();
    thread.outside = Default::default();
    (thread.calls, thread.unstamped) = (0, 0);
    thread.call_faults_minor = 0;
    thread.flags |= tables::THREAD_REFUSED;
}

impl Snapshot {
    /// Removes and counts values written by processes that cannot be true: those of threads, and those of
    /// the calls in which threads ended, which the probes add up from the threads' records.
    pub(crate) fn refuse_impossible(&mut self) {
        if self.tap != Tap::User {
            return;
        }
        let mut refused = 0;
        for (at, thread) in self.threads.iter_mut().enumerate() {
            // The sum of many threads has no life of its own to compare with.
            if self.unlisted != Some(at) && !is_possible(thread, self.stopped_ns) {
                refuse(thread);
                refused += 1;
            }
        }
        let passed_ns = self.stopped_ns.saturating_sub(self.started_ns);
        let threads = self.most_threads();
        let possible = Possible::within(passed_ns.saturating_mul(threads));
        let one = Possible::within(passed_ns);
        self.rows.retain(|_, row| {
            let is_kept = possible.has_time(total(&row.parts))
                && possible.has_calls(row.calls)
                && possible.has_calls(row.faults_minor)
                && one.has_time(row.max_ns);
            refused += u64::from(!is_kept);
            is_kept
        });
        let unlisted = self.unlisted.and_then(|at| self.threads.get_mut(at));
        if let Some(sum) = unlisted.filter(|sum| !possible.has_time(total(&sum.in_calls))) {
            refuse(sum);
            refused += 1;
        }
        if !possible.has_time(total(&self.lost.in_calls)) {
            self.lost.in_calls = Default::default();
            refused += 1;
        }
        add(&mut self.refused, refused);
    }

    /// An upper bound of the number of threads.
    fn most_threads(&self) -> u64 {
        /// Unlisted threads, of which only the sum is known, are assumed to be as many as a machine can
        /// have at a time.
        const UNLISTED: u64 = 1 << 22;
        let listed = self.threads.len() as u64;
        let unlisted = self.unlisted.map_or(0, |_| UNLISTED);
        listed
            .saturating_add(self.lost.threads)
            .saturating_add(unlisted)
            .max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Detail;

    const SECOND: u64 = 1_000_000_000;

    fn thread(in_calls: u64, calls: u64) -> types::thread {
        types::thread {
            birth_ns: SECOND,
            end_ns: 2 * SECOND,
            calls,
            between: [SECOND, 0, 0, 0, 0, 0],
            in_calls: [in_calls, 0, 0, 0, 0, 0],
            ..types::thread::default()
        }
    }

    fn snapshot(tap: Tap) -> Snapshot {
        let mut snapshot = Snapshot {
            started_ns: SECOND,
            threads: vec![
                thread(SECOND / 2, 1000),
                thread(u64::MAX, 5),
                thread(5, u64::MAX),
                types::thread {
                    end_ns: 0,
                    ..thread(2 * SECOND, 7)
                },
            ],
            ..Snapshot::empty(tap, Detail::default(), 3 * SECOND)
        };
        let row = |part, max_ns| types::row {
            calls: 9,
            parts: [part, 0, 0, 0, 0, 0],
            max_ns,
            ..types::row::default()
        };
        snapshot.rows.insert(0, row(7 * SECOND, 2 * SECOND));
        snapshot.rows.insert(1, row(11 * SECOND, SECOND));
        snapshot.rows.insert(2, row(SECOND, 3 * SECOND));
        snapshot
    }

    #[test]
    fn what_cannot_be_true_is_refused_and_counted() {
        let mut made = snapshot(Tap::User);
        made.refuse_impossible();
        assert_eq!(made.refused, 4);
        let calls: Vec<u64> = made.threads.iter().map(|thread| thread.calls).collect();
        assert_eq!(calls, [1000, 0, 0, 7]);
        assert_eq!(made.threads[1].in_calls, [0; 6]);
        assert_eq!(
            made.threads[1].between[0], SECOND,
            "the probes' own is kept"
        );
        assert_eq!(made.rows.keys().collect::<Vec<_>>(), [&0]);
        let again = made.refused;
        made.refuse_impossible();
        assert_eq!(made.refused, again);
    }

    #[test]
    fn the_kernels_own_counts_are_believed() {
        let mut made = snapshot(Tap::Kernel);
        made.refuse_impossible();
        assert_eq!((made.refused, made.rows.len()), (0, 3));
        assert_eq!(made.threads[1].in_calls[0], u64::MAX);
    }
}
