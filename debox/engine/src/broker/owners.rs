//! Maps user ids to their owners: subordinate user ids count for the user to whom the system assigned
//! them.
//!
//! The owner of a range of ids (`/etc/subuid`, for unprivileged containers) can appear as many users.
//! Limits are counted by owner; what users may see is decided by their own ids. Only the files are
//! read: other sources of users can take long.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const USERS: &str = "/etc/passwd";
/// The most ranges that are read from the file.
const RANGES_MAX: usize = 65536;

pub struct Owners {
    file: PathBuf,
    changed: [Option<SystemTime>; 2],
    ranges: Vec<Range>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    first: u32,
    count: u32,
    owner: u32,
}

impl Owners {
    pub fn of(file: &Path) -> Owners {
        let mut owners = Owners {
            file: file.to_path_buf(),
            changed: [None; 2],
            ranges: Vec::new(),
        };
        owners.refresh();
        owners
    }

    /// Reads the files again if they have changed.
    pub fn refresh(&mut self) {
        let changed = [&self.file, Path::new(USERS)].map(|file| {
            let status = fs::metadata(file).ok()?;
            status.modified().ok()
        });
        if changed == self.changed {
            return;
        }
        self.changed = changed;
        let users = fs::read_to_string(USERS).unwrap_or_default();
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        self.ranges = ranges(&text, &users);
    }

    /// Parses the texts of both files.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn read(ranges_of: &str, users: &str) -> Owners {
        Owners {
            file: PathBuf::new(),
            changed: [None; 2],
            ranges: ranges(ranges_of, users),
        }
    }

    pub fn owner(&self, uid: u32) -> u32 {
        // User 0 of the machine is never another user's subordinate.
        let found = self.ranges.iter().find(|range| {
            uid != 0
                && uid
                    .checked_sub(range.first)
                    .is_some_and(|at| at < range.count)
        });
        found.map_or(uid, |range| range.owner)
    }
}

/// Parses lines such as `name:100000:65536`, or with a number instead of the name.
fn ranges(text: &str, users: &str) -> Vec<Range> {
    let range = |line: &str| {
        let mut fields = line.trim().split(':');
        let (name, first, count) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Range {
            first: first.parse().ok()?,
            count: count.parse().ok()?,
            owner: number_of(users, name).or_else(|| name.parse().ok())?,
        })
    };
    text.lines().filter_map(range).take(RANGES_MAX).collect()
}

fn number_of(users: &str, name: &str) -> Option<u32> {
    let of_line = |line: &str| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
    };
    users.lines().find_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outside;
    use proptest::prelude::*;

    const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n";

    #[test]
    fn a_range_counts_for_its_owner() {
        let text = "ann:100000:65536\n1001:165536:65536\nnone:300000:9\n\nodd:x:y\n:::\n7:1\n";
        let owners = Owners::read(text, PASSWD);
        assert_eq!(owners.ranges.len(), 2);
        for (uid, owner) in [
            (0, 0),
            (1000, 1000),
            (99_999, 99_999),
            (100_000, 1000),
            (165_535, 1000),
            (165_536, 1001),
            (231_072, 231_072),
            (300_000, 300_000),
            (u32::MAX, u32::MAX),
        ] {
            assert_eq!(owners.owner(uid), owner, "{uid}");
        }
    }

    #[test]
    fn a_file_that_changes_is_read_again() {
        let file = std::env::temp_dir().join(format!("debox-subuid-{}", std::process::id()));
        let mut owners = Owners::of(&file);
        assert_eq!(owners.owner(100_000), 100_000);
        fs::write(&file, "1000:100000:1\n0:0:4294967295\n").unwrap();
        owners.refresh();
        assert_eq!(owners.owner(100_000), 1000);
        assert_eq!(owners.owner(0), 0);
        fs::remove_file(&file).unwrap();
        owners.refresh();
        assert_eq!(owners.owner(100_000), 100_000);
    }

    proptest! {
        #[test]
        fn any_files_give_each_user_one_owner(
            ranges in "([a-c0-9:]{0,12}\n?){0,4}", users in "([a-c0-9:]{0,12}\n?){0,4}",
        ) {
            outside::subordinates(format!("{ranges}\0{users}").as_bytes());
        }
    }
}
