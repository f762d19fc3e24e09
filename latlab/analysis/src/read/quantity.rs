//! Times and sizes in text form, with and without a unit.

use anyhow::{bail, ensure, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum TimeUnit {
    Ns,
    Us,
    Ms,
    S,
}

impl TimeUnit {
    pub fn ns(self) -> f64 {
        match self {
            TimeUnit::Ns => 1.0,
            TimeUnit::Us => 1e3,
            TimeUnit::Ms => 1e6,
            TimeUnit::S => 1e9,
        }
    }

    /// The name as given to `--latency-unit`.
    pub fn name(self) -> &'static str {
        match self {
            TimeUnit::Ns => "ns",
            TimeUnit::Us => "us",
            TimeUnit::Ms => "ms",
            TimeUnit::S => "s",
        }
    }

    /// The unit in which this median latency is between 0.3 and 300 ms, as most servers' are. Larger and
    /// smaller values get the shortest and the longest unit.
    pub fn by_magnitude(median: f64) -> TimeUnit {
        match median {
            _ if median < 0.3 => TimeUnit::S,
            _ if median < 300.0 => TimeUnit::Ms,
            _ if median < 300_000.0 => TimeUnit::Us,
            _ => TimeUnit::Ns,
        }
    }

    pub fn named(name: &str) -> Option<TimeUnit> {
        Some(match name {
            "ns" | "nanos" | "nanosec" | "nanoseconds" => TimeUnit::Ns,
            "us" | "µs" | "μs" | "micros" | "usec" | "microseconds" => TimeUnit::Us,
            "ms" | "msec" | "millis" | "milliseconds" => TimeUnit::Ms,
            "s" | "sec" | "secs" | "seconds" => TimeUnit::S,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SizeUnit {
    /// bytes
    #[value(name = "B")]
    Bytes,
    /// 1000 bytes
    #[value(name = "kB")]
    Kilo,
    /// 1024 bytes
    #[value(name = "KiB")]
    Kibi,
    /// 1,000,000 bytes
    #[value(name = "MB")]
    Mega,
    /// 1,048,576 bytes
    #[value(name = "MiB")]
    Mebi,
}

impl SizeUnit {
    pub fn bytes(self) -> f64 {
        match self {
            SizeUnit::Bytes => 1.0,
            SizeUnit::Kilo => 1e3,
            SizeUnit::Kibi => 1024.0,
            SizeUnit::Mega => 1e6,
            SizeUnit::Mebi => 1_048_576.0,
        }
    }

    pub fn named(name: &str) -> Option<SizeUnit> {
        Some(match name {
            "b" | "byte" | "bytes" => SizeUnit::Bytes,
            "kib" => SizeUnit::Kibi,
            "mib" => SizeUnit::Mebi,
            _ => return None,
        })
    }
}

/// A non-negative number, and the unit after it, as in `12.5ms`.
pub fn time(text: &str) -> Result<(f64, Option<TimeUnit>)> {
    let text = text.trim();
    let digits = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+');
    let end = text
        .char_indices()
        .find(|(at, c)| {
            let exponent = matches!(c, 'e' | 'E')
                && text[at + 1..].starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+');
            !digits(*c) && !exponent
        })
        .map_or(text.len(), |(at, _)| at);
    if end == 0 {
        // If there is no number, the error message shows the whole text.
        number(text)?;
    }
    let value = number(&text[..end])?;
    let unit = text[end..].trim();
    if unit.is_empty() {
        return Ok((value, None));
    }
    match TimeUnit::named(&unit.to_lowercase()) {
        Some(unit) => Ok((value, Some(unit))),
        None => bail!("`{}` is not a time", short(text)),
    }
}

pub fn number(text: &str) -> Result<f64> {
    let Ok(value) = text.trim().parse::<f64>() else {
        bail!("`{}` is not a number", short(text));
    };
    ensure!(value.is_finite(), "`{}` is not a number", short(text));
    ensure!(value >= 0.0, "{} is less than 0", short(text));
    Ok(value)
}

/// The rounded value, if it fits into a signed 64-bit number.
pub fn whole(value: f64) -> Result<u64> {
    let rounded = value.round();
    ensure!(rounded < i64::MAX as f64, "{value} is too large");
    Ok(rounded as u64)
}

/// Shortens a text for messages, because texts in files may be long.
pub fn short(text: &str) -> String {
    let mut short: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_median_of_40_ms_has_the_same_unit_however_it_is_written() {
        let units = [TimeUnit::S, TimeUnit::Ms, TimeUnit::Us, TimeUnit::Ns];
        for unit in units {
            for ms in [0.31, 40.0, 299.0] {
                assert_eq!(TimeUnit::by_magnitude(ms * 1e6 / unit.ns()), unit, "{ms}");
            }
            assert_eq!(TimeUnit::named(unit.name()), Some(unit));
        }
    }

    #[test]
    fn times_may_have_a_unit() {
        let cases = [
            ("12", 12.0, None),
            (" 12.5ms ", 12.5, Some(TimeUnit::Ms)),
            ("1e3", 1000.0, None),
            ("1.5e-3 s", 0.0015, Some(TimeUnit::S)),
            ("350µs", 350.0, Some(TimeUnit::Us)),
        ];
        for (text, value, unit) in cases {
            assert_eq!(time(text).expect(text), (value, unit));
        }
        for text in ["", "ms", "-1", "nan", "inf", "1 minute", "1m30s", "1e999"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_time_or_an_error(text: String) {
            if let Ok((value, _)) = time(&text) {
                prop_assert!(value >= 0.0 && value.is_finite());
                let _ = whole(value);
            }
        }
    }
}
