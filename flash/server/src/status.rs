// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the server shows of itself at the address of the counters: `/metrics` for Prometheus, `/status` for readers, and
//! `/status.json`. A loop makes these pages from counters, so they cost no wait.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::context::Shared;
use crate::counts::{self, Counts, CLASSES};
use crate::helpers::pools::Pair;
use crate::helpers::Pool;
use crate::sandbox;

const PAGE: &str = include_str!("status/page.html");
/// Of a loop's turns, all but one in so many are at most as long as `Loop::p9999_us` says.
const ONE_IN: u64 = 10_000;

/// The type and the bytes of a page, by its path.
pub fn page(path: &[u8], shared: &Shared) -> Option<(&'static str, Vec<u8>)> {
    match path {
        b"metrics" => Some((
            "text/plain; version=0.0.4; charset=utf-8",
            metrics(shared).into_bytes(),
        )),
        b"status" => Some(("text/html; charset=utf-8", PAGE.as_bytes().to_vec())),
        // Writing plain data into memory cannot fail.
        b"status.json" => Some((
            "application/json",
            serde_json::to_vec(&Status::of(shared)).unwrap_or_default(),
        )),
        _ => None,
    }
}

/// The numbers of the page. Those that grow are since the start.
#[derive(Serialize)]
struct Status {
    version: &'static str,
    uptime_ms: u64,
    connections: u64,
    accepted: u64,
    handshakes_open: u64,
    requests: u64,
    /// By class: `2xx`.
    answers: BTreeMap<&'static str, u64>,
    sent_bytes: u64,
    refused: u64,
    lost_log_lines: u64,
    loops: Vec<Loop>,
    helpers: BTreeMap<&'static str, Helpers>,
    configuration: Configuration,
}

#[derive(Serialize)]
struct Loop {
    connections: u64,
    turns: u64,
    p9999_us: Option<u64>,
    longest_us: u64,
    long_turns: u64,
    long_sends: u64,
}

/// Of all devices.
#[derive(Default, Serialize)]
struct Helpers {
    threads: u64,
    busy: u64,
    queue: u64,
    jobs: u64,
    refused: u64,
}

#[derive(Serialize)]
struct Configuration {
    reloads: u64,
    refused: u64,
    draining: u64,
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Status {
    fn of(shared: &Shared) -> Status {
        let sum = |counter: fn(&Counts) -> &AtomicU64| {
            let loops = shared.counts.iter();
            loops.map(|counts| load(counter(counts))).sum::<u64>()
        };
        let of_class = |(place, class): (usize, &&'static str)| {
            let loops = shared.counts.iter();
            let all = loops.map(|counts| load(&counts.answers[place])).sum();
            (*class, all)
        };
        let reloads = &shared.reloads;
        Status {
            version: env!("CARGO_PKG_VERSION"),
            uptime_ms: u64::try_from(reloads.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            connections: sum(|counts| &counts.connections),
            accepted: sum(|counts| &counts.accepted),
            handshakes_open: sum(|counts| &counts.handshakes_open),
            requests: sum(|counts| &counts.requests),
            answers: CLASSES.iter().enumerate().map(of_class).collect(),
            sent_bytes: sum(|counts| &counts.bytes),
            refused: sum(|counts| &counts.refused),
            lost_log_lines: sum(|counts| &counts.lost_log_lines),
            loops: shared
                .counts
                .iter()
                .map(|counts| Loop::of(counts))
                .collect(),
            helpers: Helpers::all(shared),
            configuration: Configuration {
                reloads: load(&reloads.done),
                refused: load(&reloads.refused),
                draining: load(&reloads.draining),
            },
        }
    }
}

impl Loop {
    fn of(counts: &Counts) -> Loop {
        let longest_us = load(&counts.longest_turn_ns).div_ceil(1000);
        let p9999 = counts.turns.all_but_one_in_us(ONE_IN);
        Loop {
            connections: load(&counts.connections),
            turns: counts.turns.count(),
            // A bucket's end is at most an eighth above what it holds.
            p9999_us: p9999.map(|us| us.min(longest_us)),
            longest_us,
            long_turns: load(&counts.long_turns),
            long_sends: load(&counts.stalls),
        }
    }
}

impl Helpers {
    fn all(shared: &Shared) -> BTreeMap<&'static str, Helpers> {
        let mut all: BTreeMap<&'static str, Helpers> = BTreeMap::new();
        for (name, _, pool) in pools(shared) {
            let sum = all.entry(name).or_default();
            sum.threads += load(&pool.counts.threads);
            sum.busy += load(&pool.counts.busy);
            sum.queue += pool.waiting() as u64;
            sum.jobs += load(&pool.counts.jobs);
            sum.refused += load(&pool.counts.refused);
        }
        all
    }
}

/// Each with its name and its device, if it has one.
fn pools(shared: &Shared) -> impl Iterator<Item = (&'static str, Option<&str>, &Pool)> {
    let files = shared.helpers.all().flat_map(pools_of_device);
    let passwords = shared.passwords.as_ref();
    files.chain(passwords.map(|passwords| ("passwords", None, &*passwords.pool)))
}

fn pools_of_device(pair: &Pair) -> [(&'static str, Option<&str>, &Pool); 2] {
    let device = Some(pair.device.as_str());
    [
        ("names", device, &pair.names),
        ("missing", device, &pair.missing),
    ]
}

/// The text format of Prometheus.
pub fn metrics(shared: &Shared) -> String {
    let mut page = counts::page(&shared.counts);
    for (pool, device, helpers) in pools(shared) {
        let labels = match device {
            Some(device) => format!("pool=\"{pool}\",device=\"{device}\""),
            None => format!("pool=\"{pool}\""),
        };
        for (name, value) in [
            ("flash_helper_threads", load(&helpers.counts.threads)),
            ("flash_helper_threads_busy", load(&helpers.counts.busy)),
            (
                "flash_helper_threads_most",
                load(&helpers.counts.most_threads),
            ),
            ("flash_helper_jobs_total", load(&helpers.counts.jobs)),
            (
                "flash_helper_jobs_joined_total",
                load(&helpers.counts.joined),
            ),
            ("flash_helper_jobs_waiting", helpers.waiting() as u64),
            (
                "flash_helper_jobs_refused_total",
                load(&helpers.counts.refused),
            ),
            (
                "flash_helper_jobs_left_out_total",
                load(&helpers.counts.left_out),
            ),
            ("flash_helper_busy_ns_total", load(&helpers.counts.busy_ns)),
            ("flash_helper_takes_turns", u64::from(helpers.takes_turns())),
        ] {
            counts::row(&mut page, name, &labels, value);
        }
    }
    let reloads = &shared.reloads;
    for (name, meaning, grows, value) in [
        (
            "flash_reloads_total",
            "Configurations loaded again",
            true,
            &reloads.done,
        ),
        (
            "flash_reloads_refused_total",
            "Configurations that could not be loaded again",
            true,
            &reloads.refused,
        ),
        (
            "flash_configurations_draining",
            "Earlier configurations whose requests have not ended",
            false,
            &reloads.draining,
        ),
    ] {
        counts::plain_row(&mut page, name, meaning, grows, load(value));
    }
    if let Some(log) = &shared.log {
        let name = "flash_unwritten_log_lines_total";
        let meaning = "Lines that the access log's file did not take";
        counts::plain_row(&mut page, name, meaning, true, load(&log.unwritten));
    }
    if let Some(sandbox::Status { landlock, seccomp }) = shared.sandbox.get() {
        for (part, status) in [("landlock", landlock), ("seccomp", seccomp)] {
            let is_on = u64::from(status.is_on());
            let labels = format!("part=\"{part}\"");
            counts::row(&mut page, "flash_sandbox", &labels, is_on);
        }
    }
    page
}
