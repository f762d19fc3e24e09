// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures whether a device ends more jobs if it has many at once.

use std::time::Duration;

/// So many jobs that were not alone tell how many end per second.
const ENOUGH: f64 = 16.0;
/// Beyond so many, older ones count half.
const MANY: f64 = 128.0;
/// If so few end at less than half the rate, taking turns is given up at once.
const HINT: f64 = 6.0;
/// Taking turns may cost so much of the rate: without them the device always has the next read at hand.
const NO_LESS: f64 = 0.85;
/// In nanoseconds. A device on which jobs take less has no need of turns, or it was not asked: the name was in memory already.
pub const SLOW: u64 = 1_000_000;
/// So long a verdict holds at first; each that confirms it, doubles the time.
const HOLDS: Duration = Duration::from_secs(2);
const HOLDS_AT_MOST: Duration = Duration::from_secs(64);
/// A verdict from times with fewer jobs at once does not hold for so many times more, and so many.
const DEEPER: f64 = 2.0;

/// Of times at which a device had more than one job, with those that wait for their turn.
#[derive(Debug, Clone, Copy, Default)]
struct Crowd {
    ended: f64,
    ns: f64,
    /// Jobs at a time, times their nanoseconds.
    jobs_ns: f64,
    /// The same of jobs in the queue.
    queued_ns: f64,
}

impl Crowd {
    fn add(&mut self, other: Crowd) {
        if self.ended > MANY {
            self.ended /= 2.0;
            self.ns /= 2.0;
            self.jobs_ns /= 2.0;
            self.queued_ns /= 2.0;
        }
        self.ended += other.ended;
        self.ns += other.ns;
        self.jobs_ns += other.jobs_ns;
        self.queued_ns += other.queued_ns;
    }

    /// Jobs that end per nanosecond.
    fn rate(&self) -> f64 {
        self.ended / self.ns.max(1.0)
    }

    fn depth(&self) -> f64 {
        (self.jobs_ns + self.queued_ns) / self.ns.max(1.0)
    }

    /// Jobs that began together may also end together, so as many have to end as there are at once.
    fn is_known(&self) -> bool {
        let at_once = self.jobs_ns / self.ns.max(1.0);
        self.ended >= at_once.clamp(ENOUGH, MANY)
    }
}

/// Times are in nanoseconds since anything.
#[derive(Debug, Default)]
pub struct Meter {
    takes_turns: bool,
    /// Until when the last verdict holds. `None`: what is now in use is being measured for the next one.
    holds_until: Option<u64>,
    holds: Duration,
    was_serial: bool,
    /// Without turns, and with them.
    free: Crowd,
    in_turn: Crowd,
    /// Jobs that are there now, and since when.
    present: usize,
    /// Those that wait for one of these to end, when the last one came.
    queued: usize,
    since: u64,
    /// Of these, jobs at the device.
    running: usize,
    /// Jobs that end as they would have the other way: they are from before a change.
    left_over: usize,
    /// Since the device had no job, or since it was counted last.
    stretch: Crowd,
    /// Jobs that ended in it and took less than [`SLOW`].
    quick: f64,
    is_crowded: bool,
}

impl Meter {
    /// Takes turns for a long time.
    #[cfg(test)]
    pub fn with_turns() -> Meter {
        Meter {
            takes_turns: true,
            holds_until: Some(u64::MAX),
            ..Meter::default()
        }
    }

    pub fn takes_turns(&self) -> bool {
        self.takes_turns
    }

    /// A job has come. `queued`: how many more jobs wait in the queue; this is called for each of them when its time comes.
    pub fn comes(&mut self, now: u64, queued: usize) {
        self.pass(now);
        self.queued = queued;
        self.present += 1;
        self.is_crowded |= self.present > 1;
    }

    /// It is at the device.
    pub fn begins(&mut self) {
        self.running += 1;
    }

    /// It has ended, which took so long at the device. `None`: it is taken to be stuck, or has asked the device
    /// for nothing, and does not count.
    pub fn ends(&mut self, now: u64, took: Option<u64>) {
        self.pass(now);
        self.present = self.present.saturating_sub(1);
        self.running = self.running.saturating_sub(1);
        let Some(took) = took.filter(|_| self.left_over == 0) else {
            self.left_over = self.left_over.saturating_sub(1);
            self.forget_stretch();
            return;
        };
        match took >= SLOW {
            true => self.stretch.ended += 1.0,
            false => self.quick += 1.0,
        }
        // The parts of jobs at both ends of a stretch are the same on average, or there are none.
        if self.present > 0 && self.stretch.ended + self.quick < ENOUGH / 2.0 {
            return;
        }
        let (stretch, was_crowded) = (self.stretch, self.is_crowded);
        // Names that are in memory already tell nothing of the device, however many they are.
        let is_of_device = stretch.ended >= self.quick;
        self.forget_stretch();
        if !was_crowded {
            return;
        }
        if !is_of_device {
            if self.takes_turns && self.holds_until.is_none() {
                self.settle(false, now);
                self.left_over = self.present + self.queued;
            }
            return;
        }
        match self.takes_turns {
            true => self.in_turn.add(stretch),
            false => self.free.add(stretch),
        }
        let before = self.takes_turns;
        self.judge(now);
        if before != self.takes_turns {
            // Those that waited for their turn begin together.
            self.left_over = match self.takes_turns {
                true => self.running,
                false => self.present + self.queued,
            };
        }
    }

    fn forget_stretch(&mut self) {
        self.stretch = Crowd::default();
        self.quick = 0.0;
        self.is_crowded = self.present > 1;
    }

    fn pass(&mut self, now: u64) {
        let ns = now.saturating_sub(self.since) as f64;
        self.since = now;
        if self.present > 0 {
            self.stretch.ns += ns;
            self.stretch.jobs_ns += ns * self.present as f64;
            self.stretch.queued_ns += ns * self.queued as f64;
        }
    }

    fn judge(&mut self, now: u64) {
        match (self.takes_turns, self.holds_until) {
            (false, None) if !self.free.is_known() => {}
            (false, None) if !self.in_turn.is_known() => self.try_turns(),
            (true, None) if !self.in_turn.is_known() && !self.is_hopeless() => {}
            (_, None) => self.decide(now),
            (false, Some(until)) if now >= until => self.try_turns(),
            (true, Some(until)) if now >= until || self.is_deeper() => {
                self.takes_turns = false;
                self.holds_until = None;
                self.free = Crowd::default();
            }
            _ => {}
        }
    }

    fn try_turns(&mut self) {
        self.takes_turns = true;
        self.holds_until = None;
        self.in_turn = Crowd::default();
    }

    /// So much slower that it need not be measured to the end.
    fn is_hopeless(&self) -> bool {
        self.in_turn.ended >= HINT && self.in_turn.rate() < self.free.rate() / 2.0
    }

    fn is_deeper(&self) -> bool {
        self.free.is_known() && self.in_turn.depth() > DEEPER * (self.free.depth() + 1.0)
    }

    fn decide(&mut self, now: u64) {
        self.settle(self.in_turn.rate() >= NO_LESS * self.free.rate(), now);
    }

    fn settle(&mut self, is_serial: bool, now: u64) {
        self.holds = match is_serial == self.was_serial && self.holds > Duration::ZERO {
            true => HOLDS_AT_MOST.min(self.holds * 2),
            false => HOLDS,
        };
        self.was_serial = is_serial;
        self.takes_turns = is_serial;
        self.holds_until = Some(now + self.holds.as_nanos() as u64);
    }
}
