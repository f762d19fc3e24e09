// SPDX-License-Identifier: MIT OR Apache-2.0
//! One check of a password.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::Arc;

use super::users::Users;
use crate::http::credentials::Credentials;

/// What is to be checked. While it exists, it counts for its client.
pub struct Check {
    pub users: Arc<Users>,
    pub credentials: Credentials,
    pub(super) place: Place,
}

/// One of those that a client may have at once.
pub(super) struct Place {
    pub places: Arc<[AtomicU16]>,
    pub at: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places[self.at].fetch_sub(1, Ordering::Relaxed);
    }
}

impl Check {
    /// The credentials come back: they are remembered if they were right.
    pub fn run(self) -> Checked {
        let is_right = self.users.check(&self.credentials);
        drop(self.place);
        Checked {
            is_right,
            version: self.users.version,
            credentials: self.credentials,
        }
    }
}

pub struct Checked {
    pub is_right: bool,
    /// Of the users that were asked.
    pub version: u64,
    pub credentials: Credentials,
}
