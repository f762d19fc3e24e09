//! The rule that distinguishes waits for work from waits for a lock.
//!
//! A pool's thread sleeps on a futex between two pieces of work, like a thread that waits for a lock. Three
//! things distinguish them: a lock's word records its waiters or names its holder; locks are held for less
//! than 10 ms on average; and a thread that waits for work has been woken at least once. Waits that a time
//! limit ended have the label `timer` and so count as idle.
//!
//! Short waits on words that are not those of contended locks are what threads do that hand work to each other: those
//! of a busy pool, as of a compiler. They are part of the work, but they are no proof that anything is held up.

/// The least average length of waits for work.
pub const MEAN_MIN_NS: u64 = 10_000_000;

/// The label of waits that may be for work.
pub const FUTEX: &str = "futex";

const IDLE: &str = "idle";

/// Waits with one label.
#[derive(Debug, Clone, Copy, Default)]
pub struct Waits<'a> {
    pub label: &'a str,
    pub class: &'a str,
    pub count: u64,
    /// Of these, waits that had not ended.
    pub open: u64,
    pub blocked_ns: u64,
    /// As far as is known, the waits were for something that can be held.
    pub is_for_lock: bool,
    /// A runtime's threads wait there only for work (`Runtimes::are_parking`).
    pub is_parked: bool,
}

/// What waits are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// Idle according to their label.
    Idle,
    /// Work that other threads hand over.
    Work,
    /// They look like waits for work, but none has ended: they may last for ever.
    CannotTell,
    /// Short waits, at words that no thread is known to hold, for what other threads of the program do.
    Exchange,
    /// Anything else.
    Other,
}

impl Waits<'_> {
    pub fn are_for(&self) -> For {
        if self.class == IDLE {
            return For::Idle;
        }
        let is_long = self.blocked_ns / self.count.max(1) >= MEAN_MIN_NS;
        if self.label != FUTEX || self.is_for_lock {
            return For::Other;
        }
        if !(is_long || self.is_parked) {
            return For::Exchange;
        }
        match self.open >= self.count {
            true => For::CannotTell,
            false => For::Work,
        }
    }

    /// Whether the waits are left out when looking for what slowed the program down.
    pub fn are_aside(&self) -> bool {
        matches!(self.are_for(), For::Work | For::CannotTell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARKED: Waits<'_> = Waits {
        label: FUTEX,
        class: "lock",
        count: 4,
        open: 1,
        blocked_ns: 1_000_000_000,
        is_for_lock: false,
        is_parked: false,
    };

    #[test]
    fn work_is_waited_for_long_and_comes() {
        assert_eq!(PARKED.are_for(), For::Work);
        let contended = Waits {
            is_for_lock: true,
            ..PARKED
        };
        assert_eq!(contended.are_for(), For::Other);
        let short = Waits {
            count: 4000,
            ..PARKED
        };
        assert_eq!(short.are_for(), For::Exchange);
        assert!(!short.are_aside());
        let of_go = Waits {
            is_parked: true,
            ..short
        };
        assert_eq!(of_go.are_for(), For::Work);
        let page = Waits {
            label: "page read",
            class: "disk",
            ..PARKED
        };
        assert_eq!(page.are_for(), For::Other);
    }

    #[test]
    fn what_never_ended_may_never_end() {
        let stuck = Waits { open: 4, ..PARKED };
        assert_eq!(stuck.are_for(), For::CannotTell);
        assert!(stuck.are_aside());
    }

    #[test]
    fn idle_labels_are_idle_whatever_else() {
        let timer = Waits {
            label: "timer",
            class: IDLE,
            ..Waits::default()
        };
        assert_eq!(timer.are_for(), For::Idle);
        assert!(!timer.are_aside());
    }
}
