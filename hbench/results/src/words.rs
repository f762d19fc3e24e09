// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times and rates with fractions, for people.

/// Three significant digits and a unit, below a nanosecond too: `0.312 ns`, `12.3 us`.
pub fn time(ns: f64) -> String {
    scaled(ns, &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)])
}

/// `12.3 GB/s`; powers of 1000.
pub fn rate(bytes_per_second: f64) -> String {
    let units = [("B/s", 1.0), ("kB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9)];
    scaled(bytes_per_second, &units)
}

/// A share of one: `0.42 %`, `12 %`.
pub fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent.abs() {
        small if small < 9.95 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

fn scaled(value: f64, units: &[(&str, f64)]) -> String {
    let rounds_to_next = |scaled: f64| format!("{scaled:.0}").len() > 3;
    let fits = |(_, length): &&(&str, f64)| !rounds_to_next(value.abs() / length);
    let last = &units[units.len() - 1];
    let (unit, length) = units.iter().find(fits).unwrap_or(last);
    let scaled = value / length;
    let decimals = match scaled.abs() {
        small if small < 0.9995 => 3,
        small if small < 9.995 => 2,
        small if small < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_shown() {
        assert_eq!(time(0.3124), "0.312 ns");
        assert_eq!(time(102.4), "102 ns");
        assert_eq!(time(999.6), "1.00 us");
        assert_eq!(time(-15_400.0), "-15.4 us");
        assert_eq!(time(2e12), "2000 s");
        assert_eq!(rate(1.234e10), "12.3 GB/s");
        assert_eq!(rate(999.9e6), "1.00 GB/s");
        assert_eq!(percent(0.0042), "0.4 %");
        assert_eq!(percent(-0.25), "-25 %");
    }
}
