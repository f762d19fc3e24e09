//! Reads access logs: what was requested, and when.

use std::path::Path;

use anyhow::{ensure, Context, Result};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::lists::{path_of, read};

const SECOND_NS: i64 = 1_000_000_000;

/// Counts of a log's lines that cannot be repeated as requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Methods other than GET.
    pub methods: u64,
    /// Answered with an error, or without the file.
    pub statuses: u64,
    /// Not in the common or combined format.
    pub unreadable: u64,
}

/// A request in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    pub path: String,
    /// The time in the log, in ns since 1970; `None` if it cannot be parsed.
    pub at_ns: Option<i64>,
}

/// The requests of an access log in the common or combined format, in its order.
pub fn read_access_log(path: &Path) -> Result<(Vec<Logged>, Skipped)> {
    let text = read(path)?;
    let mut skipped = Skipped::default();
    let mut logged = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match entry(line) {
            None => skipped.unreadable += 1,
            Some(entry) if entry.method != "GET" => skipped.methods += 1,
            Some(entry) if !(200..300).contains(&entry.status) && entry.status != 304 => {
                skipped.statuses += 1;
            }
            Some(entry) => logged.push(Logged {
                path: entry.path,
                at_ns: time(entry.date),
            }),
        }
    }
    ensure!(
        !logged.is_empty(),
        "{} has no successful GET request in the common or combined log format",
        path.display()
    );
    Ok((logged, skipped))
}

struct Entry<'a> {
    date: &'a str,
    method: &'a str,
    path: String,
    status: u16,
}

/// `host - - [date] "GET /path HTTP/1.1" 200 1234 ...`.
fn entry(line: &str) -> Option<Entry<'_>> {
    let (before, rest) = line.split_once("] \"")?;
    // Quotes within a request are escaped.
    let end = rest
        .match_indices('"')
        .map(|(at, _)| at)
        .find(|at| !rest[..*at].ends_with('\\'))?;
    let mut parts = rest[..end].split(' ');
    let (method, asked) = (parts.next()?, parts.next()?);
    Some(Entry {
        date: before.rsplit_once('[').map_or("", |(_, date)| date),
        method,
        path: path_of(asked)?,
        status: rest[end + 1..].split_whitespace().next()?.parse().ok()?,
    })
}

/// `21/Nov/2026:10:00:00 +0000`; some logs have a fraction of the second.
fn time(date: &str) -> Option<i64> {
    let parsed = jiff::fmt::strtime::parse("%d/%b/%Y:%H:%M:%S%.f %z", date).ok()?;
    let at = parsed.to_timestamp().ok()?;
    i64::try_from(at.as_nanosecond()).ok()
}

/// Requests with the times at which to start them.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    pub paths: Vec<String>,
    /// For each request, in ns since the start of the run; ascending.
    pub starts: Vec<i64>,
    pub duration_ns: i64,
    /// Requests without a time, which are left out.
    pub timeless: u64,
}

/// Sorts requests by their times, and plays them `speed` times as fast.
///
/// If the log has whole seconds, the requests of each second are spread over it: at random like
/// independent requests, or evenly. If it has fractions of seconds, requests with the same time start
/// together.
pub fn replay(logged: Vec<Logged>, speed: f64, random: bool, seed: u64) -> Result<Replay> {
    let all = logged.len() as u64;
    let mut timed: Vec<(i64, String)> = logged
        .into_iter()
        .filter_map(|request| Some((request.at_ns?, request.path)))
        .collect();
    let timeless = all - timed.len() as u64;
    // Servers write a line when the request ends, but some write the time at which it began.
    timed.sort_by_key(|(at, _)| *at);
    let first = timed
        .first()
        .context("no request of the log has a time that can be read")?
        .0;
    let last = timed.last().map_or(first, |(at, _)| *at);
    let length = last
        .checked_sub(first)
        .context("the log has times that cannot be")?;
    let whole_seconds = timed.iter().all(|(at, _)| at % SECOND_NS == 0);
    let mut random = random.then(|| Xoshiro256PlusPlus::seed_from_u64(crate::content::mix(!seed)));
    let mut starts = Vec::with_capacity(timed.len());
    for together in timed.chunk_by(|a, b| a.0 == b.0) {
        let mut within: Vec<f64> = match (&mut random, whole_seconds) {
            (_, false) => vec![0.0; together.len()],
            (None, true) => (0..together.len())
                .map(|at| at as f64 / together.len() as f64)
                .collect(),
            (Some(random), true) => together.iter().map(|_| random.random()).collect(),
        };
        within.sort_by(f64::total_cmp);
        let begin = (together[0].0 - first) as f64;
        let scaled = |within: f64| ((begin + within * SECOND_NS as f64) / speed) as i64;
        starts.extend(within.into_iter().map(scaled));
    }
    let more = if whole_seconds { SECOND_NS } else { 1 };
    let duration_ns = (((length as f64) + more as f64) / speed) as i64;
    Ok(Replay {
        paths: timed.into_iter().map(|(_, path)| path).collect(),
        duration_ns: duration_ns.max(starts.last().map_or(1, |last| last + 1)),
        starts,
        timeless,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn logs_of_both_formats_are_read() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let text = concat!(
            "10.0.0.1 - - [21/Nov/2026:10:00:00 +0000] \"GET /a?b=c HTTP/1.1\" 200 512\n",
            "10.0.0.1 - me [21/Nov/2026:10:00:00 +0000] \"GET /d HTTP/2.0\" 304 - \"-\" \"curl \\\"x\\\"\"\n",
            "10.0.0.1 - - [21/Nov/2026:10:00:00 +0000] \"POST /a HTTP/1.1\" 200 512\n",
            "10.0.0.1 - - [21/Nov/2026:10:00:00 +0000] \"GET /missing HTTP/1.1\" 404 512\n",
            "what is this\n",
        );
        std::fs::write(log.path(), text).unwrap();
        let (logged, skipped) = read_access_log(log.path()).unwrap();
        let paths: Vec<&str> = logged.iter().map(|request| request.path.as_str()).collect();
        assert_eq!(paths, ["/a?b=c", "/d"]);
        let expected = Skipped {
            methods: 1,
            statuses: 1,
            unreadable: 1,
        };
        assert_eq!(skipped, expected);
        std::fs::write(log.path(), "\n").unwrap();
        assert!(read_access_log(log.path()).is_err());
    }

    #[test]
    fn times_have_zones_and_fractions() {
        let utc = time("21/Nov/2026:10:00:00 +0000").unwrap();
        assert_eq!(utc, 1_795_255_200 * SECOND_NS);
        assert_eq!(time("21/Nov/2026:11:30:00 +0130"), Some(utc));
        assert_eq!(
            time("21/Nov/2026:10:00:00.250 +0000"),
            Some(utc + SECOND_NS / 4)
        );
        for wrong in [
            "",
            "21/Nov/2026:10:00:00",
            "31/Feb/2026:10:00:00 +0000",
            "now",
        ] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }

    fn logged(times: &[i64]) -> Vec<Logged> {
        let numbered = times.iter().enumerate();
        let request = |(number, at): (usize, &i64)| Logged {
            path: format!("/{number}"),
            at_ns: Some(*at),
        };
        numbered.map(request).collect()
    }

    #[test]
    fn the_requests_of_a_second_are_spread_over_it() {
        let second = |number: i64| 1_000 * SECOND_NS + number * SECOND_NS;
        // A line that was written late is sorted by its time.
        let log = logged(&[second(0), second(0), second(3), second(0), second(0)]);
        let even = replay(log.clone(), 1.0, false, 1).unwrap();
        assert_eq!(even.paths, ["/0", "/1", "/3", "/4", "/2"]);
        let quarter = SECOND_NS / 4;
        assert_eq!(
            even.starts,
            [0, quarter, 2 * quarter, 3 * quarter, 3 * SECOND_NS]
        );
        assert_eq!(even.duration_ns, 4 * SECOND_NS);
        let fast = replay(log.clone(), 10.0, false, 1).unwrap();
        assert_eq!(fast.starts[4], 3 * SECOND_NS / 10);
        assert_eq!(fast.duration_ns, 4 * SECOND_NS / 10);
        let (one, other) = (
            replay(log.clone(), 1.0, true, 1),
            replay(log.clone(), 1.0, true, 2),
        );
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_eq!(one, replay(log, 1.0, true, 1).unwrap());
        assert_ne!(one.starts, other.starts);
    }

    #[test]
    fn exact_times_stay_as_they_are() {
        let log = logged(&[SECOND_NS, SECOND_NS + 5_000_000, SECOND_NS + 5_000_000]);
        let replayed = replay(log, 0.5, true, 1).unwrap();
        assert_eq!(replayed.starts, [0, 10_000_000, 10_000_000]);
        assert!(replayed.duration_ns > 10_000_000);
        let none = vec![Logged {
            path: "/".to_string(),
            at_ns: None,
        }];
        assert!(replay(none, 1.0, true, 1).is_err());
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_skipped(line in "\\PC*") {
            let _ = (entry(&line), time(&line));
        }

        /// Scaled back, each start falls into the second that the log has.
        #[test]
        fn starts_are_the_log_s(
            seconds in prop::collection::vec(0..10_000i64, 1..100), speed in 0.01..100.0f64, random: bool,
            seed: u64
        ) {
            let times: Vec<i64> = seconds.iter().map(|second| second * SECOND_NS).collect();
            let replayed = replay(logged(&times), speed, random, seed).unwrap();
            prop_assert!(replayed.starts.is_sorted());
            prop_assert!(replayed.starts.iter().all(|start| *start < replayed.duration_ns));
            let first = seconds.iter().min().unwrap();
            for (path, start) in replayed.paths.iter().zip(&replayed.starts) {
                let number: usize = path[1..].parse().unwrap();
                let was = *start as f64 * speed / 1e9 - (seconds[number] - first) as f64;
                // A start is rounded to a nanosecond.
                prop_assert!((-1e-6..1.0).contains(&was), "{} s", was);
            }
        }
    }
}
