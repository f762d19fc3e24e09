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
/// server may send anything; what is not compressed is then the safest.
pub fn accepted(field: Option<&str>) -> Vec<Coding> {
    let Some(field) = field else {
        return Vec::new();
    };
    let mut weights = [None; KNOWN.len()];
    let mut any = None;
    for one in field.split(',') {
        let mut parts = one.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(weight).unwrap_or(1000);
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
        .filter(|(_, weight)| *weight > 0)
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
    let value: f32 = value.trim().parse().ok()?;
    Some((value.clamp(0.0, 1.0) * 1000.0) as u16)
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
            ("gzip;q=nonsense", &[Gzip]),
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
