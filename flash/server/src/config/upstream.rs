// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of a location whose requests other programs answer.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::application::Application;
use super::{Number, Part, Path, PathBuf, Time, Wrong};
use crate::upstream::http::{Forwarded, Host, Options};
use crate::upstream::{fastcgi, scripts, Place, Plan, Protocol, Settings};

/// Scripts of a location at the same time, and how long each may take.
const PROCESSES: usize = 16;
const SCRIPT_MS: u64 = 30_000;
/// Bytes that wait for who is slower: least and most.
const BUFFER: std::ops::RangeInclusive<u64> = 4096..=64 << 20;

/// `"http://..."`, a list of them, or a table with `to`.
#[derive(Debug)]
pub(super) struct Proxy(ProxyTable);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProxyTable {
    to: Targets<Web>,
    host: Option<HostName>,
    #[serde(default)]
    forwarded: ForwardedName,
    #[serde(default)]
    trust_client: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ForwardedName {
    #[default]
    Separate,
    Standard,
    None,
}

/// Programs that speak FastCGI.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FastCgi {
    to: Targets<Responder>,
    root: Option<PathBuf>,
    index: Option<String>,
    ending: Option<String>,
    #[serde(default)]
    application: bool,
    #[serde(default)]
    params: BTreeMap<String, String>,
}

/// Programs that are started for each request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cgi {
    root: PathBuf,
    processes: Option<Number<1, 10_000>>,
    time: Option<Time>,
    output: Option<Output>,
    #[serde(default)]
    params: BTreeMap<String, String>,
}

/// Limits and times, whatever the protocol.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    connections: Option<Number<1, 100_000>>,
    buffer: Option<Buffer>,
    connect: Option<Time>,
    send: Option<Time>,
    read: Option<Time>,
    tunnel: Option<Time>,
    idle: Option<Time>,
    failures: Option<Number<1, 1000>>,
    down: Option<Time>,
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
pub(super) struct Web(Place);

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
struct Responder(Place);

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
struct HostName(String);

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
struct Output(u64);

impl<'de> Deserialize<'de> for Output {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Output, D::Error> {
        let text = String::deserialize(from)?;
        let size = kit_units::parse_size(&text).map(Output);
        size.map_err(|why| D::Error::custom(format!("`{text}` is no size: {why}")))
    }
}

#[derive(Debug)]
struct Buffer(usize);

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

/// The upstream of a location, if it has one. `directory`: where relative paths begin; `root`: of the location.
pub(super) fn plan(part: &Part, directory: &Path, root: &Path) -> Result<Option<Plan>, Wrong> {
    let settings = settings(part.upstream.as_ref().map(Spanned::get_ref));
    let spans = [
        part.redirect.as_ref().map(Spanned::span),
        part.proxy.as_ref().map(Spanned::span),
        part.fastcgi.as_ref().map(Spanned::span),
        part.cgi.as_ref().map(Spanned::span),
        part.application.as_ref().map(Spanned::span),
    ];
    if let Some(second) = spans.into_iter().flatten().nth(1) {
        let what =
            "a location has one of `redirect`, `proxy`, `fastcgi`, `cgi` and `application`: remove the others";
        return Err(Wrong::at(second, what));
    }
    let (protocol, to) = if let Some(proxy) = &part.proxy {
        http(proxy.get_ref())
    } else if let Some(fastcgi) = &part.fastcgi {
        fast_cgi(part, fastcgi, directory, root)?
    } else if let Some(cgi) = &part.cgi {
        let settings = Settings {
            connections: cgi.get_ref().processes.map_or(PROCESSES, |number| number.0),
            ..settings
        };
        return Ok(Some(Plan {
            protocol: of_scripts(part, cgi, directory)?,
            to: vec![Place::Script],
            settings,
        }));
    } else if let Some(application) = &part.application {
        return of_application(part, application, directory).map(Some);
    } else if let Some(limits) = &part.upstream {
        let what =
            "`upstream` has the limits of `proxy`, `fastcgi` or `cgi`, which is not there: add it";
        return Err(Wrong::at(limits.span(), what));
    } else {
        return Ok(None);
    };
    Ok(Some(Plan {
        protocol,
        to,
        settings,
    }))
}

fn http(Proxy(table): &Proxy) -> (Protocol, Vec<Place>) {
    let options = Options {
        host: match &table.host {
            Some(HostName(name)) => Host::Name(name.clone()),
            None => Host::Client,
        },
        forwarded: match table.forwarded {
            ForwardedName::Separate => Forwarded::Separate,
            ForwardedName::Standard => Forwarded::Standard,
            ForwardedName::None => Forwarded::None,
        },
        trusts_client: table.trust_client,
    };
    let to = table.to.0.iter().map(|Web(place)| place.clone());
    (Protocol::Http(options), to.collect())
}

fn fast_cgi(
    part: &Part,
    spanned: &Spanned<FastCgi>,
    directory: &Path,
    root: &Path,
) -> Result<(Protocol, Vec<Place>), Wrong> {
    let (span, table) = (spanned.span(), spanned.get_ref());
    let wrong = |what: &str| Err(Wrong::at(span.clone(), what));
    if table.application && (table.index.is_some() || table.ending.is_some()) {
        return wrong("`fastcgi`: an `application` has no scripts: remove `index` and `ending`");
    }
    let ending = table.ending.clone().unwrap_or(".php".to_string());
    let index = table.index.clone().unwrap_or(format!("index{ending}"));
    if !ending.starts_with('.') || ending.contains('/') {
        return wrong("`fastcgi`: `ending` is the end of a name, as \".php\"");
    }
    if index.is_empty() || index.contains(['/', '\0']) {
        return wrong("`fastcgi`: `index` is the name of a file, without a slash");
    }
    let variables = params(&table.params, &span)?;
    let named = table.root.as_ref().map(|root| directory.join(root));
    // The program may see other directories than the server: it is not looked for.
    let root = named.unwrap_or(root.to_path_buf());
    let root = std::path::absolute(&root).unwrap_or(root);
    let options = fastcgi::Options {
        root,
        location: part.path.get_ref().trim_matches('/').as_bytes().to_vec(),
        scripts: (!table.application).then_some((ending, index)),
        variables,
    };
    let to = table.to.0.iter().map(|Responder(place)| place.clone());
    Ok((Protocol::FastCgi(options), to.collect()))
}

fn of_scripts(part: &Part, spanned: &Spanned<Cgi>, directory: &Path) -> Result<Protocol, Wrong> {
    let (span, table) = (spanned.span(), spanned.get_ref());
    let root = directory.join(&table.root);
    let Some(root) = root.canonicalize().ok().filter(|root| root.is_dir()) else {
        let root = root.display();
        let what = format!("`cgi`: there is no directory {root}: create it, or correct `root`");
        return Err(Wrong::at(span, what));
    };
    let ms = |time: Time| u64::try_from(time.0.as_millis()).unwrap_or(u64::MAX);
    Ok(Protocol::Cgi(scripts::Options {
        root,
        location: part.path.get_ref().trim_matches('/').as_bytes().to_vec(),
        time_ms: table.time.map_or(SCRIPT_MS, ms),
        output: table.output.as_ref().map_or(u64::MAX, |bytes| bytes.0),
        variables: params(&table.params, &span)?,
    }))
}

fn of_application(
    part: &Part,
    spanned: &Spanned<Application>,
    directory: &Path,
) -> Result<Plan, Wrong> {
    let (span, table) = (spanned.span(), spanned.get_ref());
    if let Some(limits) = &part.upstream {
        let what = "an `application` has its limits in its own table: remove `upstream`";
        return Err(Wrong::at(limits.span(), what));
    }
    let variables = params(&table.params, &span)?;
    let options = table.options(part.path.get_ref(), directory, variables);
    let wrong = |what: String| Wrong::at(span, format!("`application`: {what}"));
    Ok(Plan {
        protocol: Protocol::Application(options.map_err(wrong)?),
        to: vec![Place::Application],
        settings: Settings::default(),
    })
}

fn params(
    table: &BTreeMap<String, String>,
    span: &std::ops::Range<usize>,
) -> Result<Vec<(String, String)>, Wrong> {
    for (name, value) in table {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_name) {
            let what = format!(
                "`params`: `{name}` is no name of a variable: it has letters, digits and `_`"
            );
            return Err(Wrong::at(span.clone(), what));
        }
        if value.contains('\0') {
            let what = format!("`params`: the value of `{name}` has a zero byte: remove it");
            return Err(Wrong::at(span.clone(), what));
        }
    }
    Ok(table.clone().into_iter().collect())
}

fn settings(limits: Option<&Limits>) -> Settings {
    let usual = Settings::default();
    let Some(limits) = limits else {
        return usual;
    };
    let ms = |time: Option<Time>, usual| {
        time.map_or(usual, |time| {
            u64::try_from(time.0.as_millis()).unwrap_or(u64::MAX / 2)
        })
    };
    Settings {
        connections: limits
            .connections
            .map_or(usual.connections, |number| number.0),
        buffer: limits.buffer.as_ref().map_or(usual.buffer, |size| size.0),
        connect_ms: ms(limits.connect, usual.connect_ms),
        send_ms: ms(limits.send, usual.send_ms),
        read_ms: ms(limits.read, usual.read_ms),
        tunnel_ms: ms(limits.tunnel, usual.tunnel_ms),
        idle_ms: ms(limits.idle, usual.idle_ms),
        failures: limits
            .failures
            .map_or(usual.failures, |number| number.0 as u32),
        down_ms: ms(limits.down, usual.down_ms),
    }
}
