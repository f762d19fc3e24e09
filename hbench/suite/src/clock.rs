// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clock of a sample: the CPU's time-stamp counter where it runs evenly, else the kernel's clock.

use std::time::Duration;

use hbench_results::meta::Clock as Described;
use serde::{Deserialize, Serialize};

use crate::sys;

/// Pairs of readings from which the overhead is determined.
const PAIRS: usize = 1001;

/// How ticks become nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Clock {
    Tsc { ns_per_tick: f64 },
    MonotonicRaw,
}

/// A reading.
#[derive(Debug, Clone, Copy)]
pub struct Stamp(u64);

impl Clock {
    /// The counter's length of a tick is measured for `during`, in which `look` may do something.
    pub fn calibrate(during: Duration, look: impl FnOnce(Clock, Duration)) -> Clock {
        if !counter_is_even() {
            look(Clock::MonotonicRaw, during);
            return Clock::MonotonicRaw;
        }
        let begin = both();
        look(Clock::MonotonicRaw, during);
        let end = both();
        let ticks = end.0.saturating_sub(begin.0);
        let ns = end.1.saturating_sub(begin.1);
        match ticks > 0 && ns > 0 {
            true => Clock::Tsc {
                ns_per_tick: ns as f64 / ticks as f64,
            },
            false => Clock::MonotonicRaw,
        }
    }

    #[inline(always)]
    pub fn now(self) -> Stamp {
        match self {
            Clock::Tsc { .. } => Stamp(counter()),
            Clock::MonotonicRaw => Stamp(sys::monotonic_raw_ns()),
        }
    }

    pub fn between(self, begin: Stamp, end: Stamp) -> f64 {
        let ticks = end.0.saturating_sub(begin.0) as f64;
        match self {
            Clock::Tsc { ns_per_tick } => ticks * ns_per_tick,
            Clock::MonotonicRaw => ticks,
        }
    }

    /// What one pair of readings adds to what is between them: the median of many pairs with nothing between.
    pub fn overhead_ns(self) -> f64 {
        let mut pairs: Vec<f64> = (0..PAIRS)
            .map(|_| {
                let begin = self.now();
                self.between(begin, self.now())
            })
            .collect();
        pairs.sort_unstable_by(f64::total_cmp);
        pairs[PAIRS / 2]
    }

    pub fn described(self) -> Described {
        let overhead_ns = self.overhead_ns();
        match self {
            Clock::Tsc { ns_per_tick } => Described::Tsc {
                ns_per_tick,
                overhead_ns,
            },
            Clock::MonotonicRaw => Described::MonotonicRaw { overhead_ns },
        }
    }
}

/// Counter and kernel's clock at the same time: of some readings, those that were closest to each other.
fn both() -> (u64, u64) {
    let reading = |_| {
        let before = counter();
        let ns = sys::monotonic_raw_ns();
        let after = counter();
        // It steps back where CPUs count differently and the process moved from one to another.
        let between = after.checked_sub(before)?;
        Some((between, before + between / 2, ns))
    };
    let (_, ticks, ns) = (0..100).filter_map(reading).min().unwrap_or_default();
    (ticks, ns)
}

/// Not before what precedes it has ended, nor after what follows has begun.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: every x86-64 CPU has both instructions.
    unsafe {
        _mm_lfence();
        let ticks = _rdtsc();
        _mm_lfence();
        ticks
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn counter() -> u64 {
    sys::monotonic_raw_ns()
}

/// Whether the counter has the same rate whatever the CPU does, and on all CPUs. A kernel that found that it has not uses
/// another clock.
fn counter_is_even() -> bool {
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = std::fs::read_to_string(source).unwrap_or_default();
    if ["hpet", "acpi_pm", "jiffies", "refined-jiffies"].contains(&source.trim()) {
        return false;
    }
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = cpus.lines().find(|line| line.starts_with("flags"));
    let has = |flag| flags.is_some_and(|flags| flags.split_whitespace().any(|own| own == flag));
    cfg!(target_arch = "x86_64") && has("constant_tsc") && has("nonstop_tsc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_agree() {
        let sleep = |_, during| std::thread::sleep(during);
        let clock = Clock::calibrate(Duration::from_millis(50), sleep);
        let (begin, from) = (clock.now(), Clock::MonotonicRaw.now());
        std::thread::sleep(Duration::from_millis(50));
        let elapsed = clock.between(begin, clock.now());
        let by_kernel = Clock::MonotonicRaw.between(from, Clock::MonotonicRaw.now());
        assert!(elapsed >= 50e6 && by_kernel >= 50e6);
        // Another program may run between both readings, but hardly for half of the time.
        assert!(
            (elapsed / by_kernel - 1.0).abs() < 0.5,
            "{elapsed} {by_kernel}"
        );
        assert!((0.0..10_000.0).contains(&clock.overhead_ns()));
    }
}
