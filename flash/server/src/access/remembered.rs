// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passwords that were right a short time ago, so not each request has to wait for a check. Each loop has its own, and
//! gives them to a loop of the next configuration.
//!
//! A password itself is not kept, but a keyed hash of it; the key is this process's own and is nowhere else.

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

/// The key of all loops.
///
/// # Errors
///
/// The system has no random numbers.
pub fn new_key() -> anyhow::Result<Key> {
    let key = Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
    key.map_err(|_| anyhow::anyhow!("the system has no random numbers"))
}

impl Remembered {
    /// `keep_ms`: for so long after a check. 0: nothing is remembered.
    pub fn new(key: Key, keep_ms: u64) -> Remembered {
        Remembered {
            key,
            keep_ms,
            by_version: HashMap::new(),
        }
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
        let tag = hmac::sign(&self.key, &text(version, credentials));
        let until = now + self.keep_ms;
        self.put(version, credentials.user.clone(), Entry { tag, until });
    }

    fn put(&mut self, version: u64, user: String, entry: Entry) {
        let users = self.by_version.entry(version).or_default();
        if users.len() >= MOST && !users.contains_key(&user) {
            let oldest = users.iter().min_by_key(|(_, entry)| entry.until);
            if let Some(oldest) = oldest.map(|(user, _)| user.clone()) {
                users.remove(&oldest);
            }
        }
        users.insert(user, entry);
    }

    /// All that is remembered, for another loop. Nothing is left.
    pub fn give(&mut self) -> Remembered {
        let left = Remembered::new(self.key.clone(), self.keep_ms);
        std::mem::replace(self, left)
    }

    /// What another loop has given, for the files that are the same under this configuration.
    pub fn take(&mut self, given: Remembered, now: u64, is_current: impl Fn(u64) -> bool) {
        let current = given.by_version.into_iter();
        for (version, users) in current.filter(|(version, _)| is_current(*version)) {
            for (user, mut entry) in users {
                entry.until = entry.until.min(now + self.keep_ms);
                if entry.until > now {
                    self.put(version, user, entry);
                }
            }
        }
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
        let mut remembered = Remembered::new(new_key().expect("random numbers"), 100);
        let ann = credentials("ann", "secret");
        remembered.add(1, &ann, 50);
        assert!(remembered.knows(1, &ann, 149));
        assert!(!remembered.knows(1, &ann, 150));
        assert!(!remembered.knows(2, &ann, 50));
        assert!(!remembered.knows(1, &credentials("ann", "Secret"), 50));
        assert!(!remembered.knows(1, &credentials("bob", "secret"), 50));
        let mut never = Remembered::new(new_key().expect("random numbers"), 0);
        never.add(1, &ann, 50);
        assert!(!never.knows(1, &ann, 50));
    }

    #[test]
    fn the_next_configuration_knows_whose_files_are_the_same() {
        let key = new_key().expect("random numbers");
        let mut remembered = Remembered::new(key.clone(), 100);
        let ann = credentials("ann", "secret");
        remembered.add(1, &ann, 50);
        remembered.add(2, &ann, 50);
        let mut next = Remembered::new(key.clone(), 20);
        next.take(remembered.give(), 60, |version| version == 1);
        assert!(!remembered.knows(1, &ann, 60));
        assert!(next.knows(1, &ann, 79));
        assert!(!next.knows(1, &ann, 80));
        assert!(!next.knows(2, &ann, 60));
        let mut never = Remembered::new(key, 0);
        never.take(next.give(), 60, |_| true);
        assert!(!never.knows(1, &ann, 60));
    }

    #[test]
    fn the_number_is_bounded() {
        let mut remembered = Remembered::new(new_key().expect("random numbers"), 1_000_000);
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
