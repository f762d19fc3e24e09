// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of the configuration, and what is wrong with one.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::user::Identity;

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

/// What is wrong, and where in the file.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    pub at: Option<Range<usize>>,
    pub what: String,
}

impl Wrong {
    pub fn at(span: Range<usize>, what: impl Into<String>) -> Wrong {
        let (at, what) = (Some(span), what.into());
        Wrong { at, what }
    }
}

/// A directory that exists. `setting`: which one names it.
pub fn directory(path: &Spanned<PathBuf>, below: &Path, setting: &str) -> Result<PathBuf, Wrong> {
    let found = below.join(path.get_ref());
    if !found.is_dir() {
        let what = format!(
            "there is no directory {}: create it, or correct `{setting}`",
            found.display()
        );
        return Err(Wrong::at(path.span(), what));
    }
    Ok(found)
}
