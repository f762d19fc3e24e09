// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of users and hashes, as Apache's `htpasswd` writes them.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use anyhow::{bail, Context, Result};

use super::hashes::Hash;
use crate::http::credentials::Credentials;

/// Bytes of a file.
const MAX_SIZE: u64 = 16 << 20;

/// Distinguishes the users of a file from those of other files, and from those that are read later.
static VERSIONS: AtomicU64 = AtomicU64::new(0);

/// What was in a file.
pub struct Users {
    by_name: HashMap<String, usize>,
    hashes: Vec<Hash>,
    /// Chooses the hash that is computed for a name that is not there.
    decoys: RandomState,
    pub version: u64,
}

/// A file, with its users as they were when the configuration was loaded.
pub struct UserFile {
    path: PathBuf,
    pub users: Arc<Users>,
}

impl Users {
    /// # Errors
    ///
    /// A line is wrong; the error has its number.
    pub fn parse(text: &str) -> Result<Users, String> {
        let mut users = Users {
            by_name: HashMap::new(),
            hashes: Vec::new(),
            decoys: RandomState::new(),
            version: VERSIONS.fetch_add(1, Ordering::Relaxed),
        };
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why: &str| format!("line {number}: {why}");
            let Some((name, rest)) = line.split_once(':') else {
                return Err(wrong("there is no colon: a line is `user:hash`"));
            };
            if name.is_empty() || name.chars().any(char::is_control) {
                return Err(wrong("there is no name of a user before the colon"));
            }
            // Some programs write a remark behind the hash.
            let hash = rest.split(':').next().unwrap_or_default();
            let hash = Hash::parse(hash).map_err(|why| wrong(&why))?;
            let at = users.hashes.len();
            if users.by_name.insert(name.to_string(), at).is_some() {
                return Err(wrong("the user has a line already: remove one"));
            }
            users.hashes.push(hash);
        }
        Ok(users)
    }

    fn are_those_of(&self, other: &Users) -> bool {
        self.by_name == other.by_name && self.hashes == other.hashes
    }

    /// Takes as long for a name that is not there: then the hash of another user is computed, always the same one for
    /// a name.
    pub fn check(&self, credentials: &Credentials) -> bool {
        let known = self.by_name.get(&credentials.user).copied();
        let at = known.or_else(|| {
            let count = self.hashes.len() as u64;
            let decoy = self.decoys.hash_one(&credentials.user).checked_rem(count);
            decoy.and_then(|decoy| usize::try_from(decoy).ok())
        });
        let Some(hash) = at.and_then(|at| self.hashes.get(at)) else {
            return false;
        };
        let is_right = hash.is_of(&credentials.password);
        is_right && known.is_some()
    }
}

impl UserFile {
    /// `before`: the files of the earlier configuration. The users of one that has not changed are the same, with their
    /// version.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not valid; the error names it.
    pub fn open(path: &Path, before: &[Arc<UserFile>]) -> Result<UserFile> {
        let users = load(path)?;
        let same = before.iter().find(|file| file.path == path);
        let same = same.filter(|file| file.users.are_those_of(&users));
        Ok(UserFile {
            path: path.to_path_buf(),
            users: same.map_or_else(|| Arc::new(users), |file| Arc::clone(&file.users)),
        })
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Users({})", self.hashes.len())
    }
}

fn load(path: &Path) -> Result<Users> {
    let name = path.display();
    let about = std::fs::metadata(path);
    let about = about.with_context(|| format!("cannot read the users in {name}"))?;
    if !about.is_file() || about.len() > MAX_SIZE {
        let most = kit_units::bytes(MAX_SIZE);
        bail!("the users in {name}: this is no file of at most {most}");
    }
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("cannot read the users in {name}"))?;
    Users::parse(&text).map_err(|why| anyhow::anyhow!("{name}, {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HASH: &str = "$5$abcdefgh$4PbtPZdUc33o7LmNsM4HTsjYbIhyCeh4aCe.rEbHkq1";

    fn credentials(user: &str, password: &str) -> Credentials {
        Credentials {
            user: user.to_string(),
            password: password.into(),
        }
    }

    #[test]
    fn users_are_known_by_name_and_password() {
        let text = format!("# staff\n\nann:{HASH}\r\nJohn Doe:{HASH}:a remark\n");
        let users = Users::parse(&text).expect("it is fine");
        for (user, password, is_right) in [
            ("ann", "sesame", true),
            ("John Doe", "sesame", true),
            ("ann", "other", false),
            ("Ann", "sesame", false),
            ("", "sesame", false),
            ("# staff", "sesame", false),
        ] {
            assert_eq!(
                users.check(&credentials(user, password)),
                is_right,
                "{user}"
            );
        }
        let none = Users::parse("").expect("no users");
        assert!(!none.check(&credentials("ann", "sesame")));
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, why) in [
            (format!("ann:{HASH}\nbob"), "line 2: there is no colon"),
            (format!("\n:{HASH}"), "line 2: there is no name"),
            (
                format!("a:{HASH}\nb:{HASH}\na:{HASH}"),
                "line 3: the user has",
            ),
            ("a:secret".to_string(), "line 1: the password is plain text"),
        ] {
            let found = Users::parse(&text).expect_err("it is wrong");
            assert!(found.starts_with(why), "{found}");
            assert!(!found.contains("secret"), "{found}");
        }
    }

    #[test]
    fn users_that_have_not_changed_keep_their_version() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("users");
        let text = format!("ann:{HASH}");
        std::fs::write(&path, &text).expect("room");
        let file = Arc::new(UserFile::open(&path, &[]).expect("it is fine"));
        let again = || UserFile::open(&path, std::slice::from_ref(&file));
        std::fs::write(&path, format!("# staff\n{text}\n")).expect("room");
        assert_eq!(
            again().expect("it is fine").users.version,
            file.users.version
        );
        for changed in [
            "".to_string(),
            format!("bob:{HASH}"),
            format!("{text}\nbob:{HASH}"),
        ] {
            std::fs::write(&path, changed).expect("room");
            assert_ne!(
                again().expect("it is fine").users.version,
                file.users.version
            );
        }
        std::fs::write(&path, "ann:secret").expect("room");
        let error = format!("{:#}", again().err().expect("it is wrong"));
        assert!(error.contains("users, line 1"), "{error}");
    }

    proptest! {
        #[test]
        fn any_file_is_read(text in "([a-z#:]{0,4}(\\$5\\$)?\\PC{0,10}\n){0,8}") {
            let _ = Users::parse(&text);
        }
    }
}
