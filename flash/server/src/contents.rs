// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of files that helpers have read on file systems that do not tell what is in memory, as overlayfs: a loop keeps them
//! for a second, so that a file that is asked for often is not a helper's work each time.

use std::sync::Arc;

use crate::files::{File, FileId};
use crate::kept::Kept;

/// Bytes that a helper reads at once.
pub const PART: u64 = 128 << 10;
/// In milliseconds: then the part is read again, as some file systems change bytes and leave the file's times as they were.
const BELIEVED: u64 = 1000;
/// A file that has changed in the last seconds may change again without its times showing it: they are coarse.
const SETTLED: u64 = 2;
/// What a part takes beside its bytes.
const OVERHEAD: usize = 200;
/// A file can have so many of the loop's bytes, so a long one does not drive out all others.
const SHARE: u64 = 8;

/// Which part of which state of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    file: FileId,
    size: u64,
    changed: (i64, u32),
    begin: u64,
}

struct Part {
    bytes: Arc<[u8]>,
    /// In the loop's milliseconds.
    read: u64,
}

/// Of one loop.
pub struct Contents {
    kept: Kept<Key, Part>,
    most: u64,
}

/// A part that is kept, and where in it the bytes are that were asked for.
pub struct Found {
    pub bytes: Arc<[u8]>,
    pub from: usize,
}

impl Contents {
    /// `most`: bytes.
    pub fn new(most: u64) -> Contents {
        Contents {
            kept: Kept::new(usize::try_from(most).unwrap_or(usize::MAX)),
            most,
        }
    }

    /// A helper has read these bytes of a file, just now. `second`: since 1970.
    pub fn keep(&mut self, file: &File, begin: u64, bytes: &Arc<[u8]>, now: u64, second: u64) {
        let whole = PART.min(file.size.saturating_sub(begin));
        let is_part = begin.is_multiple_of(PART) && bytes.len() as u64 == whole && whole > 0;
        let is_settled = file.changed.0.saturating_add_unsigned(SETTLED) <= second.cast_signed();
        if is_part && is_settled && file.size <= self.most / SHARE {
            let part = Part {
                bytes: Arc::clone(bytes),
                read: now,
            };
            let weight = bytes.len() + OVERHEAD;
            self.kept.keep_heavy(key(file, begin), part, weight);
        }
    }

    /// What is kept of a file from `begin` on.
    pub fn find(&mut self, file: &File, begin: u64, now: u64) -> Option<Found> {
        let key = key(file, begin / PART * PART);
        let part = self.kept.get(&key)?;
        if now >= part.read + BELIEVED {
            self.kept.remove(&key);
            return None;
        }
        let from = usize::try_from(begin % PART).ok()?;
        (from < part.bytes.len()).then(|| Found {
            bytes: Arc::clone(&part.bytes),
            from,
        })
    }

    /// Forgets what has not been used since the last call.
    pub fn turn(&mut self) {
        self.kept.turn();
    }

    pub fn is_empty(&self) -> bool {
        self.kept.len() == 0
    }
}

fn key(file: &File, begin: u64) -> Key {
    Key {
        file: file.id,
        size: file.size,
        changed: file.changed,
        begin,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Lookup, Root};

    fn open(root: &Root, name: &str) -> Arc<File> {
        match root.open_waiting(name.as_bytes()) {
            Lookup::Found(file) => file,
            _ => panic!("{name} is there"),
        }
    }

    #[test]
    fn a_part_is_kept_for_a_second_and_for_the_same_state_of_its_file() {
        let place = tempfile::tempdir().expect("a directory");
        let size = PART + 1000;
        std::fs::write(place.path().join("a"), vec![7; size as usize]).expect("room");
        let root = Root::open(place.path()).expect("it is there");
        let file = open(&root, "a");
        let second = file.changed.0.cast_unsigned() + SETTLED;
        let first: Arc<[u8]> = vec![7; PART as usize].into();
        let last: Arc<[u8]> = vec![7; 1000].into();

        let mut contents = Contents::new(8 * size);
        contents.keep(&file, 0, &first, 5000, second - 1);
        assert!(contents.is_empty(), "it has changed just now");
        contents.keep(&file, 0, &last, 5000, second);
        contents.keep(&file, 1000, &last, 5000, second);
        contents.keep(&file, size, &Vec::new().into(), 5000, second);
        assert!(contents.is_empty(), "no whole parts");
        contents.keep(&file, 0, &first, 5000, second);
        contents.keep(&file, PART, &last, 5000, second);
        let from = |found: Option<Found>| found.map(|found| (found.from, found.bytes.len()));
        assert_eq!(
            from(contents.find(&file, 100, 5999)),
            Some((100, first.len()))
        );
        assert_eq!(
            from(contents.find(&file, PART + 999, 5999)),
            Some((999, 1000))
        );
        assert_eq!(from(contents.find(&file, size, 5999)), None);
        assert_eq!(from(contents.find(&file, 0, 6000)), None, "it is too old");

        contents.keep(&file, 0, &first, 6000, second);
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::write(place.path().join("a"), vec![8; size as usize]).expect("room");
        let changed = open(&root, "a");
        assert_eq!(from(contents.find(&changed, 0, 6000)), None);
        assert!(contents.find(&file, 0, 6000).is_some());
        contents.turn();
        contents.turn();
        assert!(contents.is_empty());

        let mut small = Contents::new(8 * size - 1);
        small.keep(&file, 0, &first, 5000, second);
        assert!(small.is_empty(), "it would have too much of the room");
        let mut none = Contents::new(0);
        none.keep(&file, PART, &last, 5000, second);
        assert!(none.is_empty());
    }
}
