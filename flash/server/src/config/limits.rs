// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of clients and of connections, as the configuration writes them.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::access::Network;
use super::values::{Number, Wrong};
use crate::access::limits::{Rate, Settings};

/// Bytes per second.
const SLOWEST: u64 = 1 << 10;
const FASTEST: u64 = 1 << 40;

/// What each client may do, of all servers.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    connections: Option<Number<1, 65_535>>,
    new_connections: Option<Number<1, 1_000_000>>,
    requests: Option<Number<1, 1_000_000>>,
    request_burst: Option<Number<1, 1_000_000>>,
    #[serde(default)]
    exempt: Vec<Network>,
    clients: Option<Number<1024, 16_777_216>>,
}

impl Limits {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        if self.request_burst.is_some() && self.requests.is_none() {
            let what =
                "`limits.request_burst` says how far above `requests` a client may be: set it, too";
            return Err(Wrong {
                at: None,
                what: what.to_string(),
            });
        }
        Ok(())
    }

    pub fn settings(&self) -> Settings {
        let whole = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let rate = |rate: usize, burst: usize| Rate {
            per_second: whole(rate),
            burst: whole(burst),
        };
        let usual = Settings::default();
        Settings {
            connections: self
                .connections
                .map(|most| u16::try_from(most.0).unwrap_or(u16::MAX)),
            new_connections: self.new_connections.map(|most| rate(most.0, most.0)),
            requests: self.requests.map(|most| {
                let burst = self.request_burst.map_or(most.0, |burst| burst.0);
                rate(most.0, burst)
            }),
            exempt: self.exempt.iter().map(|network| network.0).collect(),
            clients: self.clients.map_or(usual.clients, |number| number.0),
        }
    }
}

/// Bytes per second of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Speed(pub u64);

impl<'de> Deserialize<'de> for Speed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Speed, D::Error> {
        let text = String::deserialize(from)?;
        let speed = kit_units::parse_size(&text)
            .map_err(|why| D::Error::custom(format!("`{text}` is no size: {why}")))?;
        match speed {
            SLOWEST..=FASTEST => Ok(Speed(speed)),
            _ => Err(D::Error::custom(
                "the bytes per second must be from 1K to 1T",
            )),
        }
    }
}
