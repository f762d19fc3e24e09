//! An ideal server under the same load, with processor sharing.
//!
//! The papers consider a server ideal if its response times are "roughly proportional to transfer sizes"
//! (seeds/000, 3.4.1), with requests in memory "served at nearly the same time" and packets of all of
//! them sent in turn (3.4). Such a server divides its capacity equally among its current requests, and a
//! request's mean response time is its size times a constant. First come, first served would not
//! consider sizes at all. Smallest first is not what any of the servers, nor the network below them,
//! does.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// No previous or next request on a connection.
const NONE: u32 = u32::MAX;

/// Requests as they arrive at the ideal server.
#[derive(Debug, Default)]
pub struct Load {
    /// Cost of each request, in bytes.
    demands: Vec<f64>,
    /// Arrival time; for a request with `after`, the delay after that request's answer.
    delays: Vec<f64>,
    /// The next request on the same connection, which waits for this one's answer.
    next: Vec<u32>,
    /// Requests that wait for no other.
    first: Vec<u32>,
}

impl Load {
    /// Adds a request, and returns its number.
    pub fn add(&mut self, demand: f64, delay_ns: f64, after: Option<u32>) -> u32 {
        let number = self.demands.len() as u32;
        self.demands.push(demand);
        self.delays.push(delay_ns.max(0.0));
        self.next.push(NONE);
        match after {
            Some(before) => self.next[before as usize] = number,
            None => self.first.push(number),
        }
        number
    }

    pub fn len(&self) -> usize {
        self.demands.len()
    }

    pub fn is_empty(&self) -> bool {
        self.demands.is_empty()
    }

    pub fn total(&self) -> f64 {
        self.demands.iter().sum()
    }

    /// Serves all requests at `rate` bytes per ns.
    ///
    /// All requests in service get the same amount per time. A single sum `given` is therefore
    /// sufficient: a request is done when `given` has grown by its demand since its arrival.
    pub fn share(&self, rate: f64) -> Served {
        let mut arrivals: BinaryHeap<Due> = BinaryHeap::with_capacity(self.first.len());
        for number in &self.first {
            arrivals.push(Due(self.delays[*number as usize], *number));
        }
        let mut inside: BinaryHeap<Due> = BinaryHeap::new();
        let mut latencies = vec![0.0; self.len()];
        let mut came = vec![0.0; self.len()];
        let (mut now, mut given, mut busy) = (0.0f64, 0.0f64, 0.0f64);
        loop {
            let share = rate / inside.len().max(1) as f64;
            let done = inside.peek().map(|due| now + (due.0 - given) / share);
            let comes = arrivals.peek().map(|due| due.0.max(now));
            let next_is_done = match (done, comes) {
                (None, None) => break,
                (Some(done), Some(comes)) => done <= comes,
                (done, _) => done.is_some(),
            };
            if next_is_done {
                let (Some(done), Some(Due(goal, number))) = (done, inside.pop()) else {
                    break;
                };
                busy += done - now;
                now = done;
                given = goal;
                latencies[number as usize] = now - came[number as usize];
                let next = self.next[number as usize];
                if next != NONE {
                    arrivals.push(Due(now + self.delays[next as usize], next));
                }
                if inside.is_empty() {
                    // Restarting the sum keeps it precise.
                    given = 0.0;
                }
            } else {
                let (Some(comes), Some(Due(_, number))) = (comes, arrivals.pop()) else {
                    break;
                };
                if !inside.is_empty() {
                    given += (comes - now) * share;
                    busy += comes - now;
                }
                now = comes;
                came[number as usize] = now;
                inside.push(Due(given + self.demands[number as usize], number));
            }
        }
        Served {
            latencies,
            end_ns: now,
            utilisation: if now > 0.0 { busy / now } else { 0.0 },
        }
    }

    /// The rate at which the last answer is at `end_ns`, within half a percent. The end depends on the
    /// rate only if requests wait for answers.
    pub fn rate_for_end(&self, end_ns: f64) -> f64 {
        let mut low = self.total() / end_ns.max(1.0);
        let close = |end: f64| (end / end_ns - 1.0).abs() < 0.005;
        let mut high = low;
        for _ in 0..20 {
            let end = self.share(high).end_ns;
            if end <= end_ns || close(end) {
                break;
            }
            low = high;
            high *= 2.0;
        }
        for _ in 0..10 {
            let middle = (low * high).sqrt();
            let end = self.share(middle).end_ns;
            if close(end) {
                return middle;
            }
            if end > end_ns {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }
}

/// The results of the ideal server.
#[derive(Debug)]
pub struct Served {
    /// Latency of each request, in ns.
    pub latencies: Vec<f64>,
    pub end_ns: f64,
    /// Part of the time in which there was a request to serve.
    pub utilisation: f64,
}

/// Ordered so that the smallest is first.
#[derive(Debug, PartialEq)]
struct Due(f64, u32);

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.total_cmp(&self.0).then(other.1.cmp(&self.1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn one_alone_has_the_whole_rate_and_two_have_half_each() {
        let mut load = Load::default();
        load.add(100.0, 0.0, None);
        assert_eq!(load.share(2.0).latencies, [50.0]);
        load.add(100.0, 0.0, None);
        let served = load.share(2.0);
        assert_eq!(served.latencies, [100.0, 100.0]);
        assert_eq!(served.utilisation, 1.0);
    }

    #[test]
    fn a_small_one_passes_a_large_one() {
        // The large request has received 10 of 100 when the small one arrives. Then both get half of the
        // rate. The small one needs 10 at half the rate; then the large one has 80 left at the full
        // rate.
        let mut load = Load::default();
        load.add(100.0, 0.0, None);
        load.add(10.0, 10.0, None);
        let served = load.share(1.0);
        assert_eq!(served.latencies, [110.0, 20.0]);
    }

    #[test]
    fn who_waits_for_an_answer_comes_after_it() {
        let mut load = Load::default();
        let first = load.add(10.0, 5.0, None);
        load.add(10.0, 3.0, Some(first));
        let served = load.share(1.0);
        assert_eq!(served.latencies, [10.0, 10.0]);
        assert_eq!(served.end_ns, 28.0);
        assert!((served.utilisation - 20.0 / 28.0).abs() < 1e-9);
        let rate = load.rate_for_end(18.0);
        assert!((load.share(rate).end_ns / 18.0 - 1.0).abs() < 0.006);
    }

    #[test]
    fn the_mean_latency_is_demand_over_what_is_left_of_the_rate() {
        // M/G/1 with processor sharing: a request of size x takes x / (1 - utilisation) on average.
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut load = Load::default();
        let mut now = 0.0;
        for _ in 0..200_000 {
            now += -(1.0 - random.random::<f64>()).ln();
            load.add(
                if random.random_range(0..4) == 0 {
                    2.0
                } else {
                    0.4
                },
                now,
                None,
            );
        }
        let served = load.share(1.0);
        let utilisation = 0.25 * 2.0 + 0.75 * 0.4;
        assert!((served.utilisation - utilisation).abs() < 0.02);
        for size in [2.0, 0.4] {
            let of_size = |(demand, latency): (&f64, &f64)| (*demand == size).then_some(*latency);
            let of_size: Vec<f64> = load
                .demands
                .iter()
                .zip(&served.latencies)
                .filter_map(of_size)
                .collect();
            let mean = of_size.iter().sum::<f64>() / of_size.len() as f64;
            let expected = size / (1.0 - utilisation);
            assert!((mean / expected - 1.0).abs() < 0.1, "{mean} for {expected}");
        }
    }

    proptest! {
        #[test]
        fn what_is_served_is_what_came(
            jobs in prop::collection::vec((0u32..1000, 0u32..500, any::<bool>()), 1..60),
        ) {
            let mut load = Load::default();
            let mut last = None;
            for (demand, delay, follows) in &jobs {
                let after = last.filter(|_| *follows);
                last = Some(load.add(f64::from(*demand), f64::from(*delay), after));
            }
            let served = load.share(1.5);
            for (latency, demand) in served.latencies.iter().zip(&load.demands) {
                prop_assert!(*latency >= demand / 1.5 - 1e-6);
                prop_assert!(*latency <= load.total() / 1.5 + 1e-6);
            }
            let work = served.utilisation * served.end_ns * 1.5;
            prop_assert!((work - load.total()).abs() <= 1e-6 * (1.0 + load.total()));
        }
    }
}
