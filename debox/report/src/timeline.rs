//! What the threads did over time. Bins double in width when the recording outgrows them.

/// The parts of a thread's time.
pub const PARTS: [&str; 13] = [
    "cpu in calls",
    "interrupts",
    "waiting for a CPU",
    "preempted",
    "blocked: disk",
    "blocked: lock",
    "blocked: memory",
    "blocked: network",
    "blocked: process",
    "blocked: cpu",
    "blocked: other",
    "blocked: not listed",
    "blocked: idle",
];
pub const CPU: usize = 0;
pub const IRQ: usize = 1;
pub const RUNQUEUE: usize = 2;
pub const PREEMPTED: usize = 3;
pub const UNLISTED: usize = 11;
pub const LOCK: usize = 5;
pub const IDLE: usize = 12;

/// The part for sleeps of a class.
pub fn part_of_class(class: &str) -> usize {
    match class {
        "disk" => 4,
        "lock" => LOCK,
        "memory" => 6,
        "network" => 7,
        "process" => 8,
        "cpu" => 9,
        "idle" => IDLE,
        _ => 10,
    }
}

/// A timeline with `N` parts and at most `BINS` bins.
#[derive(Debug, Clone)]
pub struct Timeline<const N: usize = { PARTS.len() }, const BINS: usize = 512> {
    /// Nanoseconds since 1970.
    origin: i64,
    /// A bin is `1 << shift` ns wide.
    shift: u32,
    /// Bins up to the last one in use.
    bins: Vec<[u64; N]>,
}

impl<const N: usize, const BINS: usize> Timeline<N, BINS> {
    pub fn new(origin: i64) -> Self {
        Timeline {
            origin,
            shift: 12,
            bins: Vec::new(),
        }
    }

    fn widen(&mut self) {
        self.shift += 1;
        for at in 0..self.bins.len().div_ceil(2) {
            let mut sum = self.bins[2 * at];
            if let Some(next) = self.bins.get(2 * at + 1) {
                for (sum, more) in sum.iter_mut().zip(next) {
                    *sum = sum.saturating_add(*more);
                }
            }
            self.bins[at] = sum;
        }
        self.bins.truncate(self.bins.len().div_ceil(2));
    }

    /// Adds `amount` of a part, spread evenly from `begin` over `length`. Time before the origin
    /// counts at the origin: that is a call that began before it was monitored.
    #[inline]
    pub fn add(&mut self, begin: i64, length: u64, part: usize, amount: u64) {
        self.add_all(begin, length, &[(part, amount)]);
    }

    /// Adds amounts of several parts.
    #[inline]
    pub fn add_all(&mut self, begin: i64, length: u64, amounts: &[(usize, u64)]) {
        if amounts.iter().all(|(_, amount)| *amount == 0) {
            return;
        }
        let begin = begin.saturating_sub(self.origin).max(0) as u64;
        let end = begin.saturating_add(length.max(1) - 1);
        while end >> self.shift >= BINS as u64 {
            self.widen();
        }
        let (first, last) = ((begin >> self.shift) as usize, (end >> self.shift) as usize);
        if self.bins.len() <= last {
            self.bins.resize(last + 1, [0; N]);
        }
        if first == last {
            let bin = &mut self.bins[first];
            for (part, amount) in amounts {
                bin[*part] = bin[*part].saturating_add(*amount);
            }
            return;
        }
        for (part, amount) in amounts.iter().filter(|(_, amount)| *amount > 0) {
            self.spread(begin, end, length, *part, *amount);
        }
    }

    /// Spreads an amount over several bins.
    fn spread(&mut self, begin: u64, end: u64, length: u64, part: usize, amount: u64) {
        let (first, last) = ((begin >> self.shift) as usize, (end >> self.shift) as usize);
        let mut left = amount;
        for at in first..=last {
            let from = begin.max((at as u64) << self.shift);
            let to = end.min(((at as u64) << self.shift) | ((1 << self.shift) - 1));
            let share = if at == last {
                left
            } else {
                let share = u128::from(amount) * u128::from(to - from + 1) / u128::from(length);
                (share as u64).min(left)
            };
            left -= share;
            let sum = &mut self.bins[at][part];
            *sum = sum.saturating_add(share);
        }
    }

    /// Adds a timeline with the same origin.
    pub fn merge(&mut self, other: &Self) {
        while self.shift < other.shift {
            self.widen();
        }
        let by = self.shift - other.shift;
        if !other.bins.is_empty() {
            let last = (other.bins.len() - 1) >> by;
            if self.bins.len() <= last {
                self.bins.resize(last + 1, [0; N]);
            }
        }
        for (at, theirs) in other.bins.iter().enumerate() {
            for (ours, theirs) in self.bins[at >> by].iter_mut().zip(theirs) {
                *ours = ours.saturating_add(*theirs);
            }
        }
    }

    /// Moves what is in `line` from one part to another.
    pub fn move_part(&mut self, line: &Timeline<1>, from: usize, to: usize) {
        let Some(by) = self.shift.checked_sub(line.shift) else {
            return; // a timeline with another origin
        };
        for (at, [amount]) in line.bins.iter().enumerate() {
            let Some(bin) = self.bins.get_mut(at >> by) else {
                return;
            };
            let amount = (*amount).min(bin[from]);
            bin[from] -= amount;
            bin[to] = bin[to].saturating_add(amount);
        }
    }

    /// An empty timeline with bins of the same width.
    pub fn like(&self) -> Self {
        Timeline {
            origin: self.origin,
            shift: self.shift,
            bins: Vec::new(),
        }
    }

    pub fn origin(&self) -> i64 {
        self.origin
    }

    pub fn bin_ns(&self) -> u64 {
        1 << self.shift
    }

    /// The bins up to the last in use.
    pub fn bins(&self) -> &[[u64; N]] {
        let used = self
            .bins
            .iter()
            .rposition(|bin| bin.iter().any(|sum| *sum > 0));
        &self.bins[..used.map_or(0, |last| last + 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_is_lost(adds in prop::collection::vec(
            (0i64..1 << 45, 0u64..1 << 44, 0usize..PARTS.len(), 0u64..1 << 44), 0..60)) {
            let mut whole: Timeline = Timeline::new(0);
            let (mut odd, mut even): (Timeline, Timeline) = (Timeline::new(0), Timeline::new(0));
            let mut sum = 0u64;
            for (index, (begin, length, part, amount)) in adds.iter().enumerate() {
                whole.add(*begin, *length, *part, *amount);
                let half = if index % 2 == 0 { &mut even } else { &mut odd };
                half.add(*begin, *length, *part, *amount);
                sum += amount;
            }
            even.merge(&odd);
            for timeline in [whole, even] {
                let found: u64 = timeline.bins().iter().flatten().sum();
                prop_assert_eq!(found, sum);
            }
        }

        #[test]
        fn hostile_times_do_no_harm(begin: i64, length: u64, amount: u64, origin: i64) {
            let mut timeline: Timeline = Timeline::new(origin);
            timeline.add(begin, length, 0, amount);
            prop_assert_eq!(timeline.bins().iter().flatten().sum::<u64>(), amount);
        }
    }

    #[test]
    fn a_part_moves_within_its_bins() {
        let mut all: Timeline = Timeline::new(0);
        let mut line: Timeline<1> = Timeline::new(0);
        all.add(0, 1 << 30, LOCK, 1 << 30);
        all.add(1 << 29, 1 << 29, LOCK, 1 << 29);
        line.add(1 << 29, 1 << 29, 0, 1 << 29);
        all.add(1 << 32, 1, CPU, 1);
        all.move_part(&line, LOCK, IDLE);
        let sum = |part: usize| all.bins().iter().map(|bin| bin[part]).sum::<u64>();
        assert_eq!((sum(LOCK), sum(IDLE)), (1 << 30, 1 << 29));
        let first_half = all.bins().len() / 8 - 1;
        assert!(all.bins()[..first_half].iter().all(|bin| bin[IDLE] == 0));
        line.add(1 << 60, 1, 0, 1);
        all.move_part(&line, LOCK, IDLE);
    }
}
