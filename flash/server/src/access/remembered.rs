// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passwords that were right a short time ago, so not each request has to wait for a check. Each loop has its own.
//!
//! A password itself is not kept, but a keyed hash of it; the key is the loop's own and is nowhere else.

use std::collections::HashMap;

use ring::hmac::{self, Key, Tag};
use ring::rand::SystemRandom;

use crate::http::credentials::Credentials;

/// Users of one file. Beyond it, who was remembered first is forgotten.
const MOST: usize = 1024;

pub struct Remembered {
    key: Key,
    keep_ms: u64,
    /// By the file's version, of which there is one for each file in use.
    by_version: HashMap<u64, HashMap<String, Entry>>,
}

struct Entry {
    tag: Tag,
    until: u64,
}

impl Remembered {
    /// `keep_ms`: for so long after a check. 0: nothing is remembered.
    ///
    /// # Errors
    ///
    /// The system has no random numbers.
    pub fn new(keep_ms: u64) -> anyhow::Result<Remembered> {
        let key = Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        Ok(Remembered {
            key: key.map_err(|_| anyhow::anyhow!("the system has no random numbers"))?,
            keep_ms,
            by_version: HashMap::new(),
        })
    }

    /// `version`: of the file as it is now. Compares in constant time.
    pub fn knows(&self, version: u64, credentials: &Credentials, now: u64) -> bool {
        let users = self.by_version.get(&version);
        let entry = users.and_then(|users| users.get(&credentials.user));
        let current = entry.filter(|entry| now < entry.until);
        current.is_some_and(|entry| {
            let text = text(version, credentials);
            hmac::verify(&self.key, &text, entry.tag.as_ref()).is_ok()
        })
    }

    pub fn add(&mut self, version: u64, credentials: &Credentials, now: u64) {
        if self.keep_ms == 0 {
            return;
        }
        let users = self.by_version.entry(version).or_default();
        if users.len() >= MOST && !users.contains_key(&credentials.user) {
            let oldest = users.iter().min_by_key(|(_, entry)| entry.until);
            if let Some(oldest) = oldest.map(|(user, _)| user.clone()) {
                users.remove(&oldest);
            }
        }
        let entry = Entry {
            tag: hmac::sign(&self.key, &text(version, credentials)),
            until: now + self.keep_ms,
        };
        users.insert(credentials.user.clone(), entry);
    }

    /// Forgets who was in files that have been read again since.
    pub fn retain(&mut self, is_current: impl Fn(u64) -> bool) {
        self.by_version.retain(|version, _| is_current(*version));
    }
}

/// A name has no zero byte, so no two texts are the same.
fn text(version: u64, credentials: &Credentials) -> Vec<u8> {
    let version = version.to_le_bytes();
    let parts = [
        &version,
        credentials.user.as_bytes(),
        b"\0",
        &credentials.password,
    ];
    parts.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(user: &str, password: &str) -> Credentials {
        Credentials {
            user: user.to_string(),
            password: password.into(),
        }
    }

    #[test]
    fn a_right_password_is_known_for_its_time_and_its_version() {
        let mut remembered = Remembered::new(100).expect("random numbers");
        let ann = credentials("ann", "secret");
        remembered.add(1, &ann, 50);
        assert!(remembered.knows(1, &ann, 149));
        assert!(!remembered.knows(1, &ann, 150));
        assert!(!remembered.knows(2, &ann, 50));
        assert!(!remembered.knows(1, &credentials("ann", "Secret"), 50));
        assert!(!remembered.knows(1, &credentials("bob", "secret"), 50));
        remembered.retain(|version| version != 1);
        assert!(!remembered.knows(1, &ann, 50));
        let mut never = Remembered::new(0).expect("random numbers");
        never.add(1, &ann, 50);
        assert!(!never.knows(1, &ann, 50));
    }

    #[test]
    fn the_number_is_bounded() {
        let mut remembered = Remembered::new(1_000_000).expect("random numbers");
        let user = |number: usize| credentials(&number.to_string(), "secret");
        for number in 0..MOST + 10 {
            remembered.add(1, &user(number), number as u64);
        }
        assert_eq!(remembered.by_version[&1].len(), MOST);
        let now = (MOST + 10) as u64;
        assert!(!remembered.knows(1, &user(0), now));
        assert!(remembered.knows(1, &user(MOST + 9), now));
    }
}
