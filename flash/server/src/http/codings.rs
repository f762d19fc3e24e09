// SPDX-License-Identifier: MIT OR Apache-2.0
//! Content codings: which compressed form of a file a client takes (RFC 9110, 12.5.3).

/// A coding for which a file may have a compressed form beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    Brotli,
    Zstandard,
    Gzip,
}

/// The best compression first.
const KNOWN: [Coding; 3] = [Coding::Brotli, Coding::Zstandard, Coding::Gzip];

impl Coding {
    /// As in `Content-Encoding`.
    pub fn name(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Zstandard => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    /// What the name of the compressed form ends with.
    pub fn ending(self) -> &'static str {
        match self {
            Coding::Brotli => ".br",
            Coding::Zstandard => ".zst",
            Coding::Gzip => ".gz",
        }
    }
}

/// The codings that a client takes, the one that it prefers first. `field`: its `Accept-Encoding`. Without the field a
/// server may send anything; what is not compressed is then the safest. A coding that the client likes less than
/// `identity` is left out, as is an element that is not valid.
pub fn accepted(field: Option<&str>) -> Vec<Coding> {
    let Some(field) = field else {
        return Vec::new();
    };
    let mut weights = [None; KNOWN.len()];
    let mut any = None;
    let mut identity = 0;
    for one in field.split(',') {
        let mut parts = one.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = match parts.next() {
            None => Some(1000),
            Some(parameter) => weight(parameter).filter(|_| parts.next().is_none()),
        };
        let Some(weight) = weight else {
            continue;
        };
        if name.eq_ignore_ascii_case("identity") {
            identity = weight;
        }
        if name == "*" {
            any = Some(weight);
        }
        let is_it = |coding: &Coding| {
            let is_alias = *coding == Coding::Gzip && name.eq_ignore_ascii_case("x-gzip");
            name.eq_ignore_ascii_case(coding.name()) || is_alias
        };
        if let Some(at) = KNOWN.iter().position(is_it) {
            weights[at] = Some(weight);
        }
    }
    let weighed = KNOWN.iter().zip(weights);
    let mut accepted: Vec<(Coding, u16)> = weighed
        .filter_map(|(coding, weight)| Some((*coding, weight.or(any)?)))
        .filter(|(_, weight)| *weight > 0 && *weight >= identity)
        .collect();
    // The sort is stable: of equal weights the better compression stays first.
    accepted.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    accepted.into_iter().map(|(coding, _)| coding).collect()
}

/// `q=0.5`, in thousandths.
fn weight(parameter: &str) -> Option<u16> {
    let (name, value) = parameter.split_once('=')?;
    if !name.trim().eq_ignore_ascii_case("q") {
        return None;
    }
    // RFC 9110, 12.4.2: 0 or 1, and at most three digits behind it.
    let value = value.trim();
    let (whole, rest) = value.split_once('.').unwrap_or((value, ""));
    let is_number = rest.len() <= 3 && rest.bytes().all(|byte| byte.is_ascii_digit());
    let thousandths = format!("{rest:0<3}").parse().ok().filter(|_| is_number)?;
    match (whole, thousandths) {
        ("0", thousandths) => Some(thousandths),
        ("1", 0) => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_the_client_prefers_comes_first() {
        use Coding::{Brotli, Gzip, Zstandard};
        for (field, expected) in [
            ("gzip, deflate, br", &[Brotli, Gzip][..]),
            ("gzip;q=1.0, br;q=0.5", &[Gzip, Brotli]),
            ("*", &[Brotli, Zstandard, Gzip]),
            ("*;q=0.1, gzip", &[Gzip, Brotli, Zstandard]),
            ("br;q=0, *", &[Zstandard, Gzip]),
            ("GZIP", &[Gzip]),
            ("x-gzip", &[Gzip]),
            ("gzip;q=0", &[]),
            ("identity", &[]),
            ("", &[]),
            ("gzip;q=nonsense", &[]),
            ("gzip;q=NaN, br", &[Brotli]),
            ("gzip;q=0.0001", &[]),
            ("gzip;q=1.5", &[]),
            ("identity, gzip;q=0.5", &[]),
            ("identity;q=0.5, gzip", &[Gzip]),
            ("identity;q=0, gzip;q=0.001", &[Gzip]),
        ] {
            assert_eq!(accepted(Some(field)), expected, "{field}");
        }
        assert_eq!(accepted(None), []);
    }

    proptest! {
        #[test]
        fn any_field_is_read(field in "[a-z*;=q0-9., \u{e9}-]{0,40}") {
            prop_assert!(accepted(Some(&field)).len() <= KNOWN.len());
        }
    }
}
