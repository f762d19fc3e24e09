// SPDX-License-Identifier: MIT OR Apache-2.0
//! The event loops among the threads: which of their waits are for events, and which keep them from their events.

use debox::live::{LiveThread, LiveWait};
use debox::loops::{EventWait, Own, Serves, POLLS_MIN};
use debox::serves;
use foldhash::{HashMap, HashSet};

/// Threads that are asked in one look whom they serve, at most: each costs some microseconds.
const ASKED_MAX: usize = 64;

/// Looks after which a thread is asked again: a server may begin to listen, and a client may get a second connection.
const ASKED_AGAIN: u64 = 5;
const SEVERAL_ASKED_AGAIN: u64 = 60;

/// Stands for the instance of calls that are not epoll's: that one's descriptor is not known.
const UNKNOWN: u32 = u32::MAX;

/// What a wait is for a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The thread is no loop, or it is one of several that share their events and take turns.
    Outside,
    /// A loop waits for its events.
    Events,
    /// A loop waits for something else.
    Inside,
    /// A loop waits for the events of another one, which runs inside it.
    InnerLoop,
    /// A thread that serves one connection waits at another instance, for another process of the same program.
    Latch,
}

/// Where the answer to whom a thread serves comes from.
pub trait Asks {
    fn at_instance(&mut self, pid: u32, instance: u32) -> Option<Serves>;
    fn of_thread(&mut self, tid: u32) -> Option<Serves>;
}

/// The running processes.
pub struct Running;

impl Asks for Running {
    fn at_instance(&mut self, pid: u32, instance: u32) -> Option<Serves> {
        serves::at_instance(pid, instance)
    }

    fn of_thread(&mut self, tid: u32) -> Option<Serves> {
        serves::of_thread(tid)
    }
}

/// An answer, and when it was given.
#[derive(Debug, Clone, Copy)]
struct Answer {
    serves: Option<Serves>,
    look: u64,
}

impl Answer {
    fn is_old(&self, look: u64) -> bool {
        let lasts = match self.serves {
            Some(Serves::Several) => SEVERAL_ASKED_AGAIN,
            _ => ASKED_AGAIN,
        };
        look >= self.look + lasts
    }
}

/// A thread that waits for events.
#[derive(Debug, Default)]
struct Waiter {
    pid: u32,
    own: Own,
    instances: HashMap<u32, Option<Answer>>,
    /// Its waits in poll and select, if it is a main thread.
    polls: u64,
    polled: Option<Answer>,
}

impl Waiter {
    /// Whom it serves. Of what cannot be read, the worst is assumed.
    fn serves(&self) -> Serves {
        let instances = self.instances.values();
        let serves = instances.map(|answer| {
            let known = answer.and_then(|answer| answer.serves);
            known.unwrap_or(Serves::Several)
        });
        // Programs that are no loops call poll, too: of these the best is assumed.
        let polled = self.polled.filter(|_| self.polls >= POLLS_MIN);
        let polled = polled.and_then(|answer| answer.serves);
        serves.max().or(polled).unwrap_or(Serves::NoClient)
    }

    fn serves_at(&self, instance: u32) -> Option<Serves> {
        self.instances.get(&instance).copied().flatten()?.serves
    }
}

/// What is remembered of threads that wait for events.
#[derive(Default)]
pub struct Loops {
    waiters: HashMap<u32, Waiter>,
    /// Instances at which several threads of a process wait.
    shared: HashSet<(u32, u64)>,
    looks: u64,
}

impl Loops {
    /// Takes in what one look has shown.
    pub fn take_in(&mut self, waits: &[LiveWait], threads: &[LiveThread], asks: &mut dyn Asks) {
        self.looks += 1;
        for thread in threads.iter().filter(|thread| thread.has_ended) {
            self.waiters.remove(&thread.tid);
        }
        for wait in waits {
            let Some(events) = events(wait) else { continue };
            let waiter = self.waiters.entry(wait.tid).or_default();
            waiter.pid = wait.pid;
            match events {
                EventWait::AtInstance => {
                    let instance = wait.events_fd.unwrap_or(UNKNOWN);
                    waiter.own.take_in_late(events, instance.into());
                    waiter.instances.entry(instance).or_default();
                }
                EventWait::Polled => waiter.polls += wait.count,
            }
        }
        self.ask(asks);
        self.shared = shared(&self.waiters);
    }

    fn ask(&mut self, asks: &mut dyn Asks) {
        let look = self.looks;
        let is_old = |answer: &Option<Answer>| answer.is_none_or(|answer| answer.is_old(look));
        let mut room = ASKED_MAX;
        for (tid, waiter) in &mut self.waiters {
            for (instance, answer) in &mut waiter.instances {
                if *instance != UNKNOWN && is_old(answer) && room > 0 {
                    room -= 1;
                    let serves = asks.at_instance(waiter.pid, *instance);
                    *answer = Some(Answer { serves, look });
                }
            }
            let may_be_loop = waiter.instances.is_empty() && waiter.polls >= POLLS_MIN;
            if may_be_loop && is_old(&waiter.polled) && room > 0 {
                room -= 1;
                // It may not be waiting just now.
                if let Some(serves) = asks.of_thread(*tid) {
                    let serves = Some(serves);
                    waiter.polled = Some(Answer { serves, look });
                }
            }
        }
    }

    pub fn place(&self, wait: &LiveWait) -> Place {
        let Some(waiter) = self.waiters.get(&wait.tid) else {
            return Place::Outside;
        };
        let is_idle = &*wait.class == "idle";
        let events = events(wait).filter(|_| is_idle);
        let instance = wait.events_fd.unwrap_or(UNKNOWN);
        let serves = waiter.serves();
        if serves != Serves::Several {
            let is_latch = events == Some(EventWait::AtInstance)
                && serves == Serves::One
                && waiter.serves_at(instance) == Some(Serves::NoClient);
            return if is_latch {
                Place::Latch
            } else {
                Place::Outside
            };
        }
        let mut own = waiter.own;
        match events {
            Some(events) if own.take_in_late(events, instance.into()) => Place::Events,
            Some(EventWait::AtInstance) => Place::InnerLoop,
            // Threads that share an instance take turns: who has no turn waits for the others.
            _ if self
                .shared
                .contains(&(waiter.pid, own.at().unwrap_or(u64::MAX)))
                && (is_idle || (&*wait.label == debox::rest::FUTEX && !wait.is_ownable)) =>
            {
                Place::Outside
            }
            _ => Place::Inside,
        }
    }
}

fn events(wait: &LiveWait) -> Option<EventWait> {
    EventWait::of(&wait.call, wait.tid == wait.pid, true)
}

fn shared(waiters: &HashMap<u32, Waiter>) -> HashSet<(u32, u64)> {
    let mut seen = HashSet::default();
    let places = waiters
        .values()
        .filter_map(|one| Some((one.pid, one.own.at()?)));
    places.filter(|place| !seen.insert(*place)).collect()
}

#[cfg(test)]
#[path = "loops_tests.rs"]
mod tests;
