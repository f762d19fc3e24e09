// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happened on a thread between two points.

use std::fmt;

use crate::record::Budget;

/// What happened on a thread in a scope; `struct debox_sums`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    pub wall_ns: u64,
    /// Where the wall time went: the parts add up to `wall_ns`; `outside_ns` is 0.
    pub budget: Budget,
    /// The part of `budget` in system calls. The rest was between them: user mode and its page faults.
    pub in_calls: Budget,
    /// System calls; under a user tap, those that it saw.
    pub calls: u64,
    /// Sleeps in calls, and in page faults between them.
    pub sleeps: u64,
    pub faults_minor: u64,
    pub faults_major: u64,
    /// Time of unknown kind, because the machine hid switches. It is included in the parts, mostly in CPU
    /// time.
    pub unseen_ns: u64,
    /// Hidden switches, as far as they were noticed.
    pub unseen: u64,
    /// User tap: calls that could not be stamped.
    pub untapped: u64,
    /// [`SUMS_IRQ_MEASURED`], [`SUMS_USER_TAP`], [`SUMS_ALL_FAULTS`].
    pub flags: u32,
    pub reserved: [u32; 3],
}

/// [`Sums::flags`]: `irq_ns` is measured; without this flag, that time is included in `cpu_ns`.
pub const SUMS_IRQ_MEASURED: u32 = 1 << 0;
/// [`Sums::flags`]: only tapped calls are counted.
pub const SUMS_USER_TAP: u32 = 1 << 1;
/// [`Sums::flags`]: the page faults of the program's own code are counted, too.
pub const SUMS_ALL_FAULTS: u32 = 1 << 2;

const _: () = assert!(size_of::<Sums>() == 176);

impl Sums {
    /// CPU time in user mode: running, and not in a call.
    pub fn cpu_user_ns(&self) -> u64 {
        self.budget.cpu_ns - self.in_calls.cpu_ns
    }

    /// CPU time in system calls.
    pub fn cpu_kernel_ns(&self) -> u64 {
        self.in_calls.cpu_ns
    }

    /// Whether `irq_ns` is measured.
    pub fn irq_is_measured(&self) -> bool {
        self.flags & SUMS_IRQ_MEASURED != 0
    }
}

/// A duration with three digits: `1.23ms`.
struct Short(u64);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            0 => return f.write_str("0"),
            ns if ns < 1_000 => return write!(f, "{ns}ns"),
            ns if ns < 999_500 => (ns as f64 / 1e3, "us"),
            ns if ns < 999_500_000 => (ns as f64 / 1e6, "ms"),
            ns => (ns as f64 / 1e9, "s"),
        };
        let digits = if value < 9.995 {
            2
        } else {
            usize::from(value < 99.95)
        };
        write!(f, "{value:.digits$}{unit}")
    }
}

/// Formats the sums for a log line: `wall=4.10ms cpu=1.30ms blocked=2.75ms runqueue=50.0us preempted=0
/// calls=12`. Non-zero interrupts, if measured, and unknown time follow.
impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let budget = &self.budget;
        write!(
            f,
            "wall={} cpu={} blocked={} runqueue={} preempted={} calls={}",
            Short(self.wall_ns),
            Short(budget.cpu_ns),
            Short(budget.blocked_ns),
            Short(budget.runqueue_ns),
            Short(budget.preempted_ns),
            self.calls,
        )?;
        if self.irq_is_measured() {
            write!(f, " irq={}", Short(budget.irq_ns))?;
        }
        if self.unseen_ns > 0 || self.unseen > 0 {
            write!(f, " unseen={}/{}", Short(self.unseen_ns), self.unseen)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        let short = |ns| Short(ns).to_string();
        assert_eq!(short(0), "0");
        assert_eq!(short(999), "999ns");
        assert_eq!(short(1_234), "1.23us");
        assert_eq!(short(12_345_678), "12.3ms");
        assert_eq!(short(999_499_999), "999ms");
        assert_eq!(short(2_000_000_000), "2.00s");
    }
}
