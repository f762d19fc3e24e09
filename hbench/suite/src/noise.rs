// SPDX-License-Identifier: MIT OR Apache-2.0
//! What takes the CPU from a process that only reads the clock.

use std::time::Duration;

use hbench_results::environment::Noise;

use crate::clock::Clock;

/// A longer time between two readings is an interruption.
const INTERRUPTION_NS: f64 = 1_000.0;

pub fn observe(clock: Clock, during: Duration) -> Noise {
    let begin = clock.now();
    let wanted = during.as_nanos() as f64;
    let (mut last, mut observed) = (begin, 0.0);
    let (mut taken, mut longest, mut count) = (0.0, 0.0f64, 0u64);
    while observed < wanted {
        let now = clock.now();
        let gap = clock.between(last, now);
        if gap > INTERRUPTION_NS {
            taken += gap;
            longest = longest.max(gap);
            count += 1;
        }
        observed = clock.between(begin, now);
        last = now;
    }
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    Noise {
        observed_ns: observed as u64,
        taken_share: taken / observed.max(1.0),
        longest_ns: longest as u64,
        per_second: count as f64 / observed.max(1.0) * 1e9,
        load_average: load.and_then(|load| load.split(' ').next()?.parse().ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_a_part_of_the_time() {
        let noise = observe(Clock::MonotonicRaw, Duration::from_millis(20));
        assert!(noise.observed_ns >= 20_000_000);
        assert!((0.0..=1.0).contains(&noise.taken_share), "{noise:?}");
        assert!(noise.longest_ns <= noise.observed_ns);
    }
}
