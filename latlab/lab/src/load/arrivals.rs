//! When an open loop's requests are to start.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

/// A rate, and its duration.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub rps: f64,
    pub ns: i64,
}

/// Intended starts in ascending order, in nanoseconds since the start of the run.
pub enum Arrivals {
    Rates(Rates),
    Listed(std::vec::IntoIter<i64>),
}

impl Arrivals {
    /// The next start; `None` after the last.
    pub fn peek(&self) -> Option<i64> {
        match self {
            Arrivals::Rates(rates) => rates.peek(),
            Arrivals::Listed(starts) => starts.as_slice().first().copied(),
        }
    }

    pub fn advance(&mut self) {
        match self {
            Arrivals::Rates(rates) => rates.advance(),
            Arrivals::Listed(starts) => drop(starts.next()),
        }
    }
}

/// Starts at given rates.
pub struct Rates {
    steps: Vec<Step>,
    /// Where the first of the remaining steps begins.
    begin_ns: i64,
    next_ns: f64,
    poisson: bool,
    share: f64,
    /// The process's phase among all processes, from 0 to below 1.
    turn: f64,
    random: Xoshiro256PlusPlus,
}

impl Rates {
    /// The starts of one of several processes. With constant gaps, the processes take turns.
    pub fn new(steps: &[Step], poisson: bool, seed: u64, process: u16, processes: u16) -> Rates {
        let mut arrivals = Rates {
            steps: steps.to_vec(),
            begin_ns: 0,
            next_ns: 0.0,
            poisson,
            share: 1.0 / f64::from(processes.max(1)),
            turn: f64::from(process) / f64::from(processes.max(1)),
            random: Xoshiro256PlusPlus::seed_from_u64(crate::content::mix(
                !seed ^ (u64::from(process) << 32),
            )),
        };
        arrivals.next_ns = arrivals.first_gap();
        arrivals.skip_ended_steps();
        arrivals
    }

    /// The gap from a step's beginning to its first start.
    fn first_gap(&mut self) -> f64 {
        match self.poisson {
            true => self.gap(),
            false => self.gap() * self.turn,
        }
    }

    fn gap(&mut self) -> f64 {
        let Some(step) = self.steps.first() else {
            return 0.0;
        };
        let mean = 1e9 / (step.rps * self.share);
        match self.poisson {
            true => -mean * (1.0 - self.random.random::<f64>()).ln(),
            false => mean,
        }
    }

    /// A gap that reaches into the next step is drawn again there. That is correct for Poisson
    /// arrivals, because they are memoryless.
    fn skip_ended_steps(&mut self) {
        while let Some(step) = self.steps.first() {
            let end = self.begin_ns + step.ns;
            if self.next_ns < end as f64 {
                return;
            }
            self.begin_ns = end;
            self.steps.remove(0);
            self.next_ns = end as f64 + self.first_gap();
        }
    }

    /// The next start; `None` after the last step.
    fn peek(&self) -> Option<i64> {
        (!self.steps.is_empty()).then_some(self.next_ns as i64)
    }

    fn advance(&mut self) {
        self.next_ns += self.gap();
        self.skip_ended_steps();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn all(steps: &[Step], poisson: bool, process: u16, processes: u16) -> Vec<i64> {
        let mut arrivals = Rates::new(steps, poisson, 11, process, processes);
        std::iter::from_fn(|| {
            let next = arrivals.peek();
            arrivals.advance();
            next
        })
        .collect()
    }

    #[test]
    fn constant_gaps_are_constant_and_shared_in_turn() {
        let step = Step {
            rps: 1000.0,
            ns: SECOND,
        };
        let mut both = all(&[step], false, 0, 2);
        both.extend(all(&[step], false, 1, 2));
        both.sort_unstable();
        assert_eq!(both.len(), 1000);
        assert!(both
            .windows(2)
            .all(|pair| (pair[1] - pair[0] - 1_000_000).abs() <= 1));
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let step = Step {
            rps: 10_000.0,
            ns: 10 * SECOND,
        };
        let times = all(&[step], true, 0, 1);
        assert!((99_000..101_000).contains(&times.len()), "{}", times.len());
        let gaps: Vec<f64> = times
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // Its standard deviation equals its mean, and 1/e of the gaps are longer than the mean.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.03);
        let longer = gaps.iter().filter(|gap| **gap > mean).count() as f64 / gaps.len() as f64;
        assert!((longer - 0.3679).abs() < 0.01, "{longer}");
    }

    #[test]
    fn steps_follow_each_other() {
        let step = |rps| Step { rps, ns: SECOND };
        for poisson in [false, true] {
            let times = all(&[step(1000.0), step(100.0), step(4000.0)], poisson, 0, 1);
            let within = |second: i64| {
                let range = second * SECOND..(second + 1) * SECOND;
                times.iter().filter(|time| range.contains(time)).count()
            };
            assert!((850..1150).contains(&within(0)), "{}", within(0));
            assert!((70..130).contains(&within(1)), "{}", within(1));
            assert!((3700..4300).contains(&within(2)), "{}", within(2));
            assert_eq!(within(3), 0);
            assert!(times.is_sorted());
        }
    }
}
