// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is asked for a password, and how passwords are checked, as the configuration writes it.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::values::{Number, Time, Wrong};
use crate::access::{passwords, AuthSettings};

/// `auth = { realm = "staff", users = "staff.htpasswd" }`, or `auth = false`.
#[derive(Debug)]
pub(super) enum SaidOfAuth {
    Off,
    On(Basic),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Basic {
    #[serde(default)]
    realm: Realm,
    users: Spanned<PathBuf>,
}

#[derive(Debug)]
struct Realm(String);

impl Default for Realm {
    fn default() -> Realm {
        Realm("restricted".to_string())
    }
}

impl<'de> Deserialize<'de> for Realm {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Realm, D::Error> {
        let text = String::deserialize(from)?;
        let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !b"\"\\".contains(&byte);
        match text.bytes().all(is_plain) {
            true => Ok(Realm(text)),
            false => Err(D::Error::custom(
                "`realm` is printable ASCII, without quotes and backslashes",
            )),
        }
    }
}

impl<'de> Deserialize<'de> for SaidOfAuth {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<SaidOfAuth, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = SaidOfAuth;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("{ realm = \"staff\", users = FILE }, or false")
            }

            fn visit_bool<E: Error>(self, is_on: bool) -> Result<SaidOfAuth, E> {
                match is_on {
                    false => Ok(SaidOfAuth::Off),
                    true => Err(E::custom("name a file: auth = { users = FILE }")),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SaidOfAuth, A::Error> {
                Basic::deserialize(MapAccessDeserializer::new(map)).map(SaidOfAuth::On)
            }
        }

        from.deserialize_any(Either)
    }
}

/// What is not said is as in `whole`.
pub(super) fn over(
    said: &Option<SaidOfAuth>,
    whole: Option<&AuthSettings>,
    directory: &Path,
) -> Result<Option<AuthSettings>, Wrong> {
    let basic = match said {
        None => return Ok(whole.cloned()),
        Some(SaidOfAuth::Off) => return Ok(None),
        Some(SaidOfAuth::On(basic)) => basic,
    };
    let file = directory.join(basic.users.get_ref());
    if !file.is_file() {
        let what = format!(
            "there is no file {}: make it with `htpasswd -cB FILE USER`",
            file.display()
        );
        return Err(Wrong::at(basic.users.span(), what));
    }
    let realm = basic.realm.0.clone();
    Ok(Some(AuthSettings { realm, file }))
}

/// How passwords are checked, of all servers.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Passwords {
    threads: Option<Number<1, 64>>,
    queue: Option<Number<1, 4096>>,
    per_client: Option<Number<1, 1024>>,
    remember: Option<Time>,
}

impl Passwords {
    pub fn over(&self, usual: passwords::Settings) -> passwords::Settings {
        let remember = self.remember.map(|time| time.0.as_millis());
        passwords::Settings {
            threads: self.threads.map_or(usual.threads, |number| number.0),
            queue: self.queue.map_or(usual.queue, |number| number.0),
            per_client: self.per_client.map_or(usual.per_client, |number| number.0),
            remember_ms: remember.map_or(usual.remember_ms, |ms| {
                u64::try_from(ms).unwrap_or(u64::MAX)
            }),
        }
    }
}
