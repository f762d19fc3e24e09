// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the process has open.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use super::brokered::Brokered;
use super::descriptors::Descriptors;
use super::explained::Cache;
use super::join::Joined;
use crate::options::Tap;
use crate::session::Session;
use crate::symbols::Symbols;

/// What the process has open. One lock guards it all; the reading functions do not take it.
pub(super) struct State {
    pub source: Source,
    pub explained: Cache,
    pub symbols: Option<Symbols>,
}

/// Where the records come from.
pub(super) enum Source {
    None,
    /// A session of this process's own, and its descriptors.
    Own {
        session: Box<Session>,
        held: Descriptors,
    },
    /// The session of `debox run`, which it joined.
    Joined(Joined),
    /// A session that the broker gave it.
    Brokered(Brokered),
}

// SAFETY: the session and the symbolizer are not Send because of reference counts and cells that
// they share among their own parts only; all of those parts are moved, and reached, together, and
// only by the thread that holds the lock of STATE.
unsafe impl Send for State {}

static STATE: Mutex<State> = Mutex::new(State {
    source: Source::None,
    explained: Cache::new(),
    symbols: None,
});

pub(super) fn state() -> MutexGuard<'static, State> {
    // A panic elsewhere leaves the state usable: it is only ever replaced as a whole.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock, if it is free. Signal handlers do not wait for it.
pub(super) fn try_state() -> Option<MutexGuard<'static, State>> {
    match STATE.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Which tap sees this process's calls, while it is enabled.
pub(super) enum Taps {
    Kernel,
    /// The process's own stamps.
    User,
    /// The stamps of the preload shim.
    Shim,
}

/// The caller holds the lock.
pub(super) fn tap_of(state: &State) -> Taps {
    match &state.source {
        Source::Joined(_) => Taps::Shim,
        Source::Own { session, .. } if session.options().tap == Tap::User => Taps::User,
        Source::Brokered(brokered) if brokered.is_tapped() => Taps::User,
        _ => Taps::Kernel,
    }
}
