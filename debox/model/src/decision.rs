// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a trigger fires for a call whose predicate the probes could not decide.
//!
//! The engine decides late, after the program has continued; a program that looks at its own calls decides in the
//! handler of the trigger's signal. Nothing here allocates or takes a lock, because a handler may do neither.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::predicate::{CpuOwner, Fields, Number, Predicate, Site, SiteTest, SITE_TESTS_MAX};

/// The bit by which the probes invert the sign of `ret`: its order is then that of unsigned numbers.
pub const SIGN: u64 = 1 << 63;

/// The low bits of the word that counts a second's firings; the second is above (debox/probe/trigger.h).
const LIMIT_BITS: u32 = 24;

/// What the probes noted about a call at its end, with the names of the places at which it slept.
#[derive(Debug, Clone, Copy)]
pub struct EndedCall<'a> {
    /// Its number, as for [`crate::calls::name`].
    pub call: u32,
    /// By [`Number`]; `ret` with its sign inverted.
    pub values: &'a [u64],
    pub comm: Option<&'a str>,
    pub cpu_owner: CpuOwner<'a>,
    /// `None` for a place that has no name yet, or for which there was no room.
    pub sites: &'a [Option<Site<'a>>],
}

impl Fields for EndedCall<'_> {
    fn call(&self) -> u32 {
        self.call
    }

    fn number(&self, field: Number) -> Option<i128> {
        let value = *self.values.get(field as usize)?;
        Some(match field {
            Number::Ret => i128::from((value ^ SIGN) as i64),
            _ => i128::from(value),
        })
    }

    /// The probes leave such pieces out.
    fn is_restarted(&self) -> bool {
        false
    }

    fn comm(&self) -> Option<&str> {
        self.comm
    }

    fn cpu_owner(&self) -> CpuOwner<'_> {
        self.cpu_owner
    }

    fn sites(&self) -> impl Iterator<Item = Option<Site<'_>>> {
        self.sites.iter().copied()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Fires,
    /// The predicate holds, but the trigger has fired as often in this second as it may.
    Suppressed,
    DoesNotHold,
    /// It depends on something unknown.
    Undecided,
}

/// Decides whether a trigger fires. `limit`: the most firings in a second; `window`: the word that counts them, which
/// the probes may be using at the same time. Without it, there is no limit.
pub fn decide(
    predicate: &Predicate,
    limit: Option<u32>,
    window: Option<&AtomicU64>,
    call: &EndedCall<'_>,
    at_ns: u64,
) -> Decision {
    match predicate.truth(call) {
        None => Decision::Undecided,
        Some(false) => Decision::DoesNotHold,
        Some(true) if is_within_limit(limit, window, at_ns) => Decision::Fires,
        Some(true) => Decision::Suppressed,
    }
}

/// Whether a trigger may fire once more in this second; if so, counts it.
fn is_within_limit(limit: Option<u32>, window: Option<&AtomicU64>, at_ns: u64) -> bool {
    let (Some(limit), Some(window)) = (limit, window) else {
        return true;
    };
    let second = at_ns / 1_000_000_000;
    let next = |word: u64| {
        let fired = word & ((1 << LIMIT_BITS) - 1);
        match word >> LIMIT_BITS == second {
            true => (fired < u64::from(limit)).then_some(word + 1),
            false => Some(second << LIMIT_BITS | 1),
        }
    };
    window
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
        .is_ok()
}

/// The tests of one trigger that hold at a place, as bits of the answer that the probes are given.
pub fn tests_that_hold(trigger: usize, tests: &[SiteTest], site: Site<'_>) -> u64 {
    let tests = tests.iter().enumerate();
    let holding = tests.filter(|(_, test)| test.matches(site));
    holding.fold(0, |bits, (test, _)| {
        bits | 1 << (trigger * SITE_TESTS_MAX + test)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide_nap(predicate: &str, sites: &[Option<Site<'_>>]) -> Decision {
        let mut values = [0; 32];
        values[Number::Ret as usize] = (-4i64) as u64 ^ SIGN;
        values[Number::Blocked as usize] = 5_000_000;
        let call = EndedCall {
            call: 35,
            values: &values,
            comm: Some("ab"),
            cpu_owner: CpuOwner::Unknown,
            sites,
        };
        let predicate = Predicate::parse(predicate).expect(predicate);
        decide(&predicate, None, None, &call, 0)
    }

    #[test]
    fn predicates_see_what_the_probes_noted() {
        let timer = Site {
            label: "timer",
            class: "idle",
        };
        let known = [Some(timer)];
        for (predicate, decision) in [
            ("label == timer && ret == -4", Decision::Fires),
            ("class == idle && error == EINTR", Decision::Fires),
            ("label == t*r && blocked < 5ms", Decision::DoesNotHold),
            ("label != timer || comm != ab", Decision::DoesNotHold),
            ("syscall == nanosleep", Decision::Fires),
            ("cpu_owner == gzip", Decision::Undecided),
        ] {
            assert_eq!(decide_nap(predicate, &known), decision, "{predicate}");
        }
        let partly = [Some(timer), None];
        for (predicate, decision) in [
            ("label == timer", Decision::Fires),
            ("label == epoll", Decision::Undecided),
            ("label == epoll && wall > 1s", Decision::DoesNotHold),
        ] {
            assert_eq!(decide_nap(predicate, &partly), decision, "{predicate}");
        }
    }

    #[test]
    fn firings_are_limited_by_second() {
        let second = |number: u64| number * 1_000_000_000 + 7;
        let (window, other) = (AtomicU64::new(0), AtomicU64::new(0));
        for _ in 0..3 {
            assert!(is_within_limit(Some(3), Some(&window), second(5)));
        }
        assert!(!is_within_limit(Some(3), Some(&window), second(5)));
        assert!(is_within_limit(None, Some(&window), second(5)));
        assert!(is_within_limit(Some(1), Some(&other), second(5)));
        assert!(is_within_limit(Some(3), Some(&window), second(6)));
        assert!(is_within_limit(Some(0), None, second(6)));
    }

    #[test]
    fn each_trigger_has_bits_of_its_own_in_an_answer() {
        let program = Predicate::parse("label == timer || class == lock || class == idle")
            .expect("a predicate")
            .compile()
            .expect("a program");
        let timer = Site {
            label: "timer",
            class: "idle",
        };
        let holding = tests_that_hold(0, &program.sites, timer);
        assert_eq!(holding, 0b101);
        let second = tests_that_hold(1, &program.sites, timer);
        assert_eq!(second, holding << SITE_TESTS_MAX);
    }
}
