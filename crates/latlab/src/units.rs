//! Numbers as people write and read them.

use std::time::Duration;

/// `500ms`, `10s`, `1.5m`; without a unit, seconds.
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
    Duration::try_from_secs_f64(seconds * scale).map_err(|error| error.to_string())
}

/// `100M`, `1.5G`, `4096`; powers of 1024.
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

/// A share of one, as in `0.01` or `1%`.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (text, 1.0),
    };
    match number.parse::<f64>().map(|number| number * scale) {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("expected a share from 0 to 1, as in 0.01 or 1%".to_string()),
    }
}

/// A time with three significant digits: `12.3 ms`.
pub fn time(ns: i64) -> String {
    three_digits(
        ns as f64,
        &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)],
    )
}

/// A size with three significant digits: `4.00 KiB`.
pub fn bytes(size: u64) -> String {
    let kib = 1024.0;
    three_digits(
        size as f64,
        &[
            ("B", 1.0),
            ("KiB", kib),
            ("MiB", kib * kib),
            ("GiB", kib * kib * kib),
            ("TiB", kib * kib * kib * kib),
        ],
    )
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

fn three_digits(value: f64, units: &[(&str, f64)]) -> String {
    let at = units
        .iter()
        .rposition(|(_, length)| value.abs() >= *length)
        .unwrap_or(0);
    let (unit, length) = units[at];
    let number = value / length;
    let decimals = match number.abs() {
        _ if at == 0 => 0,
        small if small < 9.995 => 2,
        middle if middle < 99.95 => 1,
        _ => 0,
    };
    format!("{number:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_read_as_people_write_them() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        assert!(parse_duration("5 parsecs").is_err());
        assert_eq!(parse_size("1.5G"), Ok(3 << 29));
        assert_eq!(parse_size("100"), Ok(100));
        assert!(parse_size("-1").is_err() && parse_size("nan").is_err());
        assert_eq!(parse_share("50%"), Ok(0.5));
        assert!(parse_share("2").is_err());
    }

    #[test]
    fn numbers_are_written_as_people_read_them() {
        assert_eq!(time(999), "999 ns");
        assert_eq!(time(1_234_567), "1.23 ms");
        assert_eq!(time(99_960_000), "100 ms");
        assert_eq!(bytes(4096), "4.00 KiB");
        assert_eq!(count(1_234_567), "1,234,567");
    }

    proptest! {
        #[test]
        fn nothing_is_too_odd_to_be_refused(text in "\\PC*") {
            let _ = (parse_duration(&text), parse_size(&text), parse_share(&text));
        }
    }
}
