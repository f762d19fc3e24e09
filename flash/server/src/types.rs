// SPDX-License-Identifier: MIT OR Apache-2.0
//! The type of a file, by the ending of its name.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::http::method::is_token;

/// What the configuration says of types. What it does not name is as the IANA has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Types {
    /// By the ending, in lower case and without its dot: `wasm`, `tar.gz`.
    pub by_ending: HashMap<String, String>,
    /// Of a name whose ending is not known.
    pub otherwise: String,
    /// Of texts whose type does not say one. Empty: none is said.
    pub charset: String,
}

impl Default for Types {
    fn default() -> Types {
        Types {
            by_ending: HashMap::new(),
            otherwise: "application/octet-stream".to_string(),
            charset: "utf-8".to_string(),
        }
    }
}

impl Types {
    pub fn of(&self, name: &[u8]) -> Cow<'_, str> {
        let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
        let file = String::from_utf8_lossy(file);
        let kind: &str = match self.configured(&file) {
            Some(kind) => kind,
            None => mime_guess::from_path(file.as_ref())
                .first_raw()
                .unwrap_or(&self.otherwise),
        };
        let is_text = kind.starts_with("text/") || kind.ends_with("/javascript");
        match is_text && !self.charset.is_empty() && !kind.contains(';') {
            true => format!("{kind}; charset={}", self.charset).into(),
            false => kind.into(),
        }
    }

    /// The longest ending wins: `tar.gz` goes before `gz`.
    fn configured(&self, file: &str) -> Option<&str> {
        if self.by_ending.is_empty() {
            return None;
        }
        let lower = file.to_ascii_lowercase();
        // What begins with a dot is a name, and no ending.
        let dots = lower.match_indices('.').filter(|(at, _)| *at > 0);
        let mut found = dots.filter_map(|(at, _)| self.by_ending.get(&lower[at + 1..]));
        found.next().map(String::as_str)
    }
}

/// Checks a type: `image/png`, `text/plain; charset=utf-8`.
///
/// # Errors
///
/// It is none; the error says how to write one.
pub fn check(kind: &str) -> Result<(), String> {
    let (essence, parameters) = match kind.split_once(';') {
        Some((essence, parameters)) => (essence, Some(parameters)),
        None => (kind, None),
    };
    let is_name = |text: &str| !text.is_empty() && text.bytes().all(is_token);
    let is_kind = |(of, its): (&str, &str)| is_name(of) && is_name(its);
    let is_printable = |text: &str| text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let is_parameter = |text: &str| text.contains('=') && is_printable(text);
    match essence.split_once('/').is_some_and(is_kind) && parameters.is_none_or(is_parameter) {
        true => Ok(()),
        false => Err(format!("`{kind}` is no type: write it as image/png")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn types_come_from_names() {
        let types = Types::default();
        assert_eq!(types.of(b"a/index.html"), "text/html; charset=utf-8");
        assert_eq!(types.of(b"a.js"), "text/javascript; charset=utf-8");
        assert_eq!(types.of(b"a.png"), "image/png");
        assert_eq!(types.of(b"a.PNG"), "image/png");
        assert_eq!(types.of(b"a"), "application/octet-stream");
        assert_eq!(types.of(b"a.d/b"), "application/octet-stream");
        assert_eq!(types.of(b""), "application/octet-stream");
    }

    #[test]
    fn the_configuration_goes_before() {
        let pairs = [
            ("gz", "application/gzip"),
            ("tar.gz", "application/x-gtar"),
            ("txt", "text/plain; charset=iso-8859-1"),
            ("log", "text/plain"),
            ("secret", "text/x-secret"),
        ];
        let pairs = pairs.map(|(ending, kind)| (ending.to_string(), kind.to_string()));
        let types = Types {
            by_ending: pairs.into(),
            otherwise: "text/plain".to_string(),
            charset: "utf-16".to_string(),
        };
        for (name, kind) in [
            ("a.tar.gz", "application/x-gtar"),
            ("a.b.GZ", "application/gzip"),
            ("a.txt", "text/plain; charset=iso-8859-1"),
            ("a.log", "text/plain; charset=utf-16"),
            (".secret", "text/plain; charset=utf-16"),
            ("a.gz/b", "text/plain; charset=utf-16"),
            ("a.html", "text/html; charset=utf-16"),
        ] {
            assert_eq!(types.of(name.as_bytes()), kind, "{name}");
        }
        let none = Types {
            charset: String::new(),
            ..types
        };
        assert_eq!(none.of(b"a.html"), "text/html");
    }

    #[test]
    fn what_is_no_type_is_refused() {
        for kind in [
            "image/png",
            "text/plain; charset=utf-8",
            "application/vnd.x+json",
        ] {
            assert_eq!(check(kind), Ok(()), "{kind}");
        }
        for kind in ["", "png", "a/", "a/b\r\nX: y", "text/plain;", "a/b c"] {
            assert!(check(kind).is_err(), "{kind}");
        }
    }

    proptest! {
        #[test]
        fn any_name_has_a_type(name in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert!(!Types::default().of(&name).is_empty());
        }
    }
}
