// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stage of Flash's history, and files that are kept open, as the configuration writes them.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::{Number, Time};
use crate::stages::{self, Settings, Stage};

/// A stage, by its name.
#[derive(Debug, Clone, Copy)]
pub struct Name(&'static Stage);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Name, D::Error> {
        let text = String::deserialize(from)?;
        stages::find(&text).map(Name).map_err(D::Error::custom)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenFiles {
    most: Option<Number<0, 1_000_000>>,
    check: Option<Time>,
}

/// Bytes of files that are taken to be in memory.
#[derive(Debug, Clone, Copy)]
pub struct Memory(u64);

impl<'de> Deserialize<'de> for Memory {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Memory, D::Error> {
        let text = String::deserialize(from)?;
        let size = kit_units::parse_size(&text);
        size.map(Memory)
            .map_err(|why| D::Error::custom(format!("`{text}` is no size: {why}")))
    }
}

/// What the configuration says of all of it.
pub fn settings(stage: Option<Name>, open_files: &OpenFiles, assumed: Option<Memory>) -> Settings {
    let usual = Settings::default();
    let ms = |time: Time| u64::try_from(time.0.as_millis()).unwrap_or(u64::MAX);
    Settings {
        stage: stage.map_or(usual.stage, |name| name.0),
        open_files: open_files.most.map(|number| number.0),
        check_ms: open_files.check.map_or(usual.check_ms, ms),
        memory: assumed.map_or(usual.memory, |memory| memory.0),
    }
}
