// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the path server counts, and how Prometheus reads it.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use crate::counts::row;
use crate::helpers::Pool;

/// Since the start, unless it says "now". Only the loop writes them.
#[derive(Debug, Default)]
pub struct Figures {
    pub questions: u64,
    /// Answered at once, from memory.
    pub cached: u64,
    /// Left to a helper.
    pub brought: u64,
    /// For a name that a helper was bringing already.
    pub joined: u64,
    /// Answers without a descriptor.
    pub failed: u64,
    /// Because too many jobs waited for a helper.
    pub refused: u64,
    /// Answers whose client did not wait for them.
    pub gone: u64,
    pub malformed: u64,
    pub refused_peers: u64,
    pub refused_clients: u64,
    /// Now.
    pub clients: u64,
    pub waiting: u64,
    pub kept: u64,
    pub longest_turn_ns: u64,
}

impl Figures {
    /// The text format of Prometheus.
    pub fn page(&self, pools: &[(String, std::sync::Arc<Pool>)]) -> String {
        let mut page = String::new();
        for (name, meaning, value) in [
            ("questions_total", "Questions of clients", self.questions),
            (
                "cached_total",
                "Questions answered from memory",
                self.cached,
            ),
            (
                "brought_total",
                "Names and bytes that helpers were to bring",
                self.brought,
            ),
            (
                "joined_total",
                "Questions for what a helper was bringing already",
                self.joined,
            ),
            ("failed_total", "Answers without a descriptor", self.failed),
            (
                "refused_total",
                "Questions refused because the queue was full",
                self.refused,
            ),
            (
                "gone_total",
                "Answers whose client did not wait for them",
                self.gone,
            ),
            (
                "malformed_total",
                "Messages that were no question",
                self.malformed,
            ),
            (
                "refused_peers_total",
                "Connections of other users",
                self.refused_peers,
            ),
            (
                "refused_clients_total",
                "Connections for which there was no room",
                self.refused_clients,
            ),
            ("clients", "Connections open now", self.clients),
            (
                "waiting",
                "Names that helpers are bringing now",
                self.waiting,
            ),
            ("kept", "Names kept open now", self.kept),
            (
                "longest_turn_ns",
                "Longest time between two waits for events",
                self.longest_turn_ns,
            ),
        ] {
            let kind = if name.ends_with("_total") {
                "counter"
            } else {
                "gauge"
            };
            // Writing into memory cannot fail.
            let _ = write!(
                page,
                "# HELP flash_path_{name} {meaning}\n# TYPE flash_path_{name} {kind}\n\
                 flash_path_{name} {value}\n"
            );
        }
        for (device, pool) in pools {
            let counts = &pool.counts;
            let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
            for (name, value) in [
                ("flash_path_helper_threads", load(&counts.threads)),
                ("flash_path_helper_threads_most", load(&counts.most_threads)),
                ("flash_path_helper_jobs_total", load(&counts.jobs)),
                ("flash_path_helper_jobs_waiting", pool.waiting() as u64),
                ("flash_path_helper_busy_ns_total", load(&counts.busy_ns)),
                (
                    "flash_path_helper_takes_turns",
                    u64::from(pool.takes_turns()),
                ),
            ] {
                row(&mut page, name, &format!("device=\"{device}\""), value);
            }
        }
        page
    }
}
