//! What is counted while the server runs, and how Prometheus reads it.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of one loop, which alone writes it.
#[derive(Default)]
pub struct Counts {
    pub accepted: AtomicU64,
    pub connections: AtomicU64,
    pub requests: AtomicU64,
    pub bytes: AtomicU64,
    /// Names that were not in the kernel's caches, and bytes of files that were not in memory.
    pub cold_names: AtomicU64,
    pub cold_bytes: AtomicU64,
    /// Answers with 503 as a queue was full or a helper too slow.
    pub refused: AtomicU64,
    /// The file system does not tell what is in memory: helpers read.
    pub untold: AtomicU64,
    /// Files that became shorter while they were sent.
    pub shortened: AtomicU64,
    /// Calls of the loop that took longer than they may, and the longest time between two waits for events.
    pub stalls: AtomicU64,
    pub longest_turn_ns: AtomicU64,
    pub lost_log_lines: AtomicU64,
    /// By the limits of clients.
    pub limited_connections: AtomicU64,
    pub limited_connection_rates: AtomicU64,
    pub limited_requests: AtomicU64,
    pub untracked_clients: AtomicU64,
    pub wrong_passwords: AtomicU64,
    /// Requests answered with 429 as the client had too many passwords to be checked.
    pub limited_passwords: AtomicU64,
    /// Of TLS: what has been done, how many are not finished, and the time that they took.
    pub handshakes: AtomicU64,
    pub resumed: AtomicU64,
    pub failed_handshakes: AtomicU64,
    pub refused_handshakes: AtomicU64,
    pub handshakes_open: AtomicU64,
    pub handshake_ns: AtomicU64,
    pub longest_handshake_ns: AtomicU64,
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
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
pub fn page<'a>(loops: impl Iterator<Item = &'a Counts> + Clone) -> String {
    let mut page = String::new();
    for (name, meaning, grows, counter) in ROWS {
        let kind = if *grows { "counter" } else { "gauge" };
        // Writing into memory cannot fail.
        let _ = write!(page, "# HELP {name} {meaning}\n# TYPE {name} {kind}\n");
        for (number, counts) in loops.clone().enumerate() {
            let value = counter(counts).load(Ordering::Relaxed);
            let _ = writeln!(page, "{name}{{loop=\"{number}\"}} {value}");
        }
    }
    page
}

/// A row of something that is not a loop's.
pub fn row(page: &mut String, name: &str, labels: &str, value: u64) {
    let _ = writeln!(page, "{name}{{{labels}}} {value}");
}
