// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a call sleeps.

use crate::tables::{types, CALL_NONE, CALL_UNTAPPED};

/// A place of sleep: what the label, the resource and the owners of a sleep are looked up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct SleepPlace {
    /// Name of the kernel stack; 0: it was not captured.
    pub stack: u64,
    pub call: u32,
    /// The kind of kernel lock, which is not in the stack (`LOCK_*` in [`crate::tables`]).
    pub lock_flags: u32,
}

impl SleepPlace {
    /// The same place, with the number of the call as the kernel tap knows it.
    pub fn tapped(self) -> SleepPlace {
        SleepPlace {
            call: tapped(self.call),
            ..self
        }
    }

    pub fn is_untapped(self) -> bool {
        is_untapped(self.call)
    }
}

/// The call's number, whether the user tap saw it or not.
pub(crate) fn tapped(call: u32) -> u32 {
    if is_untapped(call) {
        call & !CALL_UNTAPPED
    } else {
        call
    }
}

/// Whether the call slept without being seen by the user tap.
fn is_untapped(call: u32) -> bool {
    call != CALL_NONE && call & CALL_UNTAPPED != 0
}

/// Defines the place of each of these structs of the probes.
macro_rules! has_place {
    ($($of:ident)*) => {$(
        impl From<&types::$of> for SleepPlace {
            fn from(row: &types::$of) -> SleepPlace {
                SleepPlace { stack: row.stack, call: row.call, lock_flags: row.lock_flags }
            }
        }
    )*};
}

has_place! { sleep_key site_key waker_key owner_key resource_key kept_sleep site_asked owner chain_link }

impl From<SleepPlace> for types::sleep_key {
    fn from(place: SleepPlace) -> types::sleep_key {
        types::sleep_key {
            stack: place.stack,
            call: place.call,
            lock_flags: place.lock_flags,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_no_tap_saw_have_the_places_of_others() {
        let of = |call| SleepPlace {
            stack: 7,
            call,
            lock_flags: 2,
        };
        let unseen = of(3 | CALL_UNTAPPED);
        assert!(unseen.is_untapped() && !of(3).is_untapped());
        assert_eq!(unseen.tapped(), of(3));
        assert!(!of(CALL_NONE).is_untapped());
        assert_eq!(of(CALL_NONE).tapped(), of(CALL_NONE));
    }
}
