// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stage of Flash's history, as the configuration writes it.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::stages::{self, Stage};

/// A stage, by its name.
#[derive(Debug, Clone, Copy)]
pub struct Name(pub &'static Stage);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Name, D::Error> {
        let text = String::deserialize(from)?;
        stages::find(&text).map(Name).map_err(D::Error::custom)
    }
}

/// Bytes of files.
#[derive(Debug, Clone, Copy)]
pub struct Memory(pub u64);

impl<'de> Deserialize<'de> for Memory {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Memory, D::Error> {
        let text = String::deserialize(from)?;
        let size = kit_units::parse_size(&text);
        size.map(Memory)
            .map_err(|why| D::Error::custom(format!("`{text}` is no size: {why}")))
    }
}
