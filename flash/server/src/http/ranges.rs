// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of a file (RFC 9110, 14).

/// Parts of one answer. Who asks for more gets the file as a whole.
const MAX_PARTS: usize = 16;

/// Bytes `begin..end` of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub begin: u64,
    pub end: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// No range, or one that a server is to ignore.
    Whole,
    Parts(Vec<Part>),
    /// 416.
    Unsatisfiable,
}

/// `range`: the field's value; `size`: bytes of the file.
pub fn parse(range: &str, size: u64) -> Asked {
    let Some((unit, list)) = range.split_once('=') else {
        return Asked::Whole;
    };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Asked::Whole;
    }
    let mut parts: Vec<Part> = Vec::new();
    let mut specifiers = 0;
    for specifier in list.split(',').map(|one| one.trim_matches([' ', '\t'])) {
        if specifier.is_empty() {
            continue;
        }
        specifiers += 1;
        match one(specifier, size) {
            Err(()) => return Asked::Whole,
            Ok(Some(part)) => parts.push(part),
            Ok(None) => {}
        }
        if specifiers > MAX_PARTS {
            return Asked::Whole;
        }
    }
    if specifiers == 0 {
        return Asked::Whole;
    }
    let overlap = |a: &Part, b: &Part| a.begin < b.end && b.begin < a.end;
    let overlaps = parts
        .iter()
        .enumerate()
        .any(|(at, part)| parts[..at].iter().any(|other| overlap(part, other)));
    match parts.len() {
        0 => Asked::Unsatisfiable,
        // A server may ignore what asks for the same bytes more than once (RFC 9110, 14.2).
        _ if overlaps => Asked::Whole,
        _ => Asked::Parts(parts),
    }
}

/// `Ok(None)`: valid, but nothing of the file. `Err`: not valid.
fn one(specifier: &str, size: u64) -> Result<Option<Part>, ()> {
    let (first, last) = specifier.split_once('-').ok_or(())?;
    let number = |text: &str| -> Result<u64, ()> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(());
        }
        // A number that is too large is beyond the end of every file.
        Ok(text.parse().unwrap_or(u64::MAX))
    };
    let (begin, end) = match (first, last) {
        ("", suffix) => (size.saturating_sub(number(suffix)?), size),
        (first, "") => (number(first)?, size),
        (first, last) => {
            let (begin, last) = (number(first)?, number(last)?);
            if last < begin {
                return Err(());
            }
            (begin, last.saturating_add(1).min(size))
        }
    };
    Ok((begin < end).then_some(Part { begin, end }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(list: &[(u64, u64)]) -> Asked {
        let part = |(begin, end): &(u64, u64)| Part {
            begin: *begin,
            end: *end,
        };
        Asked::Parts(list.iter().map(part).collect())
    }

    #[test]
    fn ranges_are_parts_of_the_file() {
        assert_eq!(parse("bytes=0-0", 10), parts(&[(0, 1)]));
        assert_eq!(parse("Bytes=2-", 10), parts(&[(2, 10)]));
        assert_eq!(parse("bytes=-3", 10), parts(&[(7, 10)]));
        assert_eq!(parse("bytes=-30", 10), parts(&[(0, 10)]));
        assert_eq!(parse("bytes=5-99", 10), parts(&[(5, 10)]));
        assert_eq!(
            parse("bytes=0-1, 4-5,,-1", 10),
            parts(&[(0, 2), (4, 6), (9, 10)])
        );
        assert_eq!(parse("bytes=0-1,20-30", 10), parts(&[(0, 2)]));
        assert_eq!(parse("bytes=0-18446744073709551615", 10), parts(&[(0, 10)]));
    }

    #[test]
    fn what_cannot_be_had_is_told_from_what_is_no_range() {
        assert_eq!(parse("bytes=10-", 10), Asked::Unsatisfiable);
        assert_eq!(parse("bytes=-0", 10), Asked::Unsatisfiable);
        assert_eq!(parse("bytes=0-", 0), Asked::Unsatisfiable);
        for ignored in [
            "lines=0-1",
            "bytes",
            "bytes=",
            "bytes=a-b",
            "bytes=5-4",
            "bytes=1-2-3",
            "bytes=--1",
        ] {
            assert_eq!(parse(ignored, 10), Asked::Whole, "{ignored}");
        }
        assert_eq!(parse("bytes=0-5,3-8", 10), Asked::Whole);
        let many = vec!["0-0"; MAX_PARTS + 1].join(",");
        assert_eq!(parse(&format!("bytes={many}"), 10), Asked::Whole);
    }

    proptest! {
        #[test]
        fn parts_lie_in_the_file(text in "bytes=[0-9,-]{0,30}", size in 0u64..100) {
            if let Asked::Parts(parts) = parse(&text, size) {
                prop_assert!(!parts.is_empty());
                for part in parts {
                    prop_assert!(part.begin < part.end && part.end <= size);
                }
            }
        }
    }
}
