// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration file.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use self::access::{Charset, Ending, Kind, MethodList, Network};
use self::auth::{Passwords, SaidOfAuth};
use self::limits::{Limits, Speed};
use crate::log::Format;
use crate::sites::{FileOptions, Location, Redirect, TlsListen, VirtualHost};
use crate::tls::{Pair, Settings};
use crate::user::Identity;

mod access;
mod application;
mod auth;
mod check;
mod limits;
mod stages;
mod unix;
mod upstream;

/// Bytes of a configuration file.
const MAX_SIZE: u64 = 4 << 20;

/// A file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub loops: Option<Number<1, 256>>,
    pub helpers: Option<Number<1, 1024>>,
    pub connections: Option<Number<1, 10_000_000>>,
    pub head_size: Option<Size>,
    pub log: Option<PathBuf>,
    #[serde(default)]
    pub log_format: Format,
    pub metrics: Option<Address>,
    #[serde(default)]
    pub unix: unix::Unix,
    pub user: Option<User>,
    #[serde(default = "yes")]
    pub sandbox: bool,
    #[serde(default)]
    pub timeouts: Timeouts,
    #[serde(default)]
    pub passwords: Passwords,
    #[serde(default)]
    pub limits: Limits,
    stage: Option<stages::Name>,
    #[serde(default)]
    open_files: OpenFiles,
    assumed_memory: Option<stages::Memory>,
    #[serde(default, rename = "server")]
    servers: Vec<Spanned<Server>>,
}

/// Files that are kept open.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenFiles {
    most: Option<Number<0, 1_000_000>>,
    check: Option<Time>,
}

/// What is not given has the value that `flash serve` has.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timeouts {
    pub idle: Option<Time>,
    pub handshake: Option<Time>,
    pub head: Option<Time>,
    pub disk: Option<Time>,
    pub send: Option<Time>,
    pub grace: Option<Time>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Server {
    #[serde(default)]
    listen: Vec<Address>,
    #[serde(default)]
    tls: Vec<Secure>,
    #[serde(default)]
    names: Vec<Spanned<String>>,
    root: Spanned<PathBuf>,
    index: Option<Spanned<String>>,
    #[serde(default)]
    list: bool,
    #[serde(default)]
    precompressed: bool,
    #[serde(default)]
    dotfiles: bool,
    cache: Option<Time>,
    #[serde(default)]
    headers: toml::Table,
    allow: Option<Vec<Network>>,
    deny: Option<Vec<Network>>,
    methods: Option<MethodList>,
    types: Option<BTreeMap<Ending, Kind>>,
    default_type: Option<Kind>,
    charset: Option<Charset>,
    auth: Option<SaidOfAuth>,
    rate: Option<Speed>,
    #[serde(default)]
    error_pages: BTreeMap<String, Spanned<PathBuf>>,
    #[serde(default, rename = "location")]
    locations: Vec<Spanned<Part>>,
}

/// Addresses for TLS, and a certificate that is shown there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Secure {
    listen: Spanned<Vec<Address>>,
    cert: Spanned<PathBuf>,
    key: Spanned<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    path: Spanned<String>,
    root: Option<Spanned<PathBuf>>,
    index: Option<Spanned<String>>,
    list: Option<bool>,
    precompressed: Option<bool>,
    dotfiles: Option<bool>,
    cache: Option<Time>,
    headers: Option<toml::Table>,
    allow: Option<Vec<Network>>,
    deny: Option<Vec<Network>>,
    methods: Option<MethodList>,
    types: Option<BTreeMap<Ending, Kind>>,
    default_type: Option<Kind>,
    charset: Option<Charset>,
    auth: Option<SaidOfAuth>,
    rate: Option<Speed>,
    redirect: Option<Spanned<To>>,
    proxy: Option<Spanned<upstream::Proxy>>,
    fastcgi: Option<Spanned<upstream::FastCgi>>,
    cgi: Option<Spanned<upstream::Cgi>>,
    application: Option<Spanned<application::Application>>,
    upstream: Option<Spanned<upstream::Limits>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct To {
    to: String,
    status: Option<u16>,
}

#[derive(Debug, Clone, Copy)]
pub struct Time(pub Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
        let text = String::deserialize(from)?;
        let time = kit_units::parse_duration(&text);
        time.map(Time)
            .map_err(|why| D::Error::custom(format!("`{text}` is no time: {why}")))
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Size(pub usize);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
        let text = String::deserialize(from)?;
        let size = kit_units::parse_size(&text)
            .map_err(|why| D::Error::custom(format!("`{text}` is no size: {why}")))?;
        match usize::try_from(size) {
            Ok(size @ 1024..=1_048_576) => Ok(Size(size)),
            _ => Err(D::Error::custom("the size must be from 1K to 1M")),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(pub crate::address::Address);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Address, D::Error> {
        let text = String::deserialize(from)?;
        let address = text.parse().map(Address);
        address.map_err(|why: anyhow::Error| D::Error::custom(why))
    }
}

/// Whose rights the process has once the ports are open.
#[derive(Debug)]
pub struct User(pub Identity);

impl<'de> Deserialize<'de> for User {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<User, D::Error> {
        let text = String::deserialize(from)?;
        let user = text.parse().map(User);
        user.map_err(|why| D::Error::custom(format!("{why:#}")))
    }
}

fn yes() -> bool {
    true
}

/// A whole number between two.
#[derive(Debug, Clone, Copy)]
pub struct Number<const LEAST: usize, const MOST: usize>(pub usize);

impl<'de, const LEAST: usize, const MOST: usize> Deserialize<'de> for Number<LEAST, MOST> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(from)?;
        match usize::try_from(number) {
            Ok(number) if (LEAST..=MOST).contains(&number) => Ok(Number(number)),
            _ => {
                let why = format!("the number must be from {LEAST} to {MOST}");
                Err(D::Error::custom(why))
            }
        }
    }
}

impl Config {
    pub fn stages(&self) -> crate::stages::Settings {
        let usual = crate::stages::Settings::default();
        let ms = |time: Time| u64::try_from(time.0.as_millis()).unwrap_or(u64::MAX);
        crate::stages::Settings {
            stage: self.stage.map_or(usual.stage, |name| name.0),
            open_files: self.open_files.most.map(|number| number.0),
            check_ms: self.open_files.check.map_or(usual.check_ms, ms),
            memory: self.assumed_memory.map_or(usual.memory, |memory| memory.0),
        }
    }
}

/// What is wrong, and where in the file.
#[derive(Debug, PartialEq, Eq)]
struct Wrong {
    at: Option<Range<usize>>,
    what: String,
}

impl Wrong {
    fn at(span: Range<usize>, what: impl Into<String>) -> Wrong {
        let (at, what) = (Some(span), what.into());
        Wrong { at, what }
    }
}

/// Reads and checks a file; opens nothing of what it names.
///
/// # Errors
///
/// What is wrong: file, line, column and remedy.
pub fn read(path: &Path) -> anyhow::Result<(Config, Vec<VirtualHost>)> {
    let name = path.display();
    let fails = |error| anyhow::anyhow!("cannot read {name}: {error}");
    let about = std::fs::metadata(path).map_err(fails)?;
    if !about.is_file() || about.len() > MAX_SIZE {
        anyhow::bail!(
            "{name} is no file of at most {}",
            kit_units::bytes(MAX_SIZE)
        );
    }
    let text = std::fs::read_to_string(path).map_err(fails)?;
    let directory = path.parent().unwrap_or(Path::new(""));
    parse(&text, directory).map_err(|wrong| match wrong.at {
        Some(at) => {
            let (line, column) = place(&text, at.start);
            anyhow::anyhow!("{name}:{line}:{column}: {}", wrong.what)
        }
        None => anyhow::anyhow!("{name}: {}", wrong.what),
    })
}

/// `directory`: where relative paths begin.
fn parse(text: &str, directory: &Path) -> Result<(Config, Vec<VirtualHost>), Wrong> {
    let config: Config = toml::from_str(text).map_err(|error| Wrong {
        at: error.span(),
        what: with_nearest(error.message()),
    })?;
    config.limits.check()?;
    let hosts = check::hosts(&config.servers, directory)?;
    Ok((config, hosts))
}

/// Line and column, both from 1; columns are characters.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

/// Names the setting that an unknown one may stand for.
fn with_nearest(message: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown field `") else {
        return message.trim_end().replace('\n', ", ");
    };
    let mut names = rest.split('`').step_by(2);
    let unknown = names.next().unwrap_or_default();
    let known: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    let distance = |name: &&&str| strsim::damerau_levenshtein(unknown, name);
    match known.iter().min_by_key(distance) {
        Some(name) if distance(&name) <= 1 + unknown.len() / 3 => {
            format!("there is no setting `{unknown}` here; did you mean `{name}`?")
        }
        _ => {
            let known = known.join(", ");
            format!("there is no setting `{unknown}` here; there are: {known}")
        }
    }
}

#[cfg(test)]
mod tests;
