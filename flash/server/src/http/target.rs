// SPDX-License-Identifier: MIT OR Apache-2.0
//! The request target: which name below the root it asks for.

use percent_encoding::percent_decode_str;

use super::method::Method;
use super::refusal::Refusal;

/// The longest path that the kernel takes (`PATH_MAX`, with its zero), and the longest name in it.
const MAX_PATH: usize = 4095;
const MAX_NAME: usize = 255;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The server as a whole, of OPTIONS.
    Server,
    Path(Path),
}

/// A name below the root: decoded, without empty, `.` and `..` segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// Empty for the root itself; no slash at either end.
    pub name: Vec<u8>,
    /// The target ended in a slash, so that it asks for what the directory shows.
    pub is_directory: bool,
    /// As the client sent it, for redirects.
    pub raw: String,
    pub query: Option<String>,
    /// Why no file can have this name. An upstream may know it.
    pub no_file: Option<Refusal>,
    /// The name for who takes escaped slashes for separators. `None`: there are none.
    pub split: Option<Vec<u8>>,
    /// The two names are in different locations, so no upstream may answer: it could serve what the rules of the other
    /// location protect.
    pub is_ambiguous: bool,
}

/// Of a target in the absolute form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authority<'a> {
    pub text: &'a str,
    pub is_https: bool,
}

impl Path {
    /// For an upstream: as it came, but without segments that lead elsewhere. What the upstream makes of them could be
    /// another path than the one that chose the location.
    pub fn forwarded(&self) -> String {
        self.with_query(self.plain())
    }

    /// As [`Path::forwarded`], with `to` in place of the first names.
    pub fn forwarded_to(&self, to: &str, names: usize) -> String {
        let rest = self.behind(names);
        let to = to.trim_end_matches('/');
        let target = match rest.is_empty() && (!self.is_directory || to.is_empty()) {
            true if to.is_empty() => "/".to_string(),
            true => to.to_string(),
            false => format!("{to}/{rest}"),
        };
        self.with_query(target)
    }

    /// What is behind the first names, as it came, without segments that lead elsewhere and without a slash at its begin.
    pub fn behind(&self, names: usize) -> String {
        let plain = self.plain();
        let mut rest = plain.trim_start_matches('/');
        for _ in 0..names {
            rest = match rest.find('/') {
                Some(at) => rest[at..].trim_start_matches('/'),
                None => "",
            };
        }
        rest.to_string()
    }

    /// As it came, but without segments that lead elsewhere.
    pub fn plain(&self) -> String {
        let is_dots = |segment: &str| {
            let plain = segment.replace("%2e", ".").replace("%2E", ".");
            matches!(plain.as_str(), "." | "..")
        };
        if !self.raw.split('/').any(is_dots) {
            return self.raw.clone();
        }
        let mut names: Vec<&str> = Vec::new();
        for segment in self.raw.split('/') {
            match segment.replace("%2e", ".").replace("%2E", ".").as_str() {
                "" | "." => {}
                ".." => drop(names.pop()),
                _ => names.push(segment),
            }
        }
        let end = match self.is_directory && !names.is_empty() {
            true => "/",
            false => "",
        };
        format!("/{}{end}", names.join("/"))
    }

    fn with_query(&self, mut target: String) -> String {
        if let Some(query) = &self.query {
            target.push('?');
            target.push_str(query);
        }
        target
    }
}

/// Returns the target and, of the absolute form, the authority.
pub fn parse(raw: &str, method: Method) -> Result<(Target, Option<Authority<'_>>), Refusal> {
    if raw.bytes().any(|byte| !(b'!'..=b'~').contains(&byte)) || raw.contains('#') {
        return Err(Refusal::new(
            400,
            "the target has characters that none may have",
        ));
    }
    if raw == "*" {
        return match method {
            Method::Options => Ok((Target::Server, None)),
            _ => Err(Refusal::new(400, "only OPTIONS is for the whole server")),
        };
    }
    if raw.starts_with('/') && method != Method::Connect {
        return Ok((Target::Path(path(raw)?), None));
    }
    let schemes = [("http://", false), ("https://", true)];
    let after_scheme = schemes.into_iter().find_map(|(scheme, is_https)| {
        let begin = raw.get(..scheme.len())?;
        begin
            .eq_ignore_ascii_case(scheme)
            .then(|| (&raw[scheme.len()..], is_https))
    });
    let Some((rest, is_https)) = after_scheme else {
        let authority = Authority {
            text: raw,
            is_https: false,
        };
        return match method {
            Method::Connect if raw.contains(':') && !raw.contains('/') => {
                Ok((Target::Server, Some(authority)))
            }
            _ => Err(Refusal::new(400, "the target is neither a path nor a URL")),
        };
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (text, raw) = rest.split_at(end);
    if text.is_empty() || text.contains('@') {
        return Err(Refusal::new(400, "the target's authority is not valid"));
    }
    let path = match raw.starts_with('/') {
        true => path(raw)?,
        false => path(&format!("/{raw}"))?,
    };
    Ok((Target::Path(path), Some(Authority { text, is_https })))
}

fn path(raw: &str) -> Result<Path, Refusal> {
    let (raw, query) = match raw.split_once('?') {
        Some((raw, query)) => (raw, Some(query.to_string())),
        None => (raw, None),
    };
    // RFC 3986 allows none of these. What browsers send unescaped is accepted: `|`, `[` and `]` in paths, and more in
    // queries.
    let is_path_wrong = raw.contains(['"', '<', '>', '\\', '^', '`', '{', '}']);
    let is_query_wrong = query
        .as_deref()
        .unwrap_or_default()
        .contains(['"', '<', '>']);
    if is_path_wrong || is_query_wrong {
        let why = "the target has characters that have to be escaped";
        return Err(Refusal::new(400, why));
    }
    if !has_valid_escapes(raw) {
        return Err(Refusal::new(400, "a percent sign without two digits"));
    }
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut is_directory = false;
    let mut no_file = None;
    let mut has_slash = false;
    for segment in raw.split('/') {
        let name: Vec<u8> = percent_decode_str(segment).collect();
        is_directory = false;
        match name.as_slice() {
            b"" | b"." => is_directory = true,
            b".." => {
                is_directory = true;
                if names.pop().is_none() {
                    return Err(Refusal::new(400, "the target leads above the root"));
                }
            }
            _ if name.contains(&0) => return Err(Refusal::new(400, "a name has a zero")),
            // The slash is data here, not a separator (RFC 3986, 2.2), so it stays escaped.
            _ if name.contains(&b'/') => {
                has_slash = true;
                no_file = Some(Refusal::new(404, "a name has a slash"));
                names.push(segment.as_bytes().to_vec());
            }
            _ => {
                if name.len() > MAX_NAME {
                    no_file = Some(Refusal::new(404, "a name is too long"));
                }
                names.push(name);
            }
        }
    }
    let name = names.join(&b'/');
    if name.len() > MAX_PATH {
        no_file = no_file.or(Some(Refusal::new(414, "the path is too long")));
    }
    let split = match has_slash {
        true => Some(split(raw)?),
        false => None,
    };
    Ok(Path {
        name,
        is_directory,
        raw: raw.to_string(),
        query,
        no_file,
        split,
        is_ambiguous: false,
    })
}

/// The name of a path whose escaped slashes are separators.
///
/// # Errors
///
/// There are dots between them: who decodes such a path before he removes the dots has another one.
fn split(raw: &str) -> Result<Vec<u8>, Refusal> {
    const WRONG: Refusal = Refusal::new(404, "a name has a slash and dots");
    let mut names: Vec<Vec<u8>> = Vec::new();
    for segment in raw.split('/') {
        let segment: Vec<u8> = percent_decode_str(segment).collect();
        let is_one = !segment.contains(&b'/');
        for name in segment.split(|byte| *byte == b'/') {
            match name {
                b"" => {}
                b"." if is_one => {}
                b".." if is_one => drop(names.pop().ok_or(WRONG)?),
                b"." | b".." => return Err(WRONG),
                _ => names.push(name.to_vec()),
            }
        }
    }
    Ok(names.join(&b'/'))
}

/// Each percent sign has two hexadecimal digits behind it.
pub fn has_valid_escapes(raw: &str) -> bool {
    raw.split('%').skip(1).all(|after| {
        let digits = after.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(raw: &str) -> Result<(String, bool), u16> {
        match parse(raw, Method::Get) {
            Ok((Target::Path(path), _)) => {
                if let Some(refusal) = path.no_file {
                    return Err(refusal.status);
                }
                let name = String::from_utf8(path.name).expect("of the tests");
                Ok((name, path.is_directory))
            }
            Ok((Target::Server, _)) => Ok(("*".to_string(), false)),
            Err(refusal) => Err(refusal.status),
        }
    }

    #[test]
    fn paths_are_decoded_and_made_plain() {
        let found = |raw: &str| name(raw).expect("a path");
        assert_eq!(found("/"), (String::new(), true));
        assert_eq!(found("/a/b"), ("a/b".to_string(), false));
        assert_eq!(found("/a//b/"), ("a/b".to_string(), true));
        assert_eq!(found("/a/./b/../c"), ("a/c".to_string(), false));
        assert_eq!(found("/a/%2e%2E/c/."), ("c".to_string(), true));
        assert_eq!(found("/a%20b?x=%zz"), ("a b".to_string(), false));
        assert_eq!(found("/%C3%A9"), ("é".to_string(), false));
        assert_eq!(found("/..a/.../b"), ("..a/.../b".to_string(), false));
    }

    #[test]
    fn nothing_leads_out_of_the_root() {
        for raw in ["/..", "/a/../../b", "/%2e%2e/etc/passwd", "/./.%2e/"] {
            assert_eq!(name(raw), Err(400), "{raw}");
        }
        assert_eq!(name("/a%2fb"), Err(404));
        assert_eq!(name("/a%2F..%2F..%2Fetc"), Err(404));
        assert_eq!(name("/a%00"), Err(400));
        assert_eq!(name("/a%0"), Err(400));
        assert_eq!(name("/a%zz"), Err(400));
        assert_eq!(name("/a#b"), Err(400));
        assert_eq!(name("/a\\b"), Err(400));
        assert_eq!(name("/a?<b>"), Err(400));
        assert_eq!(name("a"), Err(400));
        assert_eq!(name("*"), Err(400));
        assert_eq!(name("ftp://a/"), Err(400));
        assert_eq!(name(&format!("/{}", "a".repeat(256))), Err(404));
    }

    #[test]
    fn an_upstream_sees_the_path_that_chose_it() {
        let forwarded = |raw: &str| match parse(raw, Method::Get) {
            Ok((Target::Path(path), _)) => path.forwarded(),
            other => panic!("{other:?}"),
        };
        assert_eq!(forwarded("/a//b%20c/?x=/../y"), "/a//b%20c/?x=/../y");
        assert_eq!(forwarded("/a/../b"), "/b");
        assert_eq!(forwarded("/a//%2E%2e/b/."), "/b/");
        assert_eq!(forwarded("/a/.."), "/");
        assert_eq!(forwarded("/a%2fb/..c"), "/a%2fb/..c");
    }

    #[test]
    fn an_escaped_slash_is_no_separator_but_may_be_taken_for_one() {
        let names = |raw: &str| match parse(raw, Method::Get) {
            Ok((Target::Path(path), _)) => {
                assert_eq!(path.split.is_some(), path.no_file.is_some(), "{raw}");
                let text = |name: Vec<u8>| String::from_utf8(name).expect("of the tests");
                Ok((text(path.name), path.split.map(text)))
            }
            Ok(other) => panic!("{other:?}"),
            Err(refusal) => Err(refusal.status),
        };
        let both = |name: &str, split: &str| Ok((name.to_string(), Some(split.to_string())));
        assert_eq!(names("/a/b"), Ok(("a/b".to_string(), None)));
        assert_eq!(names("/app/x%2Fy%2fz"), both("app/x%2Fy%2fz", "app/x/y/z"));
        assert_eq!(names("/a%2F/b"), both("a%2F/b", "a/b"));
        assert_eq!(names("/a%2F%2F..b/."), both("a%2F%2F..b", "a/..b"));
        assert_eq!(names("/a%2Fb/../c"), both("c", "a/c"));
        assert_eq!(names("/%2F"), both("%2F", ""));
        for raw in ["/x%2F..%2Fadmin", "/x%2f%2e%2e/y", "/%2F./y", "/%2F/../y"] {
            assert_eq!(names(raw), Err(404), "{raw}");
        }
    }

    #[test]
    fn the_absolute_form_has_a_scheme() {
        let authority = |raw: &str| match parse(raw, Method::Get) {
            Ok((_, authority)) => authority.map(|it| (it.text.to_string(), it.is_https)),
            Err(refusal) => panic!("{refusal:?}"),
        };
        assert_eq!(authority("/a"), None);
        assert_eq!(authority("http://a:1/b"), Some(("a:1".to_string(), false)));
        assert_eq!(authority("HTTPS://a"), Some(("a".to_string(), true)));
    }

    #[test]
    fn an_upstream_sees_another_path_in_place_of_the_locations() {
        let forwarded = |raw: &str, to: &str, names| match parse(raw, Method::Get) {
            Ok((Target::Path(path), _)) => path.forwarded_to(to, names),
            other => panic!("{other:?}"),
        };
        for (raw, to, expected) in [
            ("/api/a%20b/?x=/y", "/", "/a%20b/?x=/y"),
            ("/api/a", "/v1", "/v1/a"),
            ("/api/a", "/v1/", "/v1/a"),
            ("//api//a/", "/v1/", "/v1/a/"),
            ("/api/", "/v1", "/v1/"),
            ("/api", "/v1", "/v1"),
            ("/api?a", "/", "/?a"),
            ("/api/", "/", "/"),
            ("/x/../api/./b", "/", "/b"),
            ("/api/%2e%2E/api/b", "/v1", "/v1/b"),
            ("/api//b", "/", "/b"),
        ] {
            assert_eq!(forwarded(raw, to, 1), expected, "{raw} {to}");
        }
        assert_eq!(forwarded("/a/b/c", "/", 2), "/c");
        assert_eq!(forwarded("/a/b", "/x", 0), "/x/a/b");
    }

    proptest! {
        #[test]
        fn no_name_has_a_segment_that_leads_elsewhere(raw in "/([./a%2e5cfF]|%2e|%2f|%5c){0,30}") {
            if let Ok((Target::Path(path), _)) = parse(&raw, Method::Get) {
                if path.no_file.is_some() {
                    return Ok(());
                }
                for segment in path.name.split(|byte| *byte == b'/') {
                    prop_assert!(segment != b".." && segment != b"." );
                    prop_assert!(!segment.is_empty() || path.name.is_empty());
                }
                prop_assert!(!path.name.starts_with(b"/") && !path.name.contains(&0));
            }
        }
    }
}
