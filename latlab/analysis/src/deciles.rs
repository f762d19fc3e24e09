//! The requests by response time, in tenths, and the sizes in each tenth (Table 3.2, Figures 3.10, 3.11).

use serde::Serialize;

/// Number of series of sizes, as in the papers.
const SERIES: usize = 4;

/// A range of sizes, with about as many requests as the other series.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    pub series: usize,
    pub size_min: u64,
    pub size_max: u64,
    pub requests: u64,
    /// Part of all requests with known size.
    pub share: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decile {
    /// 1: the fastest tenth.
    pub decile: usize,
    pub requests: u64,
    /// The shortest and the longest latency in the tenth, in the run's unit; null if it has no request.
    pub latency_min: Option<crate::report::Number>,
    pub latency_max: Option<crate::report::Number>,
    pub size_mean: f64,
    /// The part of its requests in each series.
    pub series: Vec<f64>,
}

/// Cuts where the cumulated number of requests is closest to a quarter, a half and three quarters of all.
/// With the sizes of SPECweb99, this gives the series of Table 3.2.
pub fn series(sizes: &mut [u64]) -> Vec<Series> {
    sizes.sort_unstable();
    let n = sizes.len() as u64;
    let mut counted: Vec<(u64, u64)> = Vec::new();
    for group in sizes.chunk_by(|a, b| a == b) {
        counted.push((group[0], group.len() as u64));
    }
    let mut ends = Vec::new();
    let (mut so_far, mut at) = (0, 0);
    for quarter in 1..SERIES as u64 {
        let wanted = n as f64 * quarter as f64 / SERIES as f64;
        while at < counted.len() {
            let with = so_far + counted[at].1;
            if with as f64 - wanted > wanted - so_far as f64 {
                break;
            }
            so_far = with;
            at += 1;
        }
        ends.push(at);
    }
    ends.push(counted.len());
    ends.dedup();
    let mut found = Vec::new();
    let mut begin = 0;
    for end in ends {
        if end == begin {
            continue;
        }
        let group = &counted[begin..end];
        let requests = group.iter().map(|(_, count)| count).sum::<u64>();
        found.push(Series {
            series: found.len() + 1,
            size_min: group[0].0,
            size_max: group[group.len() - 1].0,
            requests,
            share: requests as f64 / n as f64,
        });
        begin = end;
    }
    found
}

/// `responses`: size and latency, sorted by latency. `unit`: ticks per unit.
pub fn deciles(responses: &[(u64, u64)], series: &[Series], unit: f64) -> Vec<Decile> {
    let n = responses.len();
    let mut found = Vec::new();
    for decile in 0..10 {
        let group = &responses[n * decile / 10..n * (decile + 1) / 10];
        let mut counts = vec![0u64; series.len()];
        let mut bytes = 0.0;
        for (size, _) in group {
            let at = series.partition_point(|one| one.size_max < *size);
            if let Some(count) = counts.get_mut(at) {
                *count += 1;
            }
            bytes += *size as f64;
        }
        let most = group.len().max(1) as f64;
        let latency = |response: Option<&(u64, u64)>| {
            response.map(|(_, latency)| crate::report::Number(*latency as f64 / unit))
        };
        found.push(Decile {
            decile: decile + 1,
            requests: group.len() as u64,
            latency_min: latency(group.first()),
            latency_max: latency(group.last()),
            size_mean: bytes / most,
            series: counts.iter().map(|count| *count as f64 / most).collect(),
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Table 1.1: weights of the classes and of the files in each.
    fn specweb99() -> Vec<u64> {
        let files = [3.9, 5.9, 8.8, 17.7, 35.3, 11.8, 7.1, 5.0, 4.4];
        let mut sizes = Vec::new();
        for (unit, class) in [(100, 0.35), (1_000, 0.5), (10_000, 0.14), (100_000, 0.01)] {
            for (index, weight) in files.iter().enumerate() {
                let requests = (class * weight * 1_000.0f64).round() as usize;
                sizes.extend(std::iter::repeat_n(unit * (index as u64 + 1), requests));
            }
        }
        sizes
    }

    #[test]
    fn the_sizes_of_specweb99_give_table_3_2() {
        let found = series(&mut specweb99());
        let table: Vec<_> = found
            .iter()
            .map(|one| {
                (
                    one.size_min,
                    one.size_max,
                    (one.share * 1e4).round() / 100.0,
                )
            })
            .collect();
        let paper = [
            (100, 500, 25.06),
            (600, 4_000, 28.05),
            (5_000, 6_000, 23.55),
            (7_000, 900_000, 23.34),
        ];
        assert_eq!(table.len(), 4);
        for (ours, theirs) in table.iter().zip(paper) {
            assert_eq!((ours.0, ours.1), (theirs.0, theirs.1));
            assert!((ours.2 - theirs.2).abs() < 0.12, "{ours:?} {theirs:?}");
        }
    }

    #[test]
    fn a_fair_server_has_each_series_in_its_own_deciles() {
        let mut sizes: Vec<u64> = (0..1000).collect();
        let series = series(&mut sizes);
        let responses: Vec<_> = sizes.iter().map(|size| (*size, *size)).collect();
        let found = deciles(&responses, &series, 1.0);
        assert_eq!(found[0].series, [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(found[2].series, [0.5, 0.5, 0.0, 0.0]);
        assert_eq!(found[9].series, [0.0, 0.0, 0.0, 1.0]);
    }

    proptest! {
        #[test]
        fn every_request_is_in_one_series_and_one_decile(
            responses in prop::collection::vec((0u64..50, 0u64..50), 0..200),
        ) {
            let mut sizes: Vec<_> = responses.iter().map(|response| response.0).collect();
            let series = series(&mut sizes);
            prop_assert!(series.len() <= SERIES);
            prop_assert_eq!(series.iter().map(|one| one.requests).sum::<u64>(), responses.len() as u64);
            let found = deciles(&responses, &series, 1.0);
            prop_assert_eq!(found.iter().map(|one| one.requests).sum::<u64>(), responses.len() as u64);
            for decile in found.iter().filter(|decile| decile.requests > 0) {
                prop_assert!((decile.series.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            }
        }
    }
}
