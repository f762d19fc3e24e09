// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locations that other programs answer: `proxy_pass`, `fastcgi_pass`, and the groups of servers that these name.

use std::collections::BTreeMap;

use toml::Value;

use super::notes::Notes;
use super::scope::Scope;
use super::settings::index_names;
use super::syntax::Directive;
use super::table::{list, pairs, Table};
use super::values;

/// `upstream` blocks by their names.
pub type Groups<'a> = BTreeMap<&'a str, &'a Directive>;

/// Bytes of a request's body, unless the configuration says otherwise.
const USUAL_BODY: u64 = 1 << 20;

/// Variables that flash sets by itself, as long as they have their usual values.
const USUAL_PARAMS: [&str; 28] = [
    "AUTH_TYPE",
    "CONTENT_LENGTH",
    "CONTENT_TYPE",
    "DOCUMENT_ROOT",
    "DOCUMENT_URI",
    "GATEWAY_INTERFACE",
    "HTTPS",
    "HTTP_PROXY",
    "PATH_INFO",
    "PATH_TRANSLATED",
    "QUERY_STRING",
    "REDIRECT_STATUS",
    "REMOTE_ADDR",
    "REMOTE_PORT",
    "REMOTE_USER",
    "REQUEST_METHOD",
    "REQUEST_SCHEME",
    "REQUEST_URI",
    "SCRIPT_FILENAME",
    "SCRIPT_NAME",
    "SERVER_ADDR",
    "SERVER_NAME",
    "SERVER_PORT",
    "SERVER_PROTOCOL",
    "SERVER_SOFTWARE",
    "HTTP_HOST",
    "HTTP_COOKIE",
    "HTTP_ACCEPT",
];

/// Where a `proxy_pass` leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Web {
    /// As flash writes them.
    pub to: Vec<String>,
    /// What nginx has as `$proxy_host`.
    pub host: String,
    /// What replaces the location's path.
    pub uri: Option<String>,
}

/// `None`: flash cannot ask it, and the note says why.
pub fn web(pass: &Directive, groups: &Groups<'_>, notes: &mut Notes) -> Option<Web> {
    let url = pass.word(0);
    if url.contains('$') {
        notes.left_out(
            pass,
            "an upstream is the same for all requests: its paths are answered with 502",
        );
        return None;
    }
    let Some(rest) = url.strip_prefix("http://") else {
        notes.left_out(
            pass,
            "upstreams are not spoken to over TLS: its paths are answered with 502",
        );
        return None;
    };
    if let Some(path) = rest.strip_prefix("unix:") {
        let (socket, uri) = path.split_once(':').unwrap_or((path, ""));
        return Some(Web {
            to: vec![format!("unix:{socket}")],
            host: "localhost".to_string(),
            uri: (!uri.is_empty()).then(|| uri.to_string()),
        });
    }
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, uri) = rest.split_at(at);
    let to = match groups.get(authority) {
        Some(group) => members(group, "http://", notes),
        None => vec![format!("http://{authority}")],
    };
    if to.is_empty() {
        notes.left_out(
            pass,
            "it has no server that flash can ask: its paths are answered with 502",
        );
        return None;
    }
    Some(Web {
        to,
        host: authority.to_string(),
        uri: (!uri.is_empty()).then(|| uri.to_string()),
    })
}

/// The servers of a group. `scheme`: what stands before an address.
fn members(group: &Directive, scheme: &str, notes: &mut Notes) -> Vec<String> {
    let mut found = Vec::new();
    for row in group.inside() {
        match row.name.as_str() {
            "server" => {
                let is_spare = row.words.iter().any(|word| word == "backup");
                if row.words.iter().any(|word| word == "down") {
                    continue;
                }
                if is_spare {
                    notes.left_out(
                        row,
                        "a server for the case that the others are down gets no requests",
                    );
                    continue;
                }
                if row
                    .words
                    .iter()
                    .any(|word| word.starts_with("weight=") && word != "weight=1")
                {
                    notes.in_part(row, "all servers get the same number of requests");
                }
                let address = row.word(0);
                let text = match address.starts_with("unix:") {
                    true => address.to_string(),
                    false => format!("{scheme}{address}"),
                };
                if !found.contains(&text) {
                    found.push(text);
                }
            }
            "ip_hash" | "hash" | "random" | "sticky" => {
                notes.in_part(
                    row,
                    "servers take turns: a client's requests go to all of them",
                );
            }
            "least_conn" | "least_time" => notes.in_part(row, "servers take turns"),
            "keepalive" | "keepalive_requests" | "keepalive_timeout" | "keepalive_time"
            | "zone" => {}
            _ => notes.left_out(row, "flash has nothing like it"),
        }
    }
    found
}

/// The failures after which a server of a group gets no requests.
fn failures(groups: &Groups<'_>, authority: &str, out: &mut Table) {
    let servers = groups
        .get(authority)
        .map(|group| group.inside())
        .unwrap_or_default();
    let words = || servers.iter().flat_map(|row| &row.words);
    let of = |name: &str| words().find_map(|word| word.strip_prefix(name));
    if let Some(most @ 1..=1000) = of("max_fails=").and_then(|text| text.parse::<i64>().ok()) {
        out.set("failures", most);
    }
    if let Some(seconds) = of("fail_timeout=").and_then(values::seconds) {
        out.set("down", values::time(seconds));
    }
}

/// `kind`: `proxy` or `fastcgi`. `authority`: of the group.
pub fn limits(
    scope: &Scope<'_>,
    kind: &str,
    groups: &Groups<'_>,
    authority: &str,
    notes: &mut Notes,
) -> Value {
    let mut out = Table::default();
    failures(groups, authority, &mut out);
    for (name, key) in [("connect", "connect"), ("send", "send"), ("read", "read")] {
        let name = format!("{kind}_{name}_timeout");
        let Some(said) = scope.one(&name) else {
            continue;
        };
        match values::seconds(said.word(0)) {
            Some(seconds) => out.set(key, values::time(seconds)),
            None => notes.left_out(said, "flash's own time holds"),
        }
    }
    let said = scope.one("client_max_body_size");
    let body = said.map_or(Some(USUAL_BODY), |said| values::bytes(said.word(0)));
    match (body, said) {
        (Some(0), _) => {}
        (Some(bytes), _) => out.set("body", values::size(bytes)),
        (None, Some(said)) => notes.left_out(said, "a body can be of any length"),
        (None, None) => {}
    }
    out.inline()
}

/// The settings of `proxy`. `path`: of the location; `names`: of the server.
pub fn proxy(
    scope: &Scope<'_>,
    pass: &Directive,
    web: &Web,
    path: &str,
    names: &[String],
    notes: &mut Notes,
) -> Value {
    let mut out = Table::default();
    out.set("to", list(web.to.clone()));
    let server_name = names.first().map_or("localhost", String::as_str);
    let others = [
        ("server_name", server_name),
        ("proxy_host", web.host.as_str()),
    ];
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    let (mut host, mut is_forwarded) = (Some(web.host.clone()), false);
    let said = scope
        .all(&["proxy_set_header"])
        .map_or(Vec::new(), |(_, said)| said);
    for one in said {
        let (name, value) = (one.word(0), one.word(1));
        let lower = name.to_ascii_lowercase();
        let written = values::template(value, &others);
        match (lower.as_str(), value) {
            ("host", "$host" | "$http_host" | "$host:$server_port" | "$http_host:$server_port") => {
                host = None
            }
            ("host", _) => match written {
                Ok(text) if !text.contains('{') && !text.is_empty() => host = Some(text),
                _ => {
                    notes.in_part(one, "the upstream sees the client's Host");
                    host = None;
                }
            },
            // flash does this by itself, where a client asks for another protocol.
            ("connection" | "upgrade", _) => {}
            ("x-forwarded-for", "$proxy_add_x_forwarded_for" | "$remote_addr")
            | ("x-forwarded-proto", "$scheme")
            | ("x-forwarded-host", "$host" | "$http_host") => is_forwarded = true,
            _ => match written {
                Ok(text) if crate::upstream::http::is_of_hop(name) => {
                    notes.left_out(
                        one,
                        format!("flash writes this field itself, without `{text}`"),
                    );
                }
                Ok(text) => drop(headers.insert(name.to_string(), text)),
                Err(variable) => notes.left_out(
                    one,
                    format!(
                        "there is nothing like {variable}: the upstream does not get the field"
                    ),
                ),
            },
        }
    }
    if let Some(host) = host {
        if scope.word("proxy_redirect") != Some("off") {
            let meaning = "the upstream sees its own name as Host, as with nginx; a redirect to that name reaches the client as it is: \
                           set Host to $host";
            notes.in_part(pass, meaning);
        }
        out.set("host", host);
    }
    if !is_forwarded {
        out.set("forwarded", "none");
    }
    if !headers.is_empty() {
        out.set("headers", pairs(headers));
    }
    if let Some(uri) = &web.uri {
        replaced_path(pass, uri, path, &mut out, notes);
    }
    out.inline()
}

fn replaced_path(pass: &Directive, uri: &str, path: &str, out: &mut Table, notes: &mut Notes) {
    if uri.contains('?') {
        return notes.in_part(pass, "the query stays the client's, and the path, too");
    }
    if path.ends_with('/') != uri.ends_with('/') {
        let meaning = "nginx puts what is behind the location's path directly behind the new one; flash puts a slash between them";
        notes.in_part(pass, meaning);
    }
    if path.trim_matches('/') != uri.trim_matches('/') {
        out.set("path", uri);
    }
}

/// The settings of `fastcgi`, for scripts or for one program. `None`: flash cannot ask it.
pub fn fastcgi(
    scope: &Scope<'_>,
    pass: &Directive,
    groups: &Groups<'_>,
    is_application: bool,
    notes: &mut Notes,
) -> Option<Table> {
    let name = pass.word(0);
    if name.contains('$') {
        notes.left_out(
            pass,
            "a program is the same for all requests: its paths are answered with 502",
        );
        return None;
    }
    let to = match groups.get(name) {
        Some(group) => members(group, "", notes),
        None => vec![name.to_string()],
    };
    if to.is_empty() {
        notes.left_out(
            pass,
            "it has no server that flash can ask: its paths are answered with 502",
        );
        return None;
    }
    let mut out = Table::default();
    out.set("to", list(to));
    let mut params: BTreeMap<String, String> = BTreeMap::new();
    let said = scope
        .all(&["fastcgi_param"])
        .map_or(Vec::new(), |(_, said)| said);
    for one in said {
        let (name, value) = (one.word(0), one.word(1));
        let is_constant = !value.contains('$');
        match (name, value.strip_suffix("$fastcgi_script_name")) {
            ("SCRIPT_FILENAME", Some("$document_root" | "$realpath_root" | "$document_root/")) => {}
            ("SCRIPT_FILENAME", Some(root))
                if root.starts_with('/') && !root.contains('$') && !is_application =>
            {
                out.set("root", root.trim_end_matches('/'));
            }
            ("SCRIPT_FILENAME", _) if !is_constant => {
                notes.in_part(
                    one,
                    "the program gets flash's own SCRIPT_FILENAME, or none if it is an application",
                );
            }
            ("GATEWAY_INTERFACE" | "SERVER_SOFTWARE" | "REDIRECT_STATUS" | "HTTP_PROXY", _) => {}
            (name, _) if USUAL_PARAMS.contains(&name) && !is_constant => {}
            (_, _) if is_constant => drop(params.insert(name.to_string(), value.to_string())),
            _ => notes.left_out(
                one,
                "the program gets no such variable: its value is another for each request",
            ),
        }
    }
    if !params.is_empty() {
        out.set("params", pairs(params));
    }
    if is_application {
        out.set("application", true);
        return Some(out);
    }
    // What is named is looked for, as by nginx.
    let names = scope.one("index").map(|index| index_names(index).0);
    let names = names.filter(|names| !names.is_empty());
    out.set(
        "index",
        list(names.unwrap_or(vec!["index.html".to_string()])),
    );
    Some(out)
}
