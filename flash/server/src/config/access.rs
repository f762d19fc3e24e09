// SPDX-License-Identifier: MIT OR Apache-2.0
//! Networks, methods and types, as the configuration writes them.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::access::methods::Methods;
use crate::access::{networks, Access};
use crate::http::method::is_token;
use crate::types::{self, Types};

/// What a server or a location says of who may do what.
#[derive(Debug)]
pub(super) struct Said<'a> {
    pub allow: &'a Option<Vec<Network>>,
    pub deny: &'a Option<Vec<Network>>,
    pub methods: Option<MethodList>,
}

impl Said<'_> {
    /// What is not said is as in `whole`.
    pub fn over(&self, whole: &Access) -> Access {
        let networks = |list: &Vec<Network>| list.iter().map(|network| network.0).collect();
        Access {
            allow: self
                .allow
                .as_ref()
                .map(networks)
                .or_else(|| whole.allow.clone()),
            deny: self
                .deny
                .as_ref()
                .map_or_else(|| whole.deny.clone(), networks),
            methods: self.methods.map(|methods| methods.0).or(whole.methods),
        }
    }
}

/// What a server or a location says of types.
#[derive(Debug)]
pub(super) struct SaidOfTypes<'a> {
    pub types: &'a Option<BTreeMap<Ending, Kind>>,
    pub default_type: &'a Option<Kind>,
    pub charset: &'a Option<Charset>,
}

impl SaidOfTypes<'_> {
    /// The endings are added to those of `whole`.
    pub fn over(&self, whole: &Types) -> Types {
        let mut all = whole.clone();
        for (ending, kind) in self.types.iter().flatten() {
            all.by_ending.insert(ending.0.clone(), kind.0.clone());
        }
        if let Some(kind) = self.default_type {
            all.otherwise.clone_from(&kind.0);
        }
        if let Some(charset) = self.charset {
            all.charset.clone_from(&charset.0);
        }
        all
    }
}

#[derive(Debug)]
pub struct Network(pub ipnet::IpNet);

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Network, D::Error> {
        let text = String::deserialize(from)?;
        networks::parse(&text)
            .map(Network)
            .map_err(D::Error::custom)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct MethodList(pub Methods);

impl<'de> Deserialize<'de> for MethodList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<MethodList, D::Error> {
        let names = Vec::<String>::deserialize(from)?;
        Methods::of(&names)
            .map(MethodList)
            .map_err(D::Error::custom)
    }
}

/// Of a name: `wasm`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ending(pub String);

impl<'de> Deserialize<'de> for Ending {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Ending, D::Error> {
        let text = String::deserialize(from)?;
        if text.is_empty() || text.starts_with('.') || text.contains('/') {
            let why = format!("`{text}` is no ending: write it as wasm, without a dot before it");
            return Err(D::Error::custom(why));
        }
        Ok(Ending(text.to_ascii_lowercase()))
    }
}

#[derive(Debug)]
pub(super) struct Kind(pub String);

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Kind, D::Error> {
        let text = String::deserialize(from)?;
        types::check(&text).map_err(D::Error::custom)?;
        Ok(Kind(text))
    }
}

#[derive(Debug)]
pub(super) struct Charset(pub String);

impl<'de> Deserialize<'de> for Charset {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Charset, D::Error> {
        let text = String::deserialize(from)?;
        match text.bytes().all(is_token) {
            true => Ok(Charset(text)),
            false => Err(D::Error::custom(format!(
                "`{text}` is no character set: write it as utf-8, or \"\" for none"
            ))),
        }
    }
}
