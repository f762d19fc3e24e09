// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration file, as it is written.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::access::{Charset, Ending, Kind, MethodList, Network};
use super::application::Application;
use super::auth::{Passwords, SaidOfAuth};
use super::content::{Answer, Names, To};
use super::limits::{Limits, Speed};
use super::stages;
use super::unix::Unix;
use super::upstream;
use super::values::{Address, Number, Size, Time, User};
use crate::log::Format;

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
    pub unix: Unix,
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
    kept_bytes: Option<stages::Memory>,
    #[serde(default, rename = "server")]
    pub(super) servers: Vec<Spanned<Server>>,
}

/// Files that are kept open.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenFiles {
    most: Option<Number<0, 1_000_000>>,
    check: Option<Time>,
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
            kept: self.kept_bytes.map_or(usual.kept, |memory| memory.0),
        }
    }
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
pub(super) struct Server {
    #[serde(default)]
    pub listen: Vec<Address>,
    #[serde(default)]
    pub tls: Vec<Secure>,
    #[serde(default)]
    pub names: Vec<Spanned<String>>,
    pub root: Option<Spanned<PathBuf>>,
    pub index: Option<Spanned<Names>>,
    #[serde(default)]
    pub list: bool,
    #[serde(default)]
    pub precompressed: bool,
    #[serde(default)]
    pub dotfiles: bool,
    pub cache: Option<Time>,
    #[serde(default)]
    pub headers: toml::Table,
    pub allow: Option<Vec<Network>>,
    pub deny: Option<Vec<Network>>,
    pub methods: Option<MethodList>,
    pub types: Option<BTreeMap<Ending, Kind>>,
    pub default_type: Option<Kind>,
    pub charset: Option<Charset>,
    pub auth: Option<SaidOfAuth>,
    pub rate: Option<Speed>,
    #[serde(default)]
    pub error_pages: BTreeMap<String, Spanned<PathBuf>>,
    #[serde(default, rename = "location")]
    pub locations: Vec<Spanned<Part>>,
}

/// Addresses for TLS, and a certificate that is shown there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Secure {
    pub listen: Spanned<Vec<Address>>,
    pub cert: Spanned<PathBuf>,
    pub key: Spanned<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    pub path: Spanned<String>,
    #[serde(default)]
    pub exact: bool,
    pub endings: Option<Spanned<Vec<String>>>,
    pub root: Option<Spanned<PathBuf>>,
    pub alias: Option<Spanned<PathBuf>>,
    pub index: Option<Spanned<Names>>,
    pub fallback: Option<Spanned<String>>,
    #[serde(default)]
    pub files_first: bool,
    pub list: Option<bool>,
    pub precompressed: Option<bool>,
    pub dotfiles: Option<bool>,
    pub cache: Option<Time>,
    pub headers: Option<toml::Table>,
    pub allow: Option<Vec<Network>>,
    pub deny: Option<Vec<Network>>,
    pub methods: Option<MethodList>,
    pub types: Option<BTreeMap<Ending, Kind>>,
    pub default_type: Option<Kind>,
    pub charset: Option<Charset>,
    pub auth: Option<SaidOfAuth>,
    pub rate: Option<Speed>,
    pub redirect: Option<Spanned<To>>,
    pub answer: Option<Spanned<Answer>>,
    pub proxy: Option<Spanned<upstream::Proxy>>,
    pub fastcgi: Option<Spanned<upstream::FastCgi>>,
    pub cgi: Option<Spanned<upstream::Cgi>>,
    pub application: Option<Spanned<Application>>,
    pub upstream: Option<Spanned<upstream::Limits>>,
}

fn yes() -> bool {
    true
}
