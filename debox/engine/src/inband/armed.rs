// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trigger, as the handler of its signal sees it.

use crate::predicate::SiteTest;
use crate::trigger::Trigger;

/// A trigger, with what is needed to decide a call that the probes could not decide.
pub(super) struct Armed {
    pub trigger: Trigger,
    /// Its program's tests of places.
    pub sites: Vec<SiteTest>,
}
