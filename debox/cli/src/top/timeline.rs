// SPDX-License-Identifier: MIT OR Apache-2.0
//! The last minutes: how much was waited for what, interval by interval.

use std::collections::VecDeque;

use super::facts::{Facts, Meaning};

/// The most intervals that are kept: ten minutes at the usual two seconds.
pub const KEPT: usize = 300;

/// The lines of the time line, from what is looked for to what is usual.
pub const LINES: [&str; 9] = [
    "blocked loops",
    "lock",
    "disk",
    "memory",
    "cpu wait",
    "network",
    "process",
    "other",
    "computing",
];

/// Percent of one thread's time, for each of the lines.
pub type Point = [u64; LINES.len()];

#[derive(Default)]
pub struct Timeline {
    points: VecDeque<Point>,
}

impl Timeline {
    pub fn add(&mut self, facts: &Facts) {
        if self.points.len() >= KEPT {
            self.points.pop_front();
        }
        self.points.push_back(point(facts));
    }

    /// The last `most` values of a line, oldest first.
    pub fn line(&self, line: usize, most: usize) -> Vec<u64> {
        let skipped = self.points.len().saturating_sub(most);
        self.points
            .iter()
            .skip(skipped)
            .map(|point| point[line])
            .collect()
    }

    pub fn len(&self) -> usize {
        self.points.len()
    }
}

fn point(facts: &Facts) -> Point {
    let mut ns: Point = [0; LINES.len()];
    let mut add = |line: &str, more: u64| {
        let at = LINES
            .iter()
            .position(|known| *known == line)
            .unwrap_or(LINES.len() - 2);
        ns[at] += more;
    };
    for fact in &facts.waits {
        match fact.meaning {
            Meaning::Rest => {}
            Meaning::BlocksLoop => add(LINES[0], fact.wait.blocked_ns),
            _ => add(&fact.wait.class, fact.wait.blocked_ns),
        }
    }
    for fact in &facts.threads {
        add(
            "cpu wait",
            fact.thread.runqueue_ns + fact.thread.preempted_ns,
        );
        add("computing", fact.thread.cpu_ns);
    }
    let seconds = facts.seconds.max(0.001);
    ns.map(|ns| (ns as f64 / 1e7 / seconds).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let mut timeline = Timeline::default();
        for _ in 0..KEPT + 5 {
            timeline.add(&Facts::default());
        }
        assert_eq!(timeline.len(), KEPT);
        assert_eq!(timeline.line(0, 7), [0; 7]);
    }
}
