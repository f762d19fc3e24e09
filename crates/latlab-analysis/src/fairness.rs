//! Jain's fairness index, which other work measures fairness by (seeds/002, section 6).

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::request::Request;

/// 1: all have the same; 1/n: one of n has all.
pub fn jain(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut n, mut sum, mut squares) = (0u64, 0.0, 0.0);
    for value in values {
        n += 1;
        sum += value;
        squares += value * value;
    }
    (n > 0 && squares > 0.0).then(|| sum * sum / (n as f64 * squares))
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Jain {
    /// Over the requests that each connection got done, as SEDA has it. Null with one connection, and
    /// where connections are not known.
    pub per_connection: Option<f64>,
    /// Over the bytes per second of response time that each request got: 1 if response times are
    /// proportional to sizes.
    pub per_request: Option<f64>,
}

impl Jain {
    pub fn of(requests: &[Request], has_connections: bool) -> Jain {
        let mut done: FxHashMap<u32, u64> = FxHashMap::default();
        if has_connections {
            for request in requests {
                *done.entry(request.connection).or_default() += 1;
            }
        }
        let rates = requests
            .iter()
            .filter(|request| request.has_size())
            .map(|request| request.size as f64 / request.latency.max(1) as f64);
        Jain {
            per_connection: if done.len() > 1 {
                jain(done.values().map(|count| *count as f64))
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
