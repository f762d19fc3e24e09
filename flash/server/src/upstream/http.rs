// SPDX-License-Identifier: MIT OR Apache-2.0
//! HTTP/1.1 to an upstream: a request is written from its parts again, never passed on as it came.

use std::net::IpAddr;

use crate::http::fields::{elements, Framing};
use crate::http::method::{is_token, Method};
use crate::http::request::Request;
use crate::template::{Subject, Template};

mod reader;

pub use reader::Reader;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    pub host: Host,
    pub forwarded: Forwarded,
    /// What the client says of those before it is passed on. It can say anything.
    pub trusts_client: bool,
    /// In place of the location's path, which has so many names.
    pub path: Option<String>,
    pub names: usize,
    /// In place of the client's fields of these names. One whose value is empty is left out.
    pub fields: Vec<(String, Template)>,
}

impl Options {
    /// The configuration has a field of this name.
    fn writes(&self, name: &str) -> bool {
        let is_it = |(its, _): &(String, Template)| its.eq_ignore_ascii_case(name);
        self.fields.iter().any(is_it)
    }
}

/// Which `Host` the upstream sees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Host {
    #[default]
    Client,
    Name(String),
}

/// How the upstream learns for whom it answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Forwarded {
    /// `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`.
    #[default]
    Separate,
    /// `Forwarded` (RFC 7239).
    Standard,
    None,
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    pub address: Option<IpAddr>,
    pub is_secure: bool,
}

pub type Field = (String, Vec<u8>);

/// Fields between two neighbours (RFC 9110, 7.6.1), and those that are written again.
const OWN: [&str; 13] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];
/// What only a server in front may say. Programs take `_` for `-`.
const OF_THE_SERVER_IN_FRONT: [&str; 7] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-forwarded-server",
    "x-real-ip",
];

/// Whether a field is of a connection, and so written by the server itself.
pub fn is_of_hop(name: &str) -> bool {
    is_of_connection(name, &[])
}

/// Whether a field is of its connection only. `named`: the elements of `Connection`.
fn is_of_connection(name: &str, named: &[String]) -> bool {
    let is = |own: &str| name.eq_ignore_ascii_case(own);
    OWN.iter().any(|own| is(own)) || named.iter().any(|own| is(own))
}

/// The elements of all fields of a name, in lower case.
fn list(fields: &[Field], name: &str) -> Vec<String> {
    let its = fields
        .iter()
        .filter(|(its, _)| its.eq_ignore_ascii_case(name));
    its.flat_map(|(_, value)| {
        let text = String::from_utf8_lossy(value).to_ascii_lowercase();
        elements(&text).map(str::to_string).collect::<Vec<_>>()
    })
    .collect()
}

/// The fields of a request that are for the upstream, whatever its protocol.
pub fn end_to_end(fields: &[Field], trusts_client: bool) -> impl Iterator<Item = &Field> {
    let named = list(fields, "connection");
    fields.iter().filter(move |(name, _)| {
        let plain = name.to_ascii_lowercase().replace('_', "-");
        let is_claim = OF_THE_SERVER_IN_FRONT.contains(&plain.as_str());
        !is_of_connection(name, &named) && (trusts_client || !is_claim)
    })
}

/// The other protocol that the client wants to speak.
pub fn upgrade(request: &Request, fields: &[Field]) -> Option<String> {
    let wants = list(fields, "connection")
        .iter()
        .any(|one| one == "upgrade");
    let protocols = list(fields, "upgrade");
    match protocols.as_slice() {
        // Over HTTP/2 requests would pass that nobody here has looked at.
        [one]
            if wants
                && request.is_11
                && request.body == Framing::None
                && !one.starts_with("h2") =>
        {
            let is_name = |byte: u8| is_token(byte) || byte == b'/';
            one.bytes().all(is_name).then(|| one.clone())
        }
        _ => None,
    }
}

/// The host and port that the client names, as it wrote them.
pub fn authority<'a>(request: &'a Request, fields: &'a [Field]) -> &'a str {
    let target = request.line.split(' ').nth(1).unwrap_or_default();
    if let (false, Some((_, rest))) = (target.starts_with('/'), target.split_once("://")) {
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        return &rest[..end];
    }
    let host = fields
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let text = host.and_then(|(_, value)| std::str::from_utf8(value).ok());
    text.unwrap_or_default()
}

/// Everything in front of the body.
pub fn head(
    request: &Request,
    fields: &[Field],
    target: &str,
    client: Client,
    options: &Options,
    upgrade: Option<&str>,
) -> Vec<u8> {
    let begin = format!("{} {target} HTTP/1.1\r\n", request.method_name());
    let mut head = begin.into_bytes();
    let mut line = |name: &str, value: &[u8]| {
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value);
        head.extend_from_slice(b"\r\n");
    };
    let named = authority(request, fields);
    let host = match &options.host {
        Host::Name(name) => name,
        Host::Client if named.is_empty() => "localhost",
        Host::Client => named,
    };
    line("Host", host.as_bytes());
    for (name, value) in end_to_end(fields, options.trusts_client) {
        if options.writes(name) {
            continue;
        }
        let is_claim = name.eq_ignore_ascii_case("x-forwarded-for");
        let hops = name.eq_ignore_ascii_case("max-forwards");
        match (is_claim && options.forwarded == Forwarded::Separate, hops) {
            // It is written together with the client's own address.
            (true, _) => {}
            (_, true) if matches!(request.method, Method::Options) => {
                let left = std::str::from_utf8(value).ok().and_then(|n| n.parse().ok());
                let left = left.unwrap_or(1u32).saturating_sub(1);
                line(name, left.to_string().as_bytes());
            }
            _ => line(name, value),
        }
    }
    for (name, value) in forwarded(fields, named, client, options) {
        if !options.writes(name) {
            line(name, value.as_bytes());
        }
    }
    let subject = Subject {
        own_host: "",
        request,
        is_secure: client.is_secure,
        client: client.address,
        names: options.names,
    };
    for (name, value) in &options.fields {
        let value = value.write(&subject);
        if !value.is_empty() {
            line(name, value.as_bytes());
        }
    }
    let via = list_as_written(fields, "via");
    let version = if request.is_11 { "1.1" } else { "1.0" };
    let via = match via.is_empty() {
        true => format!("{version} flash"),
        false => format!("{via}, {version} flash"),
    };
    line("Via", via.as_bytes());
    match request.body {
        Framing::Length(length) => line("Content-Length", length.to_string().as_bytes()),
        Framing::Chunked => line("Transfer-Encoding", b"chunked"),
        // Some programs wait for a body unless they are told that there is none.
        Framing::None => match request.method {
            Method::Post | Method::Put | Method::Patch => line("Content-Length", b"0"),
            _ => {}
        },
    }
    if let Some(protocol) = upgrade {
        line("Connection", b"upgrade");
        line("Upgrade", protocol.as_bytes());
    }
    head.extend_from_slice(b"\r\n");
    head
}

fn list_as_written(fields: &[Field], name: &str) -> String {
    let its = fields
        .iter()
        .filter(|(its, _)| its.eq_ignore_ascii_case(name));
    let values = its.filter_map(|(_, value)| std::str::from_utf8(value).ok());
    values.collect::<Vec<_>>().join(", ")
}

fn forwarded(
    fields: &[Field],
    host: &str,
    client: Client,
    options: &Options,
) -> Vec<(&'static str, String)> {
    let scheme = if client.is_secure { "https" } else { "http" };
    match options.forwarded {
        Forwarded::None => Vec::new(),
        Forwarded::Separate => {
            let said = |name: &str| match options.trusts_client {
                true => list_as_written(fields, name),
                false => String::new(),
            };
            let mut before = said("x-forwarded-for");
            if let Some(address) = client.address {
                if !before.is_empty() {
                    before.push_str(", ");
                }
                before.push_str(&address.to_string());
            }
            let mut all = vec![("X-Forwarded-For", before)];
            if said("x-forwarded-proto").is_empty() {
                all.push(("X-Forwarded-Proto", scheme.to_string()));
            }
            if said("x-forwarded-host").is_empty() && !host.is_empty() {
                all.push(("X-Forwarded-Host", host.to_string()));
            }
            all.retain(|(_, value)| !value.is_empty());
            all
        }
        Forwarded::Standard => {
            let address = match client.address {
                Some(IpAddr::V4(address)) => address.to_string(),
                Some(IpAddr::V6(address)) => format!("\"[{address}]\""),
                None => "unknown".to_string(),
            };
            let mut value = format!("for={address};proto={scheme}");
            // A valid host has no quote (RFC 3986, 3.2.2).
            if !host.is_empty() {
                value.push_str(&format!(";host=\"{host}\""));
            }
            vec![("Forwarded", value)]
        }
    }
}

#[cfg(test)]
mod tests;
