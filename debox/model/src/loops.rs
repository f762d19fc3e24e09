// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rule that recognizes event loops, and which waits keep a loop from its events.
//!
//! A thread that waits in epoll, io_uring or AIO is a loop from its first such wait. `poll` and `select` are also called
//! for a single descriptor: only a main thread that waits in them repeatedly, and in none of the others, is a loop.
//! A loop waits for its events at one instance, its own. A wait at another instance is a loop inside the loop, which
//! blocks the outer one: Node's `execSync` does that.
//!
//! A thread whose events come from one connection only has one client, and keeps no other one waiting: a process of
//! PostgreSQL waits for its client in epoll, and for the locks of the database at a second instance.

/// Waits for events that only event loops make.
const OF_LOOPS: [&str; 6] = [
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "io_uring_enter",
    "io_getevents",
    "io_pgetevents",
];

/// Waits that are also made for a single descriptor.
const OF_OTHERS: [&str; 4] = ["poll", "ppoll", "select", "pselect6"];

/// A main thread that waits in `poll` or `select` that often is a loop.
pub const POLLS_MIN: u64 = 3;

/// A wait for events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventWait {
    /// At an instance, which the call's first argument names.
    AtInstance,
    /// In `poll` or `select` of a main thread.
    Polled,
}

impl EventWait {
    /// What the call is, if it may be a loop's wait. `has_slept`: an `io_uring_enter` that does not sleep only submits
    /// requests.
    pub fn of(call: &str, is_main: bool, has_slept: bool) -> Option<EventWait> {
        if OF_LOOPS.contains(&call) {
            let waits = call.starts_with("epoll") || has_slept;
            return waits.then_some(EventWait::AtInstance);
        }
        (is_main && OF_OTHERS.contains(&call)).then_some(EventWait::Polled)
    }
}

/// The instance at which a thread waits for its events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Own {
    at: Option<u64>,
    was_closed: bool,
}

impl Own {
    /// Takes in a wait for events. Returns whether it is the loop's own wait. The first instance that is seen is its own,
    /// until it is closed.
    pub fn take_in(&mut self, wait: EventWait, at: u64) -> bool {
        match wait {
            EventWait::Polled => self.at.is_none(),
            EventWait::AtInstance => {
                if self.at.is_none() {
                    *self = Own {
                        at: Some(at),
                        was_closed: false,
                    };
                }
                self.at == Some(at)
            }
        }
    }

    /// The same for an observer that came later, and may have seen a loop inside the loop first. That one's descriptor
    /// was opened later, and is higher.
    pub fn take_in_late(&mut self, wait: EventWait, at: u64) -> bool {
        if wait == EventWait::AtInstance && self.at.is_some_and(|own| at < own) {
            self.at = Some(at);
        }
        self.take_in(wait, at)
    }

    /// A descriptor was closed.
    pub fn close(&mut self, descriptor: u64) {
        if self.at == Some(descriptor) {
            *self = Own {
                at: None,
                was_closed: true,
            };
        }
    }

    /// The instance, if the thread waits at one.
    pub fn at(&self) -> Option<u64> {
        self.at
    }

    /// Whether the thread has closed its own instance and not yet waited at another one.
    pub fn starts_again(&self) -> bool {
        self.was_closed
    }
}

/// From whom the events of a wait come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Serves {
    /// From timers, signals and threads of the same program only.
    NoClient,
    /// From one connection.
    One,
    /// From a socket that accepts connections or takes datagrams, or from several connections.
    Several,
}

impl Serves {
    /// From the sockets that are waited for: whether one accepts from anybody, and how many are connections.
    pub fn of(has_listener: bool, connections: usize) -> Serves {
        match (has_listener, connections) {
            (true, _) | (false, 2..) => Serves::Several,
            (false, 1) => Serves::One,
            (false, 0) => Serves::NoClient,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_main_threads_polls_may_be_a_loops() {
        let of = EventWait::of;
        assert_eq!(of("epoll_wait", false, false), Some(EventWait::AtInstance));
        assert_eq!(of("io_uring_enter", true, false), None);
        assert_eq!(
            of("io_uring_enter", true, true),
            Some(EventWait::AtInstance)
        );
        assert_eq!(of("select", true, true), Some(EventWait::Polled));
        assert_eq!(of("select", false, true), None);
        assert_eq!(of("read", true, true), None);
    }

    #[test]
    fn a_wait_at_another_instance_is_a_loop_inside_the_loop() {
        let mut own = Own::default();
        assert!(own.take_in(EventWait::Polled, 1), "a poll loop");
        assert!(own.take_in(EventWait::AtInstance, 9));
        assert!(!own.take_in(EventWait::AtInstance, 5));
        assert!(!own.take_in(EventWait::Polled, 1));
        own.close(5);
        assert!(!own.starts_again());
        own.close(9);
        assert!(own.starts_again());
        assert!(own.take_in(EventWait::AtInstance, 5) && !own.starts_again());
    }

    #[test]
    fn who_comes_late_may_see_the_inner_loop_first() {
        let mut own = Own::default();
        assert!(own.take_in_late(EventWait::AtInstance, 20));
        assert!(own.take_in_late(EventWait::AtInstance, 9));
        assert!(!own.take_in_late(EventWait::AtInstance, 20));
        assert_eq!(own.at(), Some(9));
    }

    #[test]
    fn one_connection_is_one_client() {
        assert_eq!(Serves::of(false, 0), Serves::NoClient);
        assert_eq!(Serves::of(false, 1), Serves::One);
        assert_eq!(Serves::of(false, 2), Serves::Several);
        assert_eq!(Serves::of(true, 0), Serves::Several);
        assert!(Serves::Several > Serves::One && Serves::One > Serves::NoClient);
    }
}
