// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of a location whose requests other programs answer.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::de::{self, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::content::Names;
use super::values::{Number, Time};
use crate::upstream::Place;

/// Bytes that wait for who is slower: least and most.
const BUFFER: std::ops::RangeInclusive<u64> = 4096..=64 << 20;

/// `"http://..."`, a list of them, or a table with `to`.
#[derive(Debug)]
pub(super) struct Proxy(pub ProxyTable);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProxyTable {
    pub to: Targets<Web>,
    pub host: Option<HostName>,
    #[serde(default)]
    pub forwarded: ForwardedName,
    #[serde(default)]
    pub trust_client: bool,
    pub path: Option<String>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ForwardedName {
    #[default]
    Separate,
    Standard,
    None,
}

/// Programs that speak FastCGI.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FastCgi {
    pub to: Targets<Responder>,
    pub root: Option<PathBuf>,
    pub index: Option<Names>,
    pub ending: Option<String>,
    #[serde(default)]
    pub application: bool,
    #[serde(default)]
    pub chunked: bool,
    #[serde(default)]
    pub params: BTreeMap<String, String>,
}

impl FastCgi {
    /// What directories show, if that is looked for.
    pub fn index_list(&self) -> Option<Vec<String>> {
        let names = self.index.as_ref().filter(|names| names.is_list)?;
        Some(names.all.clone())
    }

    pub fn is_application(&self) -> bool {
        self.application
    }
}

/// Programs that are started for each request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cgi {
    pub root: PathBuf,
    pub processes: Option<Number<1, 10_000>>,
    pub time: Option<Time>,
    pub output: Option<Bytes>,
    #[serde(default)]
    pub chunked: bool,
    #[serde(default)]
    pub params: BTreeMap<String, String>,
}

/// Limits and times, whatever the protocol.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    pub connections: Option<Number<1, 100_000>>,
    pub buffer: Option<Buffer>,
    pub connect: Option<Time>,
    pub send: Option<Time>,
    pub read: Option<Time>,
    pub tunnel: Option<Time>,
    pub idle: Option<Time>,
    pub failures: Option<Number<1, 1000>>,
    pub down: Option<Time>,
    pub body: Option<Bytes>,
}

impl<'de> Deserialize<'de> for Proxy {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Proxy, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Proxy;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(
                    "an address as \"http://127.0.0.1:3000\", a list, or a table with `to`",
                )
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Proxy, E> {
                Ok(Proxy(to(Targets(vec![
                    Web::parse(text).map_err(E::custom)?
                ]))))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Proxy, A::Error> {
                let list = de::value::SeqAccessDeserializer::new(list);
                Targets::deserialize(list).map(|targets| Proxy(to(targets)))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Proxy, A::Error> {
                let map = de::value::MapAccessDeserializer::new(map);
                ProxyTable::deserialize(map).map(Proxy)
            }
        }
        from.deserialize_any(Any)
    }
}

fn to(to: Targets<Web>) -> ProxyTable {
    ProxyTable {
        to,
        host: None,
        forwarded: ForwardedName::default(),
        trust_client: false,
        path: None,
        headers: BTreeMap::new(),
    }
}

/// One address, or several.
#[derive(Debug)]
pub(super) struct Targets<T>(pub Vec<T>);

/// How an address is written.
pub(super) trait Target: Sized {
    fn parse(text: &str) -> Result<Self, String>;
}

impl<'de, T: Target> Deserialize<'de> for Targets<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Targets<T>, D::Error> {
        struct Any<T>(std::marker::PhantomData<T>);
        impl<'de, T: Target> Visitor<'de> for Any<T> {
            type Value = Targets<T>;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an address, or a list of addresses")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Targets<T>, E> {
                Ok(Targets(vec![T::parse(text).map_err(E::custom)?]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Targets<T>, A::Error> {
                let mut targets = Vec::new();
                while let Some(text) = list.next_element::<String>()? {
                    targets.push(T::parse(&text).map_err(A::Error::custom)?);
                }
                match targets.is_empty() {
                    true => Err(A::Error::custom("the list of addresses is empty: add one")),
                    false => Ok(Targets(targets)),
                }
            }
        }
        from.deserialize_any(Any(std::marker::PhantomData))
    }
}

/// `http://HOST[:PORT]` or `unix:/PATH`.
#[derive(Debug)]
pub(super) struct Web(pub Place);

impl Target for Web {
    fn parse(text: &str) -> Result<Web, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return unix(path).map(Web);
        }
        let how = "write it as http://127.0.0.1:3000 or unix:/run/app.sock";
        if text.starts_with("https://") {
            return Err(format!(
                "`{text}`: upstreams are not spoken to over TLS: {how}"
            ));
        }
        let rest = text
            .strip_prefix("http://")
            .ok_or_else(|| format!("`{text}` is no upstream: {how}"))?;
        if rest.contains(['/', '?', '#']) {
            let why = "requests keep the path that they have, so an upstream has none: remove it";
            return Err(format!("`{text}`: {why}"));
        }
        place(rest, Some(80))
            .map(Web)
            .ok_or_else(|| format!("`{text}` is no upstream: {how}"))
    }
}

/// `HOST:PORT` or `unix:/PATH`.
#[derive(Debug)]
pub(super) struct Responder(pub Place);

impl Target for Responder {
    fn parse(text: &str) -> Result<Responder, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return unix(path).map(Responder);
        }
        let how = "write it as 127.0.0.1:9000 or unix:/run/php/php-fpm.sock";
        let found = place(text, None).map(Responder);
        found.ok_or_else(|| format!("`{text}` is no address of a FastCGI program: {how}"))
    }
}

pub(super) fn unix(path: &str) -> Result<Place, String> {
    // The kernel takes 108 bytes with a zero at the end.
    if !path.starts_with('/') || path.len() > 107 {
        return Err(format!(
            "`unix:{path}` is no socket: write an absolute path of at most 107 bytes"
        ));
    }
    Ok(Place::Unix(PathBuf::from(path)))
}

/// `HOST:PORT`, the host an address or a name.
pub(super) fn place(text: &str, usual: Option<u16>) -> Option<Place> {
    if let Ok(address) = text.parse::<std::net::SocketAddr>() {
        let (host, port) = (address.ip().to_string(), address.port());
        return (port != 0).then_some(Place::Tcp { host, port });
    }
    if let Some(address) = text.strip_prefix('[') {
        let address = address.strip_suffix(']')?;
        address.parse::<std::net::Ipv6Addr>().ok()?;
        let (host, port) = (address.to_string(), usual?);
        return Some(Place::Tcp { host, port });
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, port.parse().ok().filter(|port| *port != 0)?),
        None => (text, usual?),
    };
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let host = host.to_string();
    (!host.is_empty() && host.bytes().all(is_fine)).then_some(Place::Tcp { host, port })
}

/// What the upstream sees as `Host`.
#[derive(Debug)]
pub(super) struct HostName(pub String);

impl<'de> Deserialize<'de> for HostName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<HostName, D::Error> {
        let text = String::deserialize(from)?;
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:[]".contains(&byte);
        match !text.is_empty() && text.bytes().all(is_fine) {
            true => Ok(HostName(text)),
            false => {
                let how = "write it as `app.example.org` or `app.example.org:8080`";
                Err(D::Error::custom(format!("`{text}` is no host: {how}")))
            }
        }
    }
}

/// Bytes, any number of them.
#[derive(Debug)]
pub(super) struct Bytes(pub u64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        let text = String::deserialize(from)?;
        let size = kit_units::parse_size(&text).map(Bytes);
        size.map_err(|why| D::Error::custom(format!("`{text}` is no size: {why}")))
    }
}

#[derive(Debug)]
pub(super) struct Buffer(pub usize);

impl<'de> Deserialize<'de> for Buffer {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Buffer, D::Error> {
        let text = String::deserialize(from)?;
        let size = kit_units::parse_size(&text)
            .map_err(|why| D::Error::custom(format!("`{text}` is no size: {why}")))?;
        match usize::try_from(size) {
            Ok(bytes) if BUFFER.contains(&size) => Ok(Buffer(bytes)),
            _ => Err(D::Error::custom("the size must be from 4K to 64M")),
        }
    }
}
