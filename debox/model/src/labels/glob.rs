//! Patterns for names, as the rule files have them.

use serde::Deserialize;

/// A pattern for a name: `*` stands for any characters, none included.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Glob(String);

impl Glob {
    pub(crate) fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = name.strip_prefix(first) else {
            return false;
        };
        let Some(last) = parts.next_back() else {
            return rest.is_empty();
        };
        // Each part can be matched at its first occurrence: that leaves the most text for the parts
        // after it.
        for part in parts {
            match rest.find(part) {
                Some(place) => rest = &rest[place + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

impl TryFrom<String> for Glob {
    type Error = String;

    fn try_from(text: String) -> Result<Glob, String> {
        if text.is_empty() || text.contains(char::is_whitespace) {
            return Err(format!("`{text}` is not a pattern for a function name"));
        }
        Ok(Glob(text))
    }
}

/// Whether one of the names matches one of the patterns. An empty list of patterns always matches.
pub(crate) fn one_of(globs: &[Glob], names: &[&str]) -> bool {
    globs.is_empty() || any(globs, names)
}

/// Like [`one_of`], but an empty list of patterns never matches.
pub(crate) fn any(globs: &[Glob], names: &[&str]) -> bool {
    names
        .iter()
        .any(|name| globs.iter().any(|glob| glob.matches(name)))
}
