// SPDX-License-Identifier: MIT OR Apache-2.0
//! What counts on from one configuration to the next.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use ring::hmac;

use crate::access::remembered;
use crate::context::Reloads;
use crate::counts::Counts;
use crate::descriptors::Spare;
use crate::helpers;

/// What counts on from one configuration to the next.
pub struct Tally {
    pub password_key: hmac::Key,
    /// By the numbers of loops.
    pub loops: Vec<Arc<Counts>>,
    /// Of helpers, by device and by whether they are for missing names.
    helpers: Mutex<HashMap<(String, bool), Arc<helpers::Counts>>>,
    pub passwords: Arc<helpers::Counts>,
    pub reloads: Arc<Reloads>,
    pub spare: Arc<Spare>,
}

impl Tally {
    /// # Errors
    ///
    /// The system has no random numbers.
    pub fn new() -> Result<Tally> {
        Ok(Tally {
            password_key: remembered::new_key()?,
            loops: Vec::new(),
            helpers: Mutex::default(),
            passwords: Arc::default(),
            reloads: Arc::default(),
            spare: Arc::default(),
        })
    }

    pub fn of_helpers(&self, device: &str, is_for_missing: bool) -> Arc<helpers::Counts> {
        let mut known = self.helpers.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (device.to_string(), is_for_missing);
        Arc::clone(known.entry(name).or_default())
    }

    pub fn make_room(&mut self, loops: usize) {
        while self.loops.len() < loops.max(1) {
            self.loops.push(Arc::default());
        }
    }
}
