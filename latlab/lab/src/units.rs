//! Numbers as people write and read them.

pub use kit_units::{bytes, count, parse_duration, parse_size};

/// A share of one, such as `0.01` or `1%`.
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
    let sign = if ns < 0 { "-" } else { "" };
    format!("{sign}{}", kit_units::time(ns.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_read_as_people_write_them() {
        assert_eq!(parse_share("50%"), Ok(0.5));
        assert!(parse_share("2").is_err());
    }

    #[test]
    fn numbers_are_written_as_people_read_them() {
        assert_eq!(time(1_234_567), "1.23 ms");
        assert_eq!(time(-999), "-999 ns");
    }

    proptest! {
        #[test]
        fn nothing_is_too_odd_to_be_refused(text in "\\PC*") {
            let _ = (parse_duration(&text), parse_size(&text), parse_share(&text));
        }
    }
}
