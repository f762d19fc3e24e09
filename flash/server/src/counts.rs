// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is counted while the server runs, and how Prometheus reads it.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crate::histogram::Histogram;

/// Classes of statuses.
pub const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];
/// A turn of a loop that takes longer keeps its other connections waiting.
const LONG_TURN_NS: u64 = 1_000_000;

/// Of one loop, and of those that had its number in earlier configurations.
#[derive(Default)]
pub struct Counts {
    pub accepted: AtomicU64,
    pub connections: AtomicU64,
    /// Idle ones that were closed to make room for others.
    pub closed_idle: AtomicU64,
    pub requests: AtomicU64,
    /// By class.
    pub answers: [AtomicU64; CLASSES.len()],
    pub bytes: AtomicU64,
    /// Names that were not in the kernel's caches, and bytes of files that were not in memory.
    pub cold_names: AtomicU64,
    pub cold_bytes: AtomicU64,
    /// Answers with 503 as a queue was full or a helper too slow.
    pub refused: AtomicU64,
    /// The file system does not tell what is in memory: helpers read.
    pub untold: AtomicU64,
    /// Parts of such files that were sent from what is kept of them.
    pub kept: AtomicU64,
    /// Files that became shorter while they were sent.
    pub shortened: AtomicU64,
    /// Calls of the loop that took longer than they may.
    pub stalls: AtomicU64,
    /// From the end of a wait for events to the begin of the next one.
    pub turns: Histogram,
    pub longest_turn_ns: AtomicU64,
    pub long_turns: AtomicU64,
    pub lost_log_lines: AtomicU64,
    /// By the limits of clients.
    pub limited_connections: AtomicU64,
    pub limited_connection_rates: AtomicU64,
    pub limited_requests: AtomicU64,
    pub untracked_clients: AtomicU64,
    pub wrong_passwords: AtomicU64,
    /// Requests answered with 429 as the client had too many passwords to be checked.
    pub limited_passwords: AtomicU64,
    /// Of upstreams: requests for them, open connections, and what went wrong.
    pub upstream_requests: AtomicU64,
    pub links: AtomicU64,
    pub upstream_failures: AtomicU64,
    pub upstream_retries: AtomicU64,
    pub upstream_timeouts: AtomicU64,
    pub upstream_full: AtomicU64,
    pub cut: AtomicU64,
    /// Connections that processes of applications have, and requests that wait for one.
    pub lent: AtomicU64,
    pub waiting: AtomicU64,
    pub tunnels: AtomicU64,
    /// Of TLS: what has been done, how many are not finished, and the time that they took.
    pub handshakes: AtomicU64,
    pub resumed: AtomicU64,
    pub failed_handshakes: AtomicU64,
    pub refused_handshakes: AtomicU64,
    pub handshakes_open: AtomicU64,
    pub handshake_ns: AtomicU64,
    pub longest_handshake_ns: AtomicU64,
}

impl Counts {
    pub fn count_turn(&self, ns: u64) {
        self.turns.record(ns);
        self.longest_turn_ns.fetch_max(ns, Ordering::Relaxed);
        if ns > LONG_TURN_NS {
            add(&self.long_turns, 1);
        }
    }

    /// An answer has gone out.
    pub fn count_answer(&self, status: u16) {
        let class = usize::from(status / 100).checked_sub(2);
        if let Some(counter) = class.and_then(|class| self.answers.get(class)) {
            add(counter, 1);
        }
    }
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// Takes from a counter of what is there now.
pub fn subtract(counter: &AtomicU64, less: u64) {
    counter.fetch_sub(less, Ordering::Relaxed);
}

/// A row of the page: name, meaning, whether it only grows, and which counter.
type Row = (&'static str, &'static str, bool, fn(&Counts) -> &AtomicU64);

const ROWS: &[Row] = &[
    ("flash_accepted_total", "Connections accepted", true, |c| {
        &c.accepted
    }),
    ("flash_connections", "Connections open now", false, |c| {
        &c.connections
    }),
    (
        "flash_closed_idle_total",
        "Idle connections closed to make room for others",
        true,
        |c| &c.closed_idle,
    ),
    ("flash_requests_total", "Requests answered", true, |c| {
        &c.requests
    }),
    (
        "flash_sent_bytes_total",
        "Bytes of heads and bodies sent",
        true,
        |c| &c.bytes,
    ),
    (
        "flash_cold_names_total",
        "Lookups that a helper had to do",
        true,
        |c| &c.cold_names,
    ),
    (
        "flash_cold_reads_total",
        "Reads that a helper had to do",
        true,
        |c| &c.cold_bytes,
    ),
    (
        "flash_refused_total",
        "Requests answered with 503",
        true,
        |c| &c.refused,
    ),
    (
        "flash_residency_unknown_total",
        "Reads left to helpers because the file system does not tell what is in memory",
        true,
        |c| &c.untold,
    ),
    (
        "flash_kept_parts_total",
        "Parts of files that were sent from what is kept of them, where the file system does not tell what is in memory",
        true,
        |c| &c.kept,
    ),
    (
        "flash_shortened_total",
        "Files that became shorter while they were sent",
        true,
        |c| &c.shortened,
    ),
    (
        "flash_loop_stalls_total",
        "Sends of a loop that took more than 1 ms",
        true,
        |c| &c.stalls,
    ),
    (
        "flash_loop_longest_turn_ns",
        "Longest time between two waits for events",
        false,
        |c| &c.longest_turn_ns,
    ),
    (
        "flash_loop_long_turns_total",
        "Times between two waits for events that were longer than 1 ms",
        true,
        |c| &c.long_turns,
    ),
    (
        "flash_lost_log_lines_total",
        "Lines that the access log had no room for",
        true,
        |c| &c.lost_log_lines,
    ),
    (
        "flash_limited_connections_total",
        "Connections closed because their client has too many",
        true,
        |c| &c.limited_connections,
    ),
    (
        "flash_limited_new_connections_total",
        "Connections closed because their client opens them too fast",
        true,
        |c| &c.limited_connection_rates,
    ),
    (
        "flash_limited_requests_total",
        "Requests answered with 429 because their client asks too fast",
        true,
        |c| &c.limited_requests,
    ),
    (
        "flash_untracked_connections_total",
        "Connections without limits because the table of clients is full",
        true,
        |c| &c.untracked_clients,
    ),
    (
        "flash_wrong_passwords_total",
        "Passwords that were wrong, and users that do not exist",
        true,
        |c| &c.wrong_passwords,
    ),
    (
        "flash_passwords_limited_total",
        "Requests answered with 429 because the client has too many password checks",
        true,
        |c| &c.limited_passwords,
    ),
    (
        "flash_upstream_requests_total",
        "Requests that upstreams were to answer",
        true,
        |c| &c.upstream_requests,
    ),
    (
        "flash_upstream_connections",
        "Connections to upstreams, open now",
        false,
        |c| &c.links,
    ),
    (
        "flash_upstream_failures_total",
        "Connections and answers of upstreams that failed",
        true,
        |c| &c.upstream_failures,
    ),
    (
        "flash_upstream_retries_total",
        "Requests that were sent to an upstream again",
        true,
        |c| &c.upstream_retries,
    ),
    (
        "flash_upstream_timeouts_total",
        "Requests answered with 504 because an upstream took too long",
        true,
        |c| &c.upstream_timeouts,
    ),
    (
        "flash_upstream_full_total",
        "Requests answered with 503 because all connections to upstreams were in use",
        true,
        |c| &c.upstream_full,
    ),
    (
        "flash_upstream_cut_total",
        "Answers of upstreams that could not be sent to their end",
        true,
        |c| &c.cut,
    ),
    (
        "flash_application_connections",
        "Connections that processes of applications have now",
        false,
        |c| &c.lent,
    ),
    (
        "flash_application_waiting",
        "Requests that wait for a process of an application now",
        false,
        |c| &c.waiting,
    ),
    (
        "flash_tunnels_total",
        "Connections that became another protocol's, as WebSocket",
        true,
        |c| &c.tunnels,
    ),
    (
        "flash_tls_handshakes_total",
        "TLS handshakes that succeeded",
        true,
        |c| &c.handshakes,
    ),
    (
        "flash_tls_resumed_total",
        "TLS handshakes that resumed a session",
        true,
        |c| &c.resumed,
    ),
    (
        "flash_tls_failed_total",
        "TLS handshakes that failed or did not end in time",
        true,
        |c| &c.failed_handshakes,
    ),
    (
        "flash_tls_refused_total",
        "Connections closed because too many TLS handshakes were open",
        true,
        |c| &c.refused_handshakes,
    ),
    (
        "flash_tls_handshakes_open",
        "TLS handshakes that have begun and not ended",
        false,
        |c| &c.handshakes_open,
    ),
    (
        "flash_tls_handshake_ns_total",
        "Time that loops computed in TLS handshakes",
        true,
        |c| &c.handshake_ns,
    ),
    (
        "flash_tls_handshake_longest_ns",
        "Longest time without a break in a TLS handshake",
        false,
        |c| &c.longest_handshake_ns,
    ),
];

/// The text format of Prometheus, a row for each loop.
pub fn page(loops: &[Arc<Counts>]) -> String {
    let mut page = String::new();
    for (name, meaning, grows, counter) in ROWS {
        head(&mut page, name, meaning, kind(*grows));
        for (number, counts) in loops.iter().enumerate() {
            let value = counter(counts).load(Ordering::Relaxed);
            // Writing into memory cannot fail.
            let _ = writeln!(page, "{name}{{loop=\"{number}\"}} {value}");
        }
    }
    let name = "flash_answers_total";
    head(&mut page, name, "Answers sent to their end", kind(true));
    for (number, counts) in loops.iter().enumerate() {
        for (class, counter) in CLASSES.iter().zip(&counts.answers) {
            let value = counter.load(Ordering::Relaxed);
            let _ = writeln!(
                page,
                "{name}{{loop=\"{number}\",class=\"{class}\"}} {value}"
            );
        }
    }
    let name = "flash_loop_turn_seconds";
    head(
        &mut page,
        name,
        "Times between two waits for events",
        "histogram",
    );
    for (number, counts) in loops.iter().enumerate() {
        counts
            .turns
            .rows(&mut page, name, &format!("loop=\"{number}\""));
    }
    page
}

fn kind(grows: bool) -> &'static str {
    if grows {
        "counter"
    } else {
        "gauge"
    }
}

fn head(page: &mut String, name: &str, meaning: &str, kind: &str) {
    let _ = write!(page, "# HELP {name} {meaning}\n# TYPE {name} {kind}\n");
}

/// A row of the whole server.
pub fn plain_row(page: &mut String, name: &str, meaning: &str, grows: bool, value: u64) {
    head(page, name, meaning, kind(grows));
    let _ = writeln!(page, "{name} {value}");
}

/// A row of something that is not a loop's.
pub fn row(page: &mut String, name: &str, labels: &str, value: u64) {
    let _ = writeln!(page, "{name}{{{labels}}} {value}");
}
