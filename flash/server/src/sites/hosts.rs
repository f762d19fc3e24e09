// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which virtual host of an address a request is for, and which of its locations.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{bail, Result};

use super::rules::{Location, Rules, VirtualHost};

/// Sorted as they are looked at.
pub(super) type Locations = Vec<Place>;

/// Where rules hold.
#[derive(Clone)]
pub(super) struct Place {
    /// Without slashes at its ends.
    prefix: Vec<u8>,
    is_exact: bool,
    endings: Vec<String>,
    rules: Arc<Rules>,
}

impl Place {
    pub fn of(location: &Location, rules: Arc<Rules>) -> Place {
        Place {
            prefix: location.path.trim_matches('/').as_bytes().to_vec(),
            is_exact: location.is_exact,
            endings: location.endings.clone(),
            rules,
        }
    }

    fn has(&self, path: &[u8]) -> bool {
        let is_in = match self.is_exact {
            true => path == self.prefix,
            false => is_below(path, &self.prefix),
        };
        is_in && (self.endings.is_empty() || self.endings.iter().any(|end| ends(path, end)))
    }
}

/// The longest path first. Of the same path, what is for less of it.
pub(super) fn sort(locations: &mut Locations) {
    locations.sort_by_key(|place| {
        let length = std::cmp::Reverse(place.prefix.len());
        (length, !place.is_exact, place.endings.is_empty())
    });
}

/// The names in a path.
pub(super) fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

/// The virtual hosts of one address.
#[derive(Default)]
pub struct Hosts {
    pub(super) locations: Vec<Locations>,
    exact: HashMap<String, usize>,
    /// `.example.org`, the longest first.
    below: Vec<(String, usize)>,
}

impl Hosts {
    /// Of all locations.
    pub(super) fn rules(&self) -> impl Iterator<Item = &Arc<Rules>> {
        self.locations.iter().flatten().map(|place| &place.rules)
    }

    pub(super) fn add(&mut self, host: &VirtualHost, locations: Locations) -> Result<()> {
        let number = self.locations.len();
        self.locations.push(locations);
        for name in &host.names {
            let is_new = match name.strip_prefix('*') {
                None => self.exact.insert(name.clone(), number).is_none(),
                Some(end) => {
                    let is_new = self.below.iter().all(|(its, _)| its != end);
                    self.below.push((end.to_string(), number));
                    is_new
                }
            };
            if !is_new {
                bail!("two servers have the name {name} at one address");
            }
        }
        self.below
            .sort_by_key(|(end, _)| std::cmp::Reverse(end.len()));
        Ok(())
    }

    /// `host`: in lower case, without a port. A name that no host has is the first host's.
    pub fn find(&self, host: &str, path: &[u8]) -> Option<&Arc<Rules>> {
        let wild = || {
            let mut below = self.below.iter();
            below.find(|(end, _)| host.len() > end.len() && host.ends_with(end.as_str()))
        };
        let number = match self.exact.get(host) {
            Some(number) => *number,
            None => wild().map_or(0, |(_, number)| *number),
        };
        let mut locations = self.locations.get(number)?.iter();
        let place = locations.find(|place| place.has(path))?;
        Some(&place.rules)
    }
}

fn is_below(path: &[u8], prefix: &[u8]) -> bool {
    match path.strip_prefix(prefix) {
        Some(rest) => prefix.is_empty() || rest.is_empty() || rest.starts_with(b"/"),
        None => false,
    }
}

/// `ending`: in lower case.
fn ends(path: &[u8], ending: &str) -> bool {
    let begin = path.len().checked_sub(ending.len());
    begin.is_some_and(|begin| path[begin..].eq_ignore_ascii_case(ending.as_bytes()))
}
