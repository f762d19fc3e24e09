//! Latencies in the two formats of HdrHistogram, for its plotters: the distribution as text (`.hgrm`), and a log
//! of intervals (`.hlog`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::Histogram;
use kit_files::output::{self, Output};

use crate::rows::{Meta, Row};

/// Output files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HdrFiles {
    pub percentiles: Option<PathBuf>,
    pub log: Option<PathBuf>,
}

const DIGITS: u8 = 3;
/// The same value as in other implementations.
const TICKS_PER_HALF_DISTANCE: u32 = 5;
const NS_PER_MS: f64 = 1e6;
const INTERVALS_MAX: i64 = 600;
const SECOND_NS: i64 = 1_000_000_000;
/// The tag of latencies that count from the actual start.
const FROM_START: &str = "start";

impl HdrFiles {
    pub fn all(&self) -> impl Iterator<Item = &Path> {
        let both = [&self.percentiles, &self.log];
        both.into_iter().flatten().map(PathBuf::as_path)
    }

    /// Returns an error if the files cannot be written.
    pub fn check(&self) -> Result<()> {
        let all: Vec<&Path> = self.all().collect();
        kit_files::same::refuse_each_other(&all)?;
        all.into_iter().try_for_each(output::check)
    }

    /// `None` if no log is wanted.
    pub fn over_time(&self, warmup_ns: i64, duration_ns: i64) -> Option<OverTime> {
        let wanted = self.log.is_some();
        wanted.then(|| OverTime::new(warmup_ns, duration_ns))
    }
}

/// Writes the distribution in the format of HdrHistogram's `outputPercentileDistribution`, in milliseconds.
pub fn write_percentiles(path: &Path, latencies: &Histogram<u64>) -> Result<()> {
    output::replace(path, percentiles(latencies).as_bytes())
}

fn percentiles(latencies: &Histogram<u64>) -> String {
    let mut text = format!(
        "{:>12} {:>14} {:>10} {:>14}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    let ms = |ns: f64| ns / NS_PER_MS;
    let mut total = 0;
    for step in latencies.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
        total += step.count_since_last_iteration();
        let quantile = step.quantile_iterated_to();
        let value = ms(step.value_iterated_to() as f64);
        // Writing to a string cannot fail.
        let _ = write!(text, "{value:>12.6} {quantile:.12} {total:>10}");
        let _ = match quantile < 1.0 {
            true => writeln!(text, " {:>14.2}", 1.0 / (1.0 - quantile)),
            false => writeln!(text),
        };
    }
    let _ = write!(
        text,
        "#[Mean    = {:>12.6}, StdDeviation   = {:>12.6}]\n\
        #[Max     = {:>12.6}, Total count    = {:>12}]\n\
        #[Buckets = {:>12}, SubBuckets     = {:>12}]\n",
        ms(latencies.mean()),
        ms(latencies.stdev()),
        ms(latencies.max() as f64),
        latencies.len(),
        latencies.buckets(),
        2048
    );
    text
}

/// Good replies by the time they ended.
pub struct OverTime {
    warmup_ns: i64,
    interval_ns: i64,
    intervals: BTreeMap<i64, Interval>,
}

struct Interval {
    from_intended: Histogram<u32>,
    from_start: Histogram<u32>,
}

impl Default for Interval {
    fn default() -> Self {
        let histogram = || {
            Histogram::new(DIGITS).unwrap_or_else(|_| unreachable!("so many digits are allowed"))
        };
        Interval {
            from_intended: histogram(),
            from_start: histogram(),
        }
    }
}

fn record(histogram: &mut Histogram<u32>, ns: i64) {
    // The histogram resizes automatically; counts saturate.
    let recorded = histogram.record(u64::try_from(ns).unwrap_or(0));
    debug_assert!(recorded.is_ok(), "it has no end");
}

impl OverTime {
    /// Intervals are one second, and more in long runs.
    fn new(warmup_ns: i64, duration_ns: i64) -> OverTime {
        let seconds = (duration_ns - warmup_ns) / SECOND_NS;
        OverTime {
            warmup_ns,
            interval_ns: (1 + seconds / INTERVALS_MAX) * SECOND_NS,
            // A server that never answers also gets a log.
            intervals: BTreeMap::from([(0, Interval::default())]),
        }
    }

    /// Requests intended to start in the warm-up are left out.
    pub fn add(&mut self, row: &Row) {
        let (Some(end), None) = (row.end_ns, row.failure) else {
            return;
        };
        if row.intended_ns < self.warmup_ns {
            return;
        }
        let index = (end - self.warmup_ns).max(0) / self.interval_ns;
        let interval = self.intervals.entry(index).or_default();
        record(&mut interval.from_intended, end - row.intended_ns);
        record(&mut interval.from_start, end - row.start_ns);
    }

    pub fn write(&self, path: &Path, meta: &Meta) -> Result<()> {
        let cannot = || format!("cannot write {}", path.display());
        let mut text = Vec::new();
        self.write_log(&mut text, meta).with_context(cannot)?;
        let output = Output::create(path)?;
        (&output).write_all(&text).with_context(cannot)?;
        output.commit()
    }

    fn write_log(&self, out: &mut Vec<u8>, meta: &Meta) -> Result<()> {
        let begun_ns = u64::try_from(meta.started_realtime_ns + self.warmup_ns).unwrap_or(0);
        let mut serializer = V2DeflateSerializer::new();
        let mut log = IntervalLogWriterBuilder::new()
            .add_comment("[Histogram log format version 1.3]")
            .add_comment(&format!("[Made by latlab {}]", meta.tool_version))
            .with_start_time(UNIX_EPOCH + Duration::from_nanos(begun_ns))
            .with_max_value_divisor(NS_PER_MS)
            .begin_log_with(out, &mut serializer)?;
        let duration = Duration::from_nanos(self.interval_ns.unsigned_abs());
        for (index, interval) in &self.intervals {
            let begin = Duration::from_nanos((index * self.interval_ns).unsigned_abs());
            let (intended, start) = (&interval.from_intended, &interval.from_start);
            log.write_histogram(intended, begin, duration, None)?;
            log.write_histogram(start, begin, duration, Tag::new(FROM_START))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Failure, SCHEMA};
    use crate::workload::{Kind, NO_CLASS};
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    use hdrhistogram::serialization::Deserializer;

    fn row(intended_ns: i64, start_ns: i64, end_ns: i64) -> Row {
        Row {
            intended_ns,
            start_ns,
            first_byte_ns: None,
            end_ns: Some(end_ns),
            connect_ns: None,
            tls_ns: None,
            size: None,
            received: 0,
            path: 0,
            connection: 0,
            status: 200,
            process: 0,
            local_port: 0,
            kind: Kind::List,
            class: NO_CLASS,
            failure: None,
        }
    }

    fn meta() -> Meta {
        let text = format!(
            r#"{{"schema": "{SCHEMA}", "started_realtime_ns": 1700000000000000000, "mode": "open"}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn the_text_is_that_of_the_other_implementations() {
        let mut latencies = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
        for ms in 1..=1000 {
            latencies.record(ms * 1_000_000).unwrap();
        }
        let text = percentiles(&latencies);
        let mut lines = text.lines();
        assert_eq!(
            lines.next(),
            Some("       Value     Percentile TotalCount 1/(1-Percentile)")
        );
        assert_eq!(lines.next(), Some(""));
        let rows: Vec<Vec<f64>> = lines
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                line.split_whitespace()
                    .map(|cell| cell.parse().unwrap())
                    .collect()
            })
            .collect();
        let median = rows.iter().find(|row| row[1] == 0.5).unwrap();
        assert!((median[0] - 500.0).abs() < 0.5, "{median:?}");
        assert_eq!((median[2], median[3]), (500.0, 2.0));
        // The last row has no 1/(1-p), because it would be infinite.
        let last = rows.last().unwrap();
        assert_eq!((last.len(), last[1], last[2]), (3, 1.0, 1000.0));
        assert!(rows.windows(2).all(|pair| pair[0][..3] <= pair[1][..3]));
        assert!(text.contains("#[Max     = ") && text.contains("Total count    =         1000]"));
    }

    #[test]
    fn the_log_has_every_good_reply_once_in_its_second() {
        let mut over_time = OverTime::new(SECOND_NS, 10 * SECOND_NS);
        over_time.add(&row(0, 0, 2 * SECOND_NS));
        over_time.add(&row(
            SECOND_NS,
            SECOND_NS + 3_000_000,
            SECOND_NS + 5_000_000,
        ));
        over_time.add(&row(SECOND_NS, SECOND_NS, 3 * SECOND_NS + 7));
        over_time.add(&Row {
            failure: Some(Failure::Status),
            ..row(SECOND_NS, SECOND_NS, 2 * SECOND_NS)
        });
        let mut log = Vec::new();
        over_time.write_log(&mut log, &meta()).unwrap();
        let text = String::from_utf8(log.clone()).unwrap();
        assert!(
            text.starts_with("#[Histogram log format version 1.3]\n"),
            "{text}"
        );
        let mut found = Vec::new();
        for entry in IntervalLogIterator::new(&log) {
            match entry.unwrap() {
                LogEntry::StartTime(time) => assert_eq!(time.as_secs(), 1_700_000_001),
                LogEntry::Interval(interval) => {
                    let bytes = decode(interval.encoded_histogram());
                    let histogram: Histogram<u64> =
                        Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
                    let tag = interval.tag().map(|tag| tag.as_str().to_string());
                    let begin = interval.start_timestamp().as_secs();
                    found.push((begin, tag, histogram.len(), histogram.max()));
                }
                LogEntry::BaseTime(_) => panic!("times count from the start"),
            }
        }
        let tagged = || Some(FROM_START.to_string());
        let about = |ns: u64| Histogram::<u64>::new(3).unwrap().highest_equivalent(ns);
        let right = [
            (0, None, 1, 5_000_000),
            (0, tagged(), 1, 2_000_000),
            (2, None, 1, 2_000_000_007),
            (2, tagged(), 1, 2_000_000_007),
        ];
        assert_eq!(found.len(), right.len());
        for (found, right) in found.iter().zip(right) {
            assert_eq!((found.0, &found.1, found.2), (right.0, &right.1, right.2));
            assert!(found.3 >= right.3 && found.3 <= about(right.3), "{found:?}");
        }
    }

    /// Decodes Base64, with or without padding.
    fn decode(text: &str) -> Vec<u8> {
        let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let (mut bytes, mut bits, mut held) = (Vec::new(), 0u32, 0);
        for byte in text.bytes().filter(|byte| *byte != b'=') {
            let digit = digits.iter().position(|digit| *digit == byte).unwrap();
            bits = bits << 6 | digit as u32;
            held += 6;
            if held >= 8 {
                held -= 8;
                bytes.push((bits >> held) as u8);
                bits &= (1 << held) - 1;
            }
        }
        bytes
    }
}
