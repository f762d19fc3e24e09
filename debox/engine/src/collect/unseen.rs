//! What a report does not show, as sentences for people, and the counts in them.

use std::collections::BTreeSet;

use super::Snapshot;
use crate::options::Tap;
use crate::report::Unstamped;
use crate::tables::{self, types};

impl Snapshot {
    /// What the user tap did not stamp; `None` under the kernel tap.
    pub(super) fn unstamped(&self) -> Option<Unstamped> {
        if self.tap != Tap::User {
            return None;
        }
        let filtered = self.threads.iter().filter(|thread| is_filtered(thread));
        let calls = self
            .threads
            .iter()
            .map(|thread| u64::from(thread.unstamped));
        Some(Unstamped {
            calls: calls.fold(0, u64::saturating_add),
            filtered_threads: filtered.clone().count() as u64,
            filtered: names(filtered),
        })
    }

    fn unseen_by_user_tap(&self, unstamped: &Unstamped, unseen: &mut Vec<String>) {
        let calls = unstamped.calls;
        if calls > 0 {
            unseen.push(format!(
                "Calls that the user tap had to leave out: {calls}, of vfork children before their \
                 exec, or of too deeply nested signal handlers. Their time is in (user)."
            ));
        }
        if unstamped.filtered_threads > 0 {
            unseen.push(format!(
                "Threads of programs executed under a seccomp filter of their own: {}. The program \
                 might not survive asking for its session, so that they show only where they slept: \
                 {}.",
                unstamped.filtered_threads,
                listed(&unstamped.filtered)
            ));
        }
        let is_refused = |thread: &types::thread| thread.flags & tables::THREAD_REFUSED != 0;
        let is_silent = |thread: &&types::thread| {
            thread.calls == 0 && !is_filtered(thread) && !is_refused(thread)
        };
        let silent = names(self.threads.iter().filter(is_silent));
        if !silent.is_empty() {
            unseen.push(format!(
                "Threads that made no call through libc's entry points show only where they slept: \
                 {}.",
                listed(&silent)
            ));
        }
        unseen.push(
            "Calls that libc makes internally (stdio, start-up, its futexes) are untapped."
                .to_string(),
        );
    }

    pub(super) fn unseen(&self) -> Vec<String> {
        let mut unseen = Vec::new();
        unseen.push(self.spinning().to_string());
        if let Some(unstamped) = self.unstamped() {
            self.unseen_by_user_tap(&unstamped, &mut unseen);
        }
        let is_held = self.open_waits.iter().any(|(_, wait)| wait.ownable != 0);
        if !self.finds_owners && (is_held || !self.owners.is_empty()) {
            unseen.push(
                "This kernel does not let probes find tasks by their numbers (bpf_task_from_pid, \
                 Linux 6.2): owners are named if they are monitored themselves, or hold a lock of the \
                 kernel alone, and not on what they sleep."
                    .to_string(),
            );
        }
        if self.lost.switches > 0 {
            unseen.push(format!(
                "Switches or wake-ups that the kernel did not show: {}. How long those threads \
                 waited is the scheduler's own account; what they waited for shows as unknown.",
                self.lost.switches
            ));
        }
        if self.lost.unseen_wait_ns > 0 {
            unseen.push(format!(
                "Waiting for a CPU that no switch showed: {:.1} ms by the scheduler's own account. It \
                 is included in cpu.",
                self.lost.unseen_wait_ns as f64 / 1e6
            ));
        }
        unseen.extend(self.left());
        unseen.extend(self.notes.iter().cloned());
        if self
            .threads
            .iter()
            .any(|thread| thread.flags & tables::THREAD_PARTIAL != 0)
        {
            unseen.push(
                "Calls that were already running when monitoring began are timed from then on."
                    .to_string(),
            );
        }
        unseen
    }

    /// A sentence about programs that were monitored until they gained privileges.
    fn left(&self) -> Option<String> {
        let left = |thread: &&types::thread| thread.flags & tables::THREAD_LEFT != 0;
        let left = names(self.threads.iter().filter(left));
        (!left.is_empty()).then(|| {
            format!(
                "Programs that gained privileges (set-user-id), or that cannot be inspected, are \
                 shown until then and not followed: {}.",
                listed(&left)
            )
        })
    }

    /// A sentence on how much of the spinning on locks is shown; the rest counts as ordinary CPU
    /// time.
    fn spinning(&self) -> &'static str {
        match (self.tap, self.detail.sleeps) {
            (Tap::Kernel, true) => {
                "Spinning is shown for mutexes, rwlocks and spinlocks, except for a spinlock's first \
                 waiter, which not every kernel reports; that, and spinning on rwsems, is included \
                 in cpu."
            }
            (Tap::Kernel, false) => {
                "Spinning on locks is shown with detail sleeps only; it is included in cpu."
            }
            (Tap::User, _) => {
                "Spinning on locks is not shown under the user tap; it is included in cpu."
            }
        }
    }
}

fn is_filtered(thread: &types::thread) -> bool {
    thread.flags & tables::THREAD_FILTERED != 0
}

/// The first of the names.
fn listed(names: &[String]) -> String {
    names[..names.len().min(8)].join(", ")
}

/// The names of threads, each once.
fn names<'a>(threads: impl Iterator<Item = &'a types::thread>) -> Vec<String> {
    let names: BTreeSet<String> = threads.map(|thread| tables::comm(&thread.comm)).collect();
    names.into_iter().collect()
}
