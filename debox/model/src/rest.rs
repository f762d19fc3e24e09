//! The one rule by which waits for work are told from waits for a lock.
//!
//! A thread of a pool sleeps on a futex between two pieces of work, as a thread does that wants a lock. Three
//! things tell them apart: a lock's word has its waiters in it, or names its holder; locks are held for less
//! than 10 ms on average; and a thread that rests has been seen to be woken. Waits that a time limit ended
//! have the label `timer` and are idle by that.

/// So long is a wait for work on average, or longer.
pub const MEAN_MIN_NS: u64 = 10_000_000;

const FUTEX: &str = "futex";

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
    /// It was for something that can be held, as far as it shows.
    pub is_for_lock: bool,
    /// A runtime's threads wait for work there, and for nothing else (`Runtimes::are_parking`).
    pub is_parked: bool,
}

/// What waits are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// Idle by their label.
    Idle,
    /// Work that others bring.
    Work,
    /// It looks like a wait for work, but not one of them has ended: it may be for ever.
    CannotTell,
    /// All else.
    Other,
}

impl Waits<'_> {
    pub fn are_for(&self) -> For {
        if self.class == IDLE {
            return For::Idle;
        }
        let is_long = self.blocked_ns / self.count.max(1) >= MEAN_MIN_NS;
        if self.label != FUTEX || self.is_for_lock || !(is_long || self.is_parked) {
            return For::Other;
        }
        match self.open >= self.count {
            true => For::CannotTell,
            false => For::Work,
        }
    }

    /// Whether they are left aside where it is asked what slowed others down.
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
        assert_eq!(short.are_for(), For::Other);
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
