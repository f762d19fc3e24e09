// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which files helpers read just now. The kernel has pages in its cache as soon as it begins to read them, and
//! `cachestat` counts them, but their bytes are not there yet: `sendfile` would wait for the disk.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::files::FileId;

/// Files with the same place count as one: bytes are copied then that could have been sent without.
const PLACES: usize = 4096;

static READS: [AtomicU32; PLACES] = [const { AtomicU32::new(0) }; PLACES];

/// A read of a file, from the moment when a helper is asked for it until it is done.
pub struct Reading(usize);

impl Reading {
    pub fn begin(file: FileId) -> Reading {
        let place = place(file);
        READS[place].fetch_add(1, Ordering::AcqRel);
        Reading(place)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        READS[self.0].fetch_sub(1, Ordering::AcqRel);
    }
}

/// Also true, seldom, if it is another file.
pub fn is_read(file: FileId) -> bool {
    READS[place(file)].load(Ordering::Acquire) > 0
}

fn place(file: FileId) -> usize {
    let mixed = (file.inode ^ file.device.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 52) as usize % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_until_all_reads_are_done() {
        let file = FileId {
            device: 77,
            inode: 123_456_789,
        };
        let (first, second) = (Reading::begin(file), Reading::begin(file));
        drop(first);
        assert!(is_read(file));
        drop(second);
        assert!(!is_read(file));
    }
}
