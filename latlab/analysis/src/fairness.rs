//! Jain's fairness index, which other work uses as a measure of fairness (seeds/002, section 6).

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::request::Request;

/// 1: all have the same; 1/n: one of n has everything.
pub fn jain(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut n, mut sum, mut squares) = (0u64, 0.0, 0.0);
    for value in values {
        n += 1;
        sum += value;
        squares += value * value;
    }
    (n > 0 && squares > 0.0).then(|| sum * sum / (n as f64 * squares))
}

/// Number of connections of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connections {
    /// Connections in use in the measured time: a request was intended to start on them, or was in
    /// flight.
    pub used: u64,
    /// Those of them on which no request counts as answered.
    pub unserved: u64,
}

impl Connections {
    /// `used`: the number of connections in use, at least.
    pub fn of(requests: &[Request], used: u64) -> Connections {
        let mut served: Vec<u32> = requests.iter().map(|request| request.connection).collect();
        served.sort_unstable();
        served.dedup();
        let served = served.len() as u64;
        Connections {
            used: used.max(served),
            unserved: used.saturating_sub(served),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Jain {
    /// Over the number of requests that each connection completed in the measured time, as in SEDA.
    /// A connection that was in use and completed none counts as 0. Null with one connection, and
    /// if connections are unknown.
    pub per_connection: Option<f64>,
    /// Over the bytes per second of response time that each request got. It is 1 if response times
    /// are proportional to sizes.
    pub per_request: Option<f64>,
}

impl Jain {
    /// `connections`: connections in use in the measured time, if known.
    pub fn of(requests: &[Request], connections: Option<Connections>) -> Jain {
        let mut done: FxHashMap<u32, u64> = FxHashMap::default();
        if connections.is_some() {
            for request in requests {
                *done.entry(request.connection).or_default() += 1;
            }
        }
        let unserved = connections.map_or(0, |connections| connections.unserved) as f64;
        let rates = requests
            .iter()
            .filter(|request| request.has_size())
            .map(|request| request.size as f64 / request.latency.max(1) as f64);
        Jain {
            per_connection: if done.len() as f64 + unserved > 1.0 {
                // Connections that completed nothing only add to the number of connections.
                jain(done.values().map(|count| *count as f64))
                    .map(|index| index * done.len() as f64 / (done.len() as f64 + unserved))
            } else {
                None
            },
            per_request: jain(rates),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_shares_are_1_and_one_of_n_is_1_nth() {
        assert_eq!(jain([3.0, 3.0, 3.0].into_iter()), Some(1.0));
        assert_eq!(jain([8.0, 0.0, 0.0, 0.0].into_iter()), Some(0.25));
        assert_eq!(jain([].into_iter()), None);
        assert_eq!(jain([0.0].into_iter()), None);
    }
}
