// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[unix]`: who may connect to Unix sockets.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::unix::{parse_mode, Owner, Settings};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unix {
    mode: Option<Mode>,
    owner: Option<OwnerText>,
}

#[derive(Debug)]
struct Mode(u32);

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Mode, D::Error> {
        let text = String::deserialize(from)?;
        parse_mode(&text).map(Mode).map_err(D::Error::custom)
    }
}

#[derive(Debug)]
struct OwnerText(Owner);

impl<'de> Deserialize<'de> for OwnerText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<OwnerText, D::Error> {
        let text = String::deserialize(from)?;
        let owner = text.parse().map(OwnerText);
        owner.map_err(|why: anyhow::Error| D::Error::custom(format!("{why:#}")))
    }
}

impl Unix {
    /// What is not given is as usual.
    pub fn settings(&self) -> Settings {
        let usual = Settings::default();
        Settings {
            mode: self.mode.as_ref().map_or(usual.mode, |mode| mode.0),
            owner: self.owner.as_ref().map_or(usual.owner, |owner| owner.0),
        }
    }
}
