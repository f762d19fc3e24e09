// SPDX-License-Identifier: MIT OR Apache-2.0
//! The variables that tell a program about a request (RFC 3875, section 4.1), and which program and path they name.

use std::net::IpAddr;

use super::http::{authority, end_to_end, Field};
use crate::http::fields::Framing;
use crate::http::request::Request;
use crate::http::target::Path;

pub type Variable = (String, Vec<u8>);

/// A program of a location, and what the path has behind its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    pub name: Vec<u8>,
    pub path_info: Vec<u8>,
}

impl Script {
    /// The whole location is one program's. `location`: its path.
    pub fn of_application(path: &Path, location: &[u8]) -> Script {
        let name = match location {
            b"" => Vec::new(),
            location => [b"/", location].concat(),
        };
        let rest = path.name.strip_prefix(location).unwrap_or(&path.name);
        let rest = rest.strip_prefix(b"/").unwrap_or(rest);
        let mut path_info = match rest.is_empty() && !path.is_directory {
            true => Vec::new(),
            false => [b"/", rest].concat(),
        };
        if path.is_directory && !rest.is_empty() {
            path_info.push(b'/');
        }
        Script { name, path_info }
    }

    /// The first name in the path that ends so, or what a directory shows. `None`: the path is a file's.
    pub fn of_file(path: &Path, ending: &str, index: &str) -> Option<Script> {
        let mut at = 0;
        for segment in path.name.split(|byte| *byte == b'/') {
            at += segment.len();
            if segment.ends_with(ending.as_bytes()) {
                let (name, rest) = path.name.split_at(at);
                let mut path_info = rest.to_vec();
                if path.is_directory {
                    path_info.push(b'/');
                }
                let name = [b"/", name].concat();
                return Some(Script { name, path_info });
            }
            at += 1;
        }
        let is_script = path.is_directory && index.ends_with(ending);
        is_script.then(|| {
            let slash: &[u8] = if path.name.is_empty() { b"" } else { b"/" };
            Script {
                name: [b"/", path.name.as_slice(), slash, index.as_bytes()].concat(),
                path_info: Vec::new(),
            }
        })
    }
}

/// Where the request has come in.
#[derive(Debug, Clone, Copy)]
pub struct Entrance {
    pub client: Option<IpAddr>,
    pub is_secure: bool,
    pub port: u16,
}

/// `root`: where the program's file is, if it is a file. `more`: of the configuration; they replace others.
pub fn variables(
    request: &Request,
    path: &Path,
    fields: &[Field],
    script: &Script,
    entrance: Entrance,
    root: Option<&std::path::Path>,
    more: &[(String, String)],
) -> Vec<Variable> {
    let mut all: Vec<Variable> = Vec::with_capacity(40);
    let mut set = |name: &str, value: &[u8]| {
        if !more.iter().any(|(its, _)| its == name) {
            all.push((name.to_string(), value.to_vec()));
        }
    };
    set("GATEWAY_INTERFACE", b"CGI/1.1");
    set(
        "SERVER_SOFTWARE",
        concat!("flash/", env!("CARGO_PKG_VERSION")).as_bytes(),
    );
    set(
        "SERVER_PROTOCOL",
        if request.is_11 {
            b"HTTP/1.1"
        } else {
            b"HTTP/1.0"
        },
    );
    let host = match request.host.as_str() {
        "" => "localhost",
        host => host,
    };
    set("SERVER_NAME", host.as_bytes());
    set("SERVER_PORT", entrance.port.to_string().as_bytes());
    set("REQUEST_METHOD", request.method_name().as_bytes());
    let query = path.query.as_deref();
    let uri = match query {
        Some(query) => format!("{}?{query}", path.raw),
        None => path.raw.clone(),
    };
    set("REQUEST_URI", uri.as_bytes());
    set("QUERY_STRING", query.unwrap_or_default().as_bytes());
    set("SCRIPT_NAME", &script.name);
    set("PATH_INFO", &script.path_info);
    set(
        "DOCUMENT_URI",
        &[script.name.as_slice(), &script.path_info].concat(),
    );
    let address = entrance.client.map(|address| address.to_string());
    set("REMOTE_ADDR", address.unwrap_or_default().as_bytes());
    if let Some(user) = &request.user {
        set("AUTH_TYPE", b"Basic");
        set("REMOTE_USER", user.as_bytes());
    }
    set(
        "REQUEST_SCHEME",
        if entrance.is_secure {
            b"https"
        } else {
            b"http"
        },
    );
    if entrance.is_secure {
        set("HTTPS", b"on");
    }
    if let Some(root) = root {
        use std::os::unix::ffi::OsStrExt;
        let root = root.as_os_str().as_bytes();
        set("DOCUMENT_ROOT", root);
        set("SCRIPT_FILENAME", &[root, &script.name].concat());
        if !script.path_info.is_empty() {
            set("PATH_TRANSLATED", &[root, &script.path_info].concat());
        }
    }
    // PHP as a plain CGI program answers nothing without it.
    set("REDIRECT_STATUS", b"200");
    if let Framing::Length(length) = request.body {
        set("CONTENT_LENGTH", length.to_string().as_bytes());
    }
    let named = authority(request, fields);
    if !named.is_empty() {
        set("HTTP_HOST", named.as_bytes());
    }
    for (name, value) in joined(fields) {
        // The program need not know the password of a user whom the server has asked for it (RFC 3875, 4.1.18).
        if request.user.is_some() && name == "HTTP_AUTHORIZATION" {
            continue;
        }
        set(&name, &value);
    }
    let more = more
        .iter()
        .map(|(name, value)| (name.clone(), value.clone().into_bytes()));
    all.extend(more);
    all
}

/// The fields as variables, several of a name as one.
fn joined(fields: &[Field]) -> Vec<Variable> {
    let mut all: Vec<Variable> = Vec::new();
    for (name, value) in end_to_end(fields, false) {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        // `A-B` and `A_B` would be the same variable, and HTTP_PROXY is read by programs as a setting of their own.
        if !name.bytes().all(is_plain) || name.eq_ignore_ascii_case("proxy") {
            continue;
        }
        let name = name.to_ascii_uppercase().replace('-', "_");
        let name = match name.as_str() {
            "CONTENT_TYPE" => name,
            _ => format!("HTTP_{name}"),
        };
        let separator: &[u8] = if name == "HTTP_COOKIE" { b"; " } else { b", " };
        match all.iter_mut().find(|(its, _)| *its == name) {
            Some((_, before)) => {
                before.extend_from_slice(separator);
                before.extend_from_slice(value);
            }
            None => all.push((name, value.clone())),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::fields::fields;
    use crate::http::request::{Parsed, Reader};
    use crate::http::target::Target;

    fn path(raw: &str) -> Path {
        let (request, _) = request(&format!("GET {raw} HTTP/1.1\r\nHost: a\r\n\r\n"));
        match request.target {
            Target::Path(path) => path,
            Target::Server => panic!("a path"),
        }
    }

    fn request(text: &str) -> (Box<Request>, Vec<Field>) {
        match Reader::default().read(text.as_bytes(), 4096) {
            Parsed::Request(request, length) => (request, fields(&text.as_bytes()[..length])),
            other => panic!("{other:?}"),
        }
    }

    fn script(name: &str, path_info: &str) -> Script {
        Script {
            name: name.into(),
            path_info: path_info.into(),
        }
    }

    #[test]
    fn a_path_names_a_script_and_has_more_behind_it() {
        let of = |raw: &str| Script::of_file(&path(raw), ".php", "index.php");
        assert_eq!(of("/a/b.php"), Some(script("/a/b.php", "")));
        assert_eq!(
            of("/b.php/c%20d/e.php/"),
            Some(script("/b.php", "/c d/e.php/"))
        );
        assert_eq!(of("/"), Some(script("/index.php", "")));
        assert_eq!(of("/a/"), Some(script("/a/index.php", "")));
        assert_eq!(of("/a"), None);
        assert_eq!(of("/a.php5"), None);
        let of =
            |raw: &str, location: &str| Script::of_application(&path(raw), location.as_bytes());
        assert_eq!(of("/", ""), script("", "/"));
        assert_eq!(of("/app", "app"), script("/app", ""));
        assert_eq!(of("/app/", "app"), script("/app", "/"));
        assert_eq!(of("/app/x/", "app"), script("/app", "/x/"));
    }

    #[test]
    fn fields_become_variables_that_cannot_be_mistaken() {
        let text = "POST /x.php?a=b HTTP/1.1\r\nHost: a:81\r\nProxy: evil\r\nX_Real_Ip: evil\r\n\
                    Cookie: a=1\r\nCookie: b=2\r\nX-A: 1\r\nX-A: 2\r\nX-Forwarded-For: evil\r\n\
                    Content-Type: text/plain\r\nContent-Length: 3\r\n\r\n";
        let (request, fields) = request(text);
        let Target::Path(path) = &request.target else {
            panic!("a path");
        };
        let entrance = Entrance {
            client: None,
            is_secure: true,
            port: 81,
        };
        let more = [("REQUEST_SCHEME".to_string(), "x".to_string())];
        let script = script("/x.php", "/y");
        let root = std::path::Path::new("/srv");
        let all = variables(
            &request,
            path,
            &fields,
            &script,
            entrance,
            Some(root),
            &more,
        );
        let get = |name: &str| {
            let its: Vec<_> = all.iter().filter(|(its, _)| its == name).collect();
            assert!(its.len() < 2, "{name}");
            its.first()
                .map(|(_, value)| String::from_utf8_lossy(value).into_owned())
        };
        for (name, value) in [
            ("CONTENT_LENGTH", "3"),
            ("CONTENT_TYPE", "text/plain"),
            ("HTTP_COOKIE", "a=1; b=2"),
            ("HTTP_X_A", "1, 2"),
            ("HTTP_HOST", "a:81"),
            ("SERVER_NAME", "a"),
            ("REQUEST_URI", "/x.php?a=b"),
            ("SCRIPT_FILENAME", "/srv/x.php"),
            ("PATH_TRANSLATED", "/srv/y"),
            ("REQUEST_SCHEME", "x"),
            ("HTTPS", "on"),
        ] {
            assert_eq!(get(name).as_deref(), Some(value), "{name}");
        }
        for name in [
            "HTTP_PROXY",
            "HTTP_X_REAL_IP",
            "HTTP_X_FORWARDED_FOR",
            "HTTP_CONTENT_TYPE",
        ] {
            assert_eq!(get(name), None, "{name}");
        }
    }
}
