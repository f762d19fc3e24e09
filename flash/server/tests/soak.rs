// SPDX-License-Identifier: MIT OR Apache-2.0
//! All storms at once, against one server: for some seconds, or for `FLASH_SOAK_SECONDS` (`make soak-flash`). No answer is
//! wrong, the process lives, and what it has of memory and descriptors is the same at the end as at the begin.

mod running;
mod storms;

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use running::{ask, Running, PATIENCE};
use storms::{files, Counts, Target};

/// Memory that the process may have more at the end than after a tenth of the time: what the allocator keeps.
const MEMORY: u64 = 24 << 20;

type Storm = fn(&Target) -> Counts;

const STORMS: [(&str, Storm); 10] = [
    ("ordinary", storms::ordinary),
    ("slow heads", storms::slow_heads),
    ("slow readers", storms::slow_readers),
    ("cut requests", storms::cut_requests),
    ("oversized", storms::oversized),
    ("broken handshakes", storms::broken_handshakes),
    ("signals", storms::signals),
    ("traversal", files::traversal),
    ("swapped links", files::swapped_links),
    ("changing files", files::changing_files),
];

#[derive(Debug)]
struct State {
    memory: u64,
    descriptors: usize,
    connections: u64,
}

/// The sum of a counter's rows.
fn counted(page: &str, name: &str) -> u64 {
    let rows = page.lines().filter_map(|row| row.strip_prefix(name));
    let rows = rows.filter(|rest| rest.starts_with(['{', ' ']));
    rows.filter_map(|rest| rest.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

fn state(flash: &Running, page: &str) -> State {
    let pid = flash.child.id();
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).expect("it runs");
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    State {
        memory: pages.map_or(0, |pages: u64| pages * 4096),
        descriptors: fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count),
        connections: counted(page, "flash_connections"),
    }
}

fn make_pair(place: &Path) {
    let pair = rcgen::generate_simple_self_signed(vec!["a".to_string()]).expect("a certificate");
    fs::write(place.join("cert"), pair.cert.pem()).expect("room");
    fs::write(place.join("key"), pair.signing_key.serialize_pem()).expect("room");
}

fn start(place: &Path) -> Running {
    storms::fill(place);
    fs::create_dir(place.join("logs")).expect("room");
    make_pair(place);
    let path = |name: &str| place.join(name).to_str().expect("text").to_string();
    let options = [
        ["--listen", "127.0.0.1:0"],
        ["--tls-listen", "127.0.0.1:0"],
        ["--tls-cert", &path("cert")],
        ["--tls-key", &path("key")],
        ["--log", &path("logs/log")],
        ["--metrics", "127.0.0.1:0"],
        ["--head", "2s"],
        ["--idle", "2s"],
        ["--handshake", "2s"],
    ];
    Running::start(place, &options.concat())
}

/// Runs all storms until `end`, and returns what they counted or why they failed.
fn storm(target: &Target) -> Vec<(&'static str, Result<Counts, String>)> {
    let running: Vec<_> = STORMS
        .iter()
        .map(|(name, run)| {
            let target = target.clone();
            (*name, thread::spawn(move || run(&target)))
        })
        .collect();
    let end = |thread: thread::JoinHandle<Counts>| {
        thread
            .join()
            .map_err(|panic| match panic.downcast::<String>() {
                Ok(text) => *text,
                Err(_) => "it panicked".to_string(),
            })
    };
    running
        .into_iter()
        .map(|(name, thread)| (name, end(thread)))
        .collect()
}

/// Waits until no storm's connection is left, and returns the state then.
fn settle(flash: &Running, metrics: &str) -> State {
    let began = Instant::now();
    loop {
        let page = ask(metrics.parse().expect("an address"), "/metrics");
        let state = state(flash, &page);
        if state.connections <= 1 || began.elapsed() > PATIENCE {
            return state;
        }
        thread::sleep(Duration::from_millis(200));
    }
}

fn check_logs(place: &Path) -> usize {
    let mut lines = 0;
    for file in fs::read_dir(place.join("logs")).expect("a directory") {
        let text = fs::read_to_string(file.expect("a name").path()).expect("text");
        for line in text.lines() {
            let is_whole = line.starts_with("127.0.0.1 - - [") && line.ends_with('"');
            assert!(is_whole, "not a line of the log: {line}");
            lines += 1;
        }
    }
    lines
}

#[test]
#[expect(
    clippy::print_stdout,
    reason = "its counts are for the person who runs it"
)]
fn all_storms_at_once() {
    let seconds = std::env::var("FLASH_SOAK_SECONDS").ok();
    let seconds = seconds.map_or(4, |seconds| {
        seconds.parse().expect("FLASH_SOAK_SECONDS is a number")
    });
    let total = Duration::from_secs(seconds);
    let place = tempfile::tempdir().expect("a directory");
    let flash = start(place.path());
    let after = |prefix: &str| {
        let line = flash.said.iter().find_map(|line| line.strip_prefix(prefix));
        let address = line.and_then(|line| line.split('/').next());
        address
            .unwrap_or_else(|| panic!("no {prefix} in {:?}", flash.said))
            .to_string()
    };
    let metrics = after("counters at http://");
    let mut target = Target {
        address: after("serving at http://").parse().expect("an address"),
        tls: after("serving at https://").parse().expect("an address"),
        place: place.path().to_path_buf(),
        pid: flash.child.id(),
        end: Instant::now() + total / 10,
    };
    let mut failed = Vec::new();
    let mut states = Vec::new();
    for time in [total / 10, total - total / 10] {
        target.end = Instant::now() + time;
        for (name, counts) in storm(&target) {
            match counts {
                Ok(counts) => println!("{name}: {counts:?}"),
                Err(error) => failed.push(format!("{name}: {error}")),
            }
        }
        let state = settle(&flash, &metrics);
        println!("after {time:?}: {state:?}");
        states.push(state);
    }
    let page = ask(metrics.parse().expect("an address"), "/metrics");
    for name in [
        "flash_requests_total",
        "flash_refused_total",
        "flash_shortened_total",
    ] {
        println!("{name}: {}", counted(&page, name));
    }
    let [begin, end] = states.as_slice() else {
        panic!("two states");
    };
    if end.memory > begin.memory + MEMORY {
        failed.push("the process has grown".to_string());
    }
    // A connection for the counters may be there or not.
    if end.descriptors > begin.descriptors + 2 || end.connections > 1 {
        failed.push("descriptors or connections are left".to_string());
    }
    for name in [
        "flash_lost_log_lines_total",
        "flash_unwritten_log_lines_total",
    ] {
        if counted(&page, name) > 0 {
            failed.push(format!("{name} is {}", counted(&page, name)));
        }
    }
    let (status, errors) = flash.end();
    if !status.success() || errors.contains("panicked") {
        failed.push(format!("the server ended with {status}: {errors}"));
    }
    println!("lines in the logs: {}", check_logs(place.path()));
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
