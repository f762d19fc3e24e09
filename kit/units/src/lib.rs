//! Numbers for people: times with three significant digits, counts with separators.

use std::time::Duration;

/// The units of time, smallest first, with their length in nanoseconds.
const TIMES: [(&str, u64); 4] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];

/// The units of size, smallest first, with their length in bytes.
const SIZES: [(&str, u64); 5] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// A time with three significant digits and its unit: `12.3 ms`.
pub fn time(ns: u64) -> String {
    with_unit(ns, &TIMES)
}

/// A size with three significant digits and its unit: `4.00 KiB`.
pub fn bytes(size: u64) -> String {
    with_unit(size, &SIZES)
}

/// A count with thousands separators: `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<_> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(String::from_utf8_lossy)
        .collect();
    groups.join(",")
}

/// A count with what is counted: `1 call`, `2,000 calls`.
pub fn counted(n: u64, one: &str) -> String {
    format!("{} {one}{}", count(n), if n == 1 { "" } else { "s" })
}

/// What follows such a count: `1 call was`, `2 calls were`.
pub fn were(n: u64) -> &'static str {
    match n {
        1 => "was",
        _ => "were",
    }
}

/// A time: `500ms`, `10s`, `1.5m`; without a unit, seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds: f64 = number
        .parse()
        .map_err(|_| "expected a number and a unit, as in 10s")?;
    let scale = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("the unit must be ns, us, ms, s, m or h".to_string()),
    };
    let duration =
        Duration::try_from_secs_f64(seconds * scale).map_err(|error| error.to_string())?;
    // Longer times could overflow when they are added to a clock.
    match i64::try_from(duration.as_nanos()) {
        Ok(_) => Ok(duration),
        Err(_) => Err("the longest time is 292 years".to_string()),
    }
}

/// A size in bytes: `100M`, `1.5G`, `4096`; powers of 1024.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, scale) = match text.strip_suffix(['k', 'K', 'M', 'G', 'T']) {
        None => (text, 0),
        Some(number) => match text.as_bytes()[text.len() - 1] {
            b'k' | b'K' => (number, 10),
            b'M' => (number, 20),
            b'G' => (number, 30),
            _ => (number, 40),
        },
    };
    let number: f64 = number
        .parse()
        .map_err(|_| "expected a number of bytes, as in 100M")?;
    let bytes = number * (1u64 << scale) as f64;
    match (1.0..1e18).contains(&bytes) {
        true => Ok(bytes as u64),
        false => Err("the size must be from 1 byte to a million terabytes".to_string()),
    }
}

/// One unit and one number of decimals for several times that are shown together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    pub unit: &'static str,
    length: u64,
    decimals: usize,
}

impl Scale {
    /// The scale in which `ns` has three significant digits, and its parts have at least one decimal.
    pub fn of(ns: u64) -> Self {
        let (index, decimals) = pick(ns, &TIMES);
        let (unit, length) = TIMES[index];
        // Without a decimal, the smaller parts of a long run would all read 0.
        let decimals = if length > 1 { decimals.max(1) } else { 0 };
        Self {
            unit,
            length,
            decimals,
        }
    }

    /// The number alone, for texts that name the unit once.
    pub fn show(&self, ns: u64) -> String {
        decimal(ns, self.length, self.decimals)
    }

    /// Whether `ns` is not zero in this scale.
    pub fn shows(&self, ns: u64) -> bool {
        rounded(ns, self.length, self.decimals) > 0
    }
}

fn with_unit(value: u64, units: &[(&'static str, u64)]) -> String {
    if value == 0 {
        return "0".to_string();
    }
    let (index, decimals) = pick(value, units);
    let (unit, length) = units[index];
    if decimals == 0 {
        // Only the largest unit can exceed 999.
        let whole = rounded(value, length, 0);
        return format!("{} {unit}", count(u64::try_from(whole).unwrap_or(u64::MAX)));
    }
    format!("{} {unit}", decimal(value, length, decimals))
}

/// The unit and the number of decimals that show three digits. The choice is made on the rounded
/// value, so that 999,999 ns becomes `1.00 ms` and never `1000 us`.
fn pick(value: u64, units: &[(&'static str, u64)]) -> (usize, usize) {
    for (index, (_, length)) in units.iter().enumerate() {
        // The smallest unit has no decimals: there are no fractions of a nanosecond or a byte.
        let most = if index == 0 { 0 } else { 2 };
        for decimals in (0..=most).rev() {
            if rounded(value, *length, decimals) < 1000 {
                return (index, decimals);
            }
        }
    }
    (units.len() - 1, 0)
}

/// `value / length`, times ten to the `decimals`, rounded half up.
fn rounded(value: u64, length: u64, decimals: usize) -> u128 {
    let length = u128::from(length);
    (u128::from(value) * 10u128.pow(decimals as u32) + length / 2) / length
}

fn decimal(value: u64, length: u64, decimals: usize) -> String {
    let scaled = rounded(value, length, decimals);
    if decimals == 0 {
        return scaled.to_string();
    }
    let power = 10u128.pow(decimals as u32);
    format!("{}.{:0decimals$}", scaled / power, scaled % power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("20us"), Ok(Duration::from_micros(20)));
        assert_eq!(parse_duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        for bad in [
            "",
            "s",
            "10d",
            "-1s",
            "1e400h",
            "99999999999999999999999999h",
        ] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("1.5G"), Ok(3 << 29));
        assert_eq!(parse_size("512"), Ok(512));
        for bad in ["", "M", "0", "-1k", "nan", "99999999999T"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
    use proptest::prelude::*;

    #[test]
    fn one_is_singular() {
        let sentence = |n| format!("{} {}", counted(n, "call"), were(n));
        assert_eq!(sentence(1), "1 call was");
        assert_eq!(sentence(0), "0 calls were");
        assert_eq!(sentence(2_000), "2,000 calls were");
    }

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let cases = [
            (0, "0"),
            (7, "7 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (12_345, "12.3 us"),
            (999_499, "999 us"),
            (999_500, "1.00 ms"),
            (9_995_000, "10.0 ms"),
            (123_456_789, "123 ms"),
            (1_234_567_890, "1.23 s"),
            (10_200_000_000, "10.2 s"),
            (4_521_000_000_000, "4,521 s"),
        ];
        for (ns, text) in cases {
            assert_eq!(time(ns), text);
        }
        assert_eq!(time(u64::MAX), "18,446,744,074 s");
    }

    #[test]
    fn counts_have_separators() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn sizes_are_binary() {
        assert_eq!(bytes(0), "0");
        assert_eq!(bytes(4096), "4.00 KiB");
        assert_eq!(bytes(10 << 20), "10.0 MiB");
    }

    #[test]
    fn a_scale_shows_the_parts_of_a_run_alike() {
        let run = Scale::of(10_200_000_000);
        assert_eq!(
            (run.unit, run.show(10_200_000_000)),
            ("s", "10.2".to_string())
        );
        assert_eq!(run.show(500_000_000), "0.5");
        assert!(!run.shows(49_000_000));
        // Long runs keep a decimal, short ones change the unit.
        assert_eq!(Scale::of(123_400_000_000).show(123_400_000_000), "123.4");
        assert_eq!(Scale::of(12_345_678).show(6_100_000), "6.1");
        assert_eq!(Scale::of(0).show(0), "0");
    }

    /// The value that the text shows, in nanoseconds.
    fn read_back(text: &str) -> f64 {
        let (number, unit) = text.split_once(' ').unwrap_or((text, "ns"));
        let length = TIMES
            .iter()
            .find(|(name, _)| *name == unit)
            .expect("a known unit")
            .1;
        number.replace(',', "").parse::<f64>().expect("a number") * length as f64
    }

    proptest! {
        #[test]
        fn a_longer_time_never_reads_shorter(a: u64, b: u64, shift in 0u32..64) {
            let (a, b) = (a >> shift, b >> shift);
            let (low, high) = (a.min(b), a.max(b));
            prop_assert!(read_back(&time(low)) <= read_back(&time(high)));
        }

        #[test]
        fn three_digits_are_right(ns: u64, shift in 0u32..64) {
            let ns = ns >> shift;
            let error = (read_back(&time(ns)) - ns as f64).abs();
            prop_assert!(error <= ns as f64 * 0.005 + 1e-6, "{ns} reads {}", time(ns));
        }

        #[test]
        fn nothing_panics(run: u64, part: u64) {
            let _ = (bytes(part), Scale::of(run).show(part), Scale::of(run).shows(part));
            prop_assert_eq!(count(part).replace(',', ""), part.to_string());
        }
    }
}
