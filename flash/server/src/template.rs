// SPDX-License-Identifier: MIT OR Apache-2.0
//! Texts of the configuration that have a part of the request in them: `https://{host}{target}`.

use std::net::IpAddr;

use crate::http::request::Request;
use crate::http::target::{Path, Target};

/// What may stand in braces.
pub const NAMES: [&str; 8] = [
    "host", "scheme", "target", "path", "query", "rest", "client", "method",
];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// By its place in [`NAMES`].
    Value(usize),
}

/// The request that a text is written for.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub request: &'a Request,
    pub is_secure: bool,
    pub client: Option<IpAddr>,
    /// Names in the path of the location.
    pub names: usize,
    /// For a request that names no host; may be empty.
    pub own_host: &'a str,
}

impl Subject<'_> {
    fn host(&self) -> &str {
        match self.request.host.as_str() {
            "" => self.own_host,
            host => host,
        }
    }
}

impl Template {
    /// # Errors
    ///
    /// A brace is not closed, or what it names does not exist; the error lists what does.
    pub fn parse(text: &str) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('{') {
            let all = || NAMES.map(|name| format!("{{{name}}}")).join(", ");
            let Some((name, after)) = behind.split_once('}') else {
                return Err(format!(
                    "`{text}` has a brace that is not closed; there are {}",
                    all()
                ));
            };
            let Some(value) = NAMES.iter().position(|known| *known == name) else {
                return Err(format!("there is no {{{name}}} here; there are {}", all()));
            };
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_string()));
            }
            pieces.push(Piece::Value(value));
            rest = after;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_string()));
        }
        Ok(Template { pieces })
    }

    /// The same for every request.
    pub fn constant(text: &str) -> Template {
        let pieces = vec![Piece::Text(text.to_string())];
        Template { pieces }
    }

    /// It has a host in it, and there is none.
    pub fn lacks_host(&self, subject: &Subject<'_>) -> bool {
        let is_host = |piece: &Piece| matches!(piece, Piece::Value(at) if NAMES[*at] == "host");
        subject.host().is_empty() && self.pieces.iter().any(is_host)
    }

    pub fn write(&self, subject: &Subject<'_>) -> String {
        let path = match &subject.request.target {
            Target::Path(path) => Some(path),
            Target::Server => None,
        };
        let of_path = |value: fn(&Path) -> String| path.map(value).unwrap_or_default();
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(its) => text.push_str(its),
                Piece::Value(at) => text.push_str(&match NAMES[*at] {
                    "host" => subject.host().to_string(),
                    "scheme" if subject.is_secure => "https".to_string(),
                    "scheme" => "http".to_string(),
                    "target" => of_path(Path::forwarded),
                    "path" => of_path(Path::plain),
                    "query" => of_path(|path| {
                        let query = path.query.as_deref();
                        query.map(|query| format!("?{query}")).unwrap_or_default()
                    }),
                    "rest" => path
                        .map(|path| path.behind(subject.names))
                        .unwrap_or_default(),
                    "client" => {
                        let client = subject.client.map(|client| client.to_string());
                        client.unwrap_or_default()
                    }
                    _ => subject.request.method_name().to_string(),
                }),
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::request::{Parsed, Reader};

    fn written(template: &str, target: &str) -> String {
        let text = format!("GET {target} HTTP/1.1\r\nHost: Example.org:81\r\n\r\n");
        let Parsed::Request(request, _) = Reader::default().read(text.as_bytes(), 4096) else {
            panic!("a request");
        };
        let subject = Subject {
            request: &request,
            is_secure: false,
            client: Some([127, 0, 0, 1].into()),
            names: 1,
            own_host: "",
        };
        Template::parse(template)
            .expect("a template")
            .write(&subject)
    }

    #[test]
    fn a_text_has_parts_of_the_request() {
        for (template, target, expected) in [
            (
                "https://{host}{target}",
                "/a/b?c",
                "https://example.org/a/b?c",
            ),
            ("{scheme}://x{path}", "/a//b?c", "http://x/a//b"),
            ("/new/{rest}{query}", "/old/b/c%20d?e", "/new/b/c%20d?e"),
            ("/new/{rest}", "/old", "/new/"),
            ("/{rest}", "/old//evil.org", "/evil.org"),
            ("{client} {method}", "/", "127.0.0.1 GET"),
            ("plain", "/", "plain"),
        ] {
            assert_eq!(written(template, target), expected, "{template}");
        }
        assert!(Template::parse("{hots}").is_err_and(|why| why.contains("{host}")));
        assert!(Template::parse("a{host").is_err());
    }
}
