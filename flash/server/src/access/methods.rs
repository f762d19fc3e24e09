// SPDX-License-Identifier: MIT OR Apache-2.0
//! The methods that a location takes.

use std::fmt;

use crate::http::method::Method;

const NAMES: [(Method, &str); 7] = [
    (Method::Get, "GET"),
    (Method::Head, "HEAD"),
    (Method::Options, "OPTIONS"),
    (Method::Post, "POST"),
    (Method::Put, "PUT"),
    (Method::Delete, "DELETE"),
    (Method::Patch, "PATCH"),
];
/// The first so many are those of files. The others are for upstreams.
const OF_FILES: usize = 3;

/// A set of methods; shown as the value of `Allow`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Methods {
    takes: [bool; NAMES.len()],
}

impl Methods {
    pub const ALL: Methods = Methods {
        takes: [true; NAMES.len()],
    };

    /// Those of them that a file can be asked with.
    pub fn for_files(mut self) -> Methods {
        self.takes[OF_FILES..].fill(false);
        self
    }

    /// Reads a list of names. GET brings HEAD along, which is a GET without the body.
    ///
    /// # Errors
    ///
    /// A name is none of those that can be told apart, or there is none.
    pub fn of<T: AsRef<str>>(names: &[T]) -> Result<Methods, String> {
        let all = NAMES.map(|(_, name)| name).join(", ");
        let mut takes = [false; NAMES.len()];
        for name in names.iter().map(AsRef::as_ref) {
            let Some(at) = NAMES.iter().position(|(_, known)| *known == name) else {
                return Err(format!(
                    "`{name}` is no method that can be chosen: {all} are"
                ));
            };
            takes[at] = true;
        }
        if takes.iter().all(|is_taken| !is_taken) {
            return Err(format!("no method is left: name some of {all}"));
        }
        let [get, head, ..] = &mut takes;
        *head |= *get;
        Ok(Methods { takes })
    }

    pub fn contain(&self, method: Method) -> bool {
        let mut pairs = NAMES.iter().zip(self.takes);
        pairs.any(|((known, _), is_taken)| is_taken && *known == method)
    }
}

impl fmt::Display for Methods {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = NAMES.iter().zip(self.takes);
        let names: Vec<&str> = pairs
            .filter_map(|((_, name), is_taken)| is_taken.then_some(*name))
            .collect();
        out.write_str(&names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_shown_as_allow_has_it() {
        let files = Methods::ALL.for_files();
        assert_eq!(files.to_string(), "GET, HEAD, OPTIONS");
        let of = |names: &[&str]| Methods::of(names).map(|methods| methods.to_string());
        assert_eq!(of(&["GET"]), Ok("GET, HEAD".to_string()));
        assert_eq!(of(&["OPTIONS", "HEAD"]), Ok("HEAD, OPTIONS".to_string()));
        assert_eq!(of(&["PUT", "GET"]), Ok("GET, HEAD, PUT".to_string()));
        for wrong in [&["BREW"][..], &["get"], &[]] {
            let why = of(wrong).expect_err("it is wrong");
            assert!(why.contains("GET, HEAD, OPTIONS"), "{why}");
        }
    }

    #[test]
    fn what_is_not_in_the_set_is_not_taken() {
        let methods = Methods::of(&["GET"]).expect("a method");
        assert!(methods.contain(Method::Get) && methods.contain(Method::Head));
        for other in [Method::Options, Method::Connect, Method::Post] {
            assert!(!methods.contain(other), "{other:?}");
        }
    }
}
