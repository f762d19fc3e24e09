// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which parts of files are taken to be in memory: those that were brought or sent a short time ago (2.5.4).

use crate::files::{File, FileId};
use crate::kept::Kept;
use crate::residency::{Ready, BROUGHT, SENT};

const PIECE: u64 = 64 << 10;
/// What a helper brings at once has to have room.
const FEWEST: usize = 4 * (BROUGHT / PIECE) as usize;

pub struct Pieces(Kept<(FileId, u64), ()>);

impl Pieces {
    /// `memory`: bytes of files.
    pub fn new(memory: u64) -> Pieces {
        let most = usize::try_from(memory / PIECE).unwrap_or(usize::MAX);
        Pieces(Kept::new(most.max(FEWEST)))
    }

    /// As [`crate::residency::look`], without asking the kernel.
    pub fn look(&mut self, file: &File, begin: u64, end: u64, was_brought: bool) -> Ready {
        if was_brought {
            let brought = end.min(begin + BROUGHT);
            for piece in begin / PIECE..brought.div_ceil(PIECE) {
                self.0.keep((file.id, piece), ());
            }
        }
        let mut known = begin;
        while known < end.min(begin + SENT) && self.0.get(&(file.id, known / PIECE)).is_some() {
            known = (known / PIECE + 1) * PIECE;
        }
        match known.min(end).saturating_sub(begin) {
            0 => Ready::Absent,
            length => Ready::Resident(length.min(SENT)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Lookup, Root};

    #[test]
    fn what_was_brought_is_taken_to_be_there_until_there_is_too_much() {
        let place = tempfile::tempdir().expect("a directory");
        std::fs::write(place.path().join("a"), "").expect("room");
        let root = Root::open(place.path()).expect("it is there");
        let Lookup::Found(file) = root.open_waiting(b"a") else {
            panic!("it is there");
        };
        let mut pieces = Pieces::new(0);
        let end = 10 << 20;
        assert_eq!(pieces.look(&file, 0, end, false), Ready::Absent);
        assert_eq!(pieces.look(&file, 0, end, true), Ready::Resident(SENT));
        // From the middle of a piece to the end of what was brought.
        let last = BROUGHT - 1000;
        assert_eq!(pieces.look(&file, last, end, false), Ready::Resident(1000));
        assert_eq!(pieces.look(&file, BROUGHT, end, false), Ready::Absent);
        assert_eq!(pieces.look(&file, 0, 100, false), Ready::Resident(100));
        for begin in (0..8).map(|number| (1 << 30) + number * BROUGHT) {
            pieces.look(&file, begin, begin + BROUGHT, true);
        }
        assert_eq!(pieces.look(&file, last, end, false), Ready::Absent);
        assert!(pieces.0.len() <= FEWEST);
    }
}
