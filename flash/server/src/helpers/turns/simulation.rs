// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the meter finds out what devices are: names arrive at random, take two reads each, and are brought by helpers.

use std::collections::VecDeque;

use super::meter::Meter;
use super::CROWD;

const READ: u64 = 5_000_000;
const HELPERS: usize = 64;
const READS: u32 = 2;

/// How many reads a device does at once, and how long each takes then.
type Device = fn(usize) -> (usize, u64);

fn serial(_: usize) -> (usize, u64) {
    (1, READ)
}

fn parallel(_: usize) -> (usize, u64) {
    (HELPERS, READ)
}

/// Sorts the reads before it, so that it does twice as many if it has some to choose from.
fn sorting(reads: usize) -> (usize, u64) {
    (1, READ * 9 / (8 + reads.min(9) as u64))
}

fn quick(_: usize) -> (usize, u64) {
    (1, 50_000)
}

struct Simulated {
    /// The part of the time in which turns were taken.
    in_turn: f64,
    /// Mean from the arrival to the end.
    mean_ms: f64,
    longest_ms: f64,
}

/// `per_second`: names, each of `READS` reads.
fn simulate(device: Device, per_second: f64, seconds: u64, seed: u64) -> Simulated {
    simulate_step(device, (per_second, per_second), seconds, seed)
}

/// After half the time more names come.
fn simulate_step(
    device: Device,
    (first, second): (f64, f64),
    seconds: u64,
    seed: u64,
) -> Simulated {
    let end = seconds * 1_000_000_000;
    let mut meter = Meter::default();
    let mut random = seed;
    let mut uniform = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as f64 / (1u64 << 53) as f64
    };
    // Reads at the device: when the first ones end, and whose they are.
    let mut served: Vec<(u64, usize)> = Vec::new();
    let mut queued: VecDeque<usize> = VecDeque::new();
    // Names: when each arrived, its reads that are left, and when it was first at the device.
    let mut names: Vec<(u64, u32, u64)> = Vec::new();
    let (mut waiting, mut backlog) = (VecDeque::new(), VecDeque::new());
    let (mut now, mut arrives, mut running) = (0u64, 0u64, 0usize);
    // Names at the device that have not passed their turn on.
    let mut holders = 0usize;
    let (mut in_turn, mut total, mut ended, mut longest) = (0u64, 0u64, 0u64, 0u64);
    while now < end {
        let next_end = served.iter().map(|(at, _)| *at).min().unwrap_or(u64::MAX);
        let then = arrives.min(next_end);
        in_turn += u64::from(meter.takes_turns()) * (then - now);
        now = then;
        if now == arrives {
            names.push((now, READS, now));
            backlog.push_back(names.len() - 1);
            let per_second = if now < end / 2 { first } else { second };
            arrives += (-(1.0 - uniform()).ln() / per_second * 1e9) as u64 + 1;
        } else {
            let at = served
                .iter()
                .position(|(at, _)| *at == now)
                .expect("one ends");
            let (_, name) = served.swap_remove(at);
            names[name].1 -= 1;
            if names[name].1 == 0 {
                total += now - names[name].0;
                ended += 1;
                longest = longest.max(now - names[name].0);
                running -= 1;
                meter.ends(now, Some(now - names[name].2));
            } else {
                queued.push_back(name);
            }
            // Before its last read it passes the turn on.
            holders -= usize::from(names[name].1 == 1);
        }
        // Of those that wait for their turn, one waits at the meter, the others in the queue.
        while running + waiting.len() < HELPERS && (!meter.takes_turns() || waiting.is_empty()) {
            let Some(name) = backlog.pop_front() else {
                break;
            };
            meter.comes(now, backlog.len().min(HELPERS));
            waiting.push_back(name);
        }
        let turns = if backlog.len() < CROWD { 1 } else { 2 };
        while !waiting.is_empty() && (!meter.takes_turns() || (holders < turns && running <= turns))
        {
            let name = waiting.pop_front().expect("it is there");
            meter.begins();
            names[name].2 = now;
            running += 1;
            holders += 1;
            queued.push_back(name);
        }
        loop {
            let (most, takes) = device(served.len() + queued.len());
            if served.len() >= most {
                break;
            }
            let Some(name) = queued.pop_front() else {
                break;
            };
            served.push((now + takes, name));
        }
    }
    Simulated {
        in_turn: in_turn as f64 / now as f64,
        mean_ms: total as f64 / ended as f64 / 1e6,
        longest_ms: longest as f64 / 1e6,
    }
}

#[test]
fn names_take_turns_on_a_disk_that_does_one_read_at_a_time() {
    for (per_second, seed) in [(50.0, 1), (75.0, 2), (95.0, 3), (120.0, 4)] {
        let found = simulate(serial, per_second, 60, seed);
        assert!(found.in_turn > 0.7, "{per_second}: {}", found.in_turn);
    }
}

#[test]
fn they_take_none_on_devices_that_do_more_at_once() {
    for (per_second, seed) in [(50.0, 1), (200.0, 2), (1000.0, 3), (5000.0, 4)] {
        let found = simulate(parallel, per_second, 60, seed);
        // With few names, those in turn are as many as come.
        if per_second > 300.0 {
            assert!(found.in_turn < 0.1, "{per_second}: {}", found.in_turn);
        }
        // What it takes if none waits is 10 ms.
        assert!(found.mean_ms < 15.0, "{per_second}: {} ms", found.mean_ms);
    }
    for (per_second, seed) in [(150.0, 5), (180.0, 6)] {
        let found = simulate(sorting, per_second, 60, seed);
        assert!(found.in_turn < 0.2, "{per_second}: {}", found.in_turn);
    }
    let found = simulate(quick, 5000.0, 10, 7);
    assert!(found.in_turn < 0.01, "{}", found.in_turn);
}

#[test]
fn more_names_than_before_are_noticed_soon() {
    for seed in 1..6 {
        let found = simulate_step(parallel, (50.0, 3000.0), 60, seed);
        assert!(found.mean_ms < 15.0, "{} ms", found.mean_ms);
        assert!(found.longest_ms < 1000.0, "{} ms", found.longest_ms);
    }
}

/// A client asks for names that are in memory already, one after the other, and so often that most jobs are those.
#[test]
fn names_in_memory_do_not_make_a_disk_look_serial_or_quick() {
    const QUICK: u64 = 20_000;
    let read = |meter: &mut Meter, now: &mut u64, at_once: u64, took: u64| {
        for _ in 0..at_once {
            meter.comes(*now, 0);
            meter.begins();
        }
        for _ in 0..took / 1_000_000 {
            for _ in 0..5 {
                meter.comes(*now, 0);
                meter.begins();
                *now += QUICK;
                meter.ends(*now, Some(QUICK));
            }
            *now += 1_000_000 - 5 * QUICK;
        }
        for _ in 0..at_once {
            meter.ends(*now, Some(took));
        }
    };
    // Sixteen at once take as long as one does.
    let (mut meter, mut now, mut in_turn) = (Meter::default(), 1, 0);
    for _ in 0..500 {
        in_turn += u32::from(meter.takes_turns());
        let at_once = if meter.takes_turns() { 1 } else { 16 };
        for _ in 0..16 / at_once {
            read(&mut meter, &mut now, at_once, 10_000_000);
        }
    }
    assert!(in_turn < 50, "{in_turn} of 500 times");
    // A verdict stays.
    let mut meter = Meter::with_turns();
    for _ in 0..500 {
        read(&mut meter, &mut now, 1, 10_000_000);
    }
    assert!(meter.takes_turns());
}

#[test]
fn jobs_that_hang_tell_nothing() {
    let (mut meter, mut now) = (Meter::default(), 1);
    for _ in 0..500 {
        // Two that hang, and are taken to be stuck after a second.
        for _ in 0..2 {
            meter.comes(now, 0);
            meter.begins();
        }
        now += 1_000_000_000;
        meter.ends(now, None);
        meter.ends(now, None);
        // Sixteen that the device does at once.
        for _ in 0..16 {
            meter.comes(now, 0);
            meter.begins();
        }
        now += 10_000_000;
        for _ in 0..16 {
            meter.ends(now, Some(10_000_000));
        }
        // As each would have it that comes alone.
        if meter.takes_turns() {
            for _ in 0..4 {
                meter.comes(now, 0);
            }
            for _ in 0..4 {
                meter.begins();
                now += 10_000_000;
                meter.ends(now, Some(10_000_000));
            }
        }
    }
    assert!(!meter.takes_turns());
}
