//! CPU time that users take through the broker: each user has a budget, and work for it runs at the
//! user's own nice level.
//!
//! Loading the probes of a run takes some hundred milliseconds of the broker's CPU time. A thread that
//! works for one user has that user's nice level. All work for a user is measured, and a user that has
//! used up its share waits.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The CPU time that one user may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// Seconds of CPU time in a second.
    pub rate: f64,
    /// Seconds that may be taken at once.
    pub burst: f64,
}

pub struct Budget {
    share: Share,
    users: Mutex<HashMap<u32, Left>>,
}

#[derive(Clone, Copy)]
struct Left {
    seconds: f64,
    counted: Instant,
}

impl Left {
    fn at(&self, share: Share, now: Instant) -> f64 {
        let elapsed = now.saturating_duration_since(self.counted).as_secs_f64();
        (self.seconds + elapsed * share.rate).min(share.burst)
    }
}

impl Share {
    /// How long until work is done again, with so many seconds left.
    fn wait(&self, left: f64) -> Duration {
        if left >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-left / self.rate).unwrap_or(Duration::MAX)
    }
}

/// Limits work that no single user's budget covers: refusing connections. Once its time is used up, it
/// waits until a part of the burst is there again: to wake up for each connection costs more than the
/// connection does.
pub struct Pace {
    share: Share,
    left: Left,
    is_paused: bool,
}

impl Pace {
    /// The burst is spent in so many parts when there is more to do than the rate allows.
    const BATCHES: f64 = 4.0;

    pub fn new(share: Share, now: Instant) -> Pace {
        let left = Left {
            seconds: share.burst,
            counted: now,
        };
        Pace {
            share,
            left,
            is_paused: false,
        }
    }

    pub fn charge(&mut self, spent: Duration, now: Instant) {
        let was_paused = !self.wait(now).is_zero();
        let seconds = self.left.at(self.share, now) - spent.as_secs_f64();
        let counted = now;
        self.left = Left { seconds, counted };
        self.is_paused = was_paused || seconds < 0.0;
    }

    /// How long until more work is done; zero: at once.
    pub fn wait(&self, now: Instant) -> Duration {
        let enough = match self.is_paused {
            true => self.share.burst / Self::BATCHES,
            false => 0.0,
        };
        self.share.wait(self.left.at(self.share, now) - enough)
    }
}

impl Budget {
    pub fn new(share: Share) -> Budget {
        Budget {
            share,
            users: Mutex::default(),
        }
    }

    fn users(&self) -> MutexGuard<'_, HashMap<u32, Left>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn left(&self, left: Option<&Left>, now: Instant) -> f64 {
        left.map_or(self.share.burst, |left| left.at(self.share, now))
    }

    /// Charges a user for CPU time.
    pub fn charge(&self, user: u32, spent: Duration, now: Instant) {
        let mut users = self.users();
        let seconds = self.left(users.get(&user), now) - spent.as_secs_f64();
        let counted = now;
        users.insert(user, Left { seconds, counted });
    }

    /// How long until work is done for a user again; zero: at once.
    pub fn wait(&self, user: u32, now: Instant) -> Duration {
        self.share.wait(self.left(self.users().get(&user), now))
    }

    /// Drops the entries of users whose share has filled up again.
    pub fn forget_idle(&self, now: Instant) {
        self.users()
            .retain(|_, left| self.left(Some(left), now) < self.share.burst);
    }

    pub fn refusal(wait: Duration) -> String {
        format!(
            "this user's requests have used up their share of the broker's CPU time: try again in {} s",
            wait.as_secs() + 1
        )
    }
}

/// The CPU time that the calling thread has taken.
pub fn of_thread() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid timespec. Without the clock nothing is charged.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Gives the calling thread a process's nice level, if that has lower priority. `SCHED_IDLE` counts as
/// the lowest nice level, because a thread that holds one of the kernel's locks must not be starved.
pub fn follow(pid: u32) {
    const LOWEST: i32 = 19;
    // SAFETY: these take and return integers; `parameter` is valid.
    unsafe {
        let policy = libc::sched_getscheduler(pid as i32) & !libc::SCHED_RESET_ON_FORK;
        let nice = match policy {
            libc::SCHED_IDLE => LOWEST,
            _ => libc::getpriority(libc::PRIO_PROCESS, pid),
        };
        if matches!(policy, libc::SCHED_IDLE | libc::SCHED_BATCH) {
            let parameter: libc::sched_param = std::mem::zeroed();
            libc::sched_setscheduler(0, libc::SCHED_BATCH, &parameter);
        }
        // -1 is an error or a level; such a level would not be adopted anyway.
        if nice > libc::getpriority(libc::PRIO_PROCESS, 0) {
            libc::setpriority(libc::PRIO_PROCESS, 0, nice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_used_up_and_fills_again() {
        let budget = Budget::new(Share {
            rate: 0.1,
            burst: 2.0,
        });
        let start = Instant::now();
        budget.charge(1, Duration::from_secs(2), start);
        assert_eq!(budget.wait(1, start), Duration::ZERO);
        budget.charge(1, Duration::from_millis(500), start);
        assert_eq!(budget.wait(2, start), Duration::ZERO);
        let wait = budget.wait(1, start);
        assert!((4.9..5.1).contains(&wait.as_secs_f64()), "{wait:?}");
        assert_eq!(
            budget.wait(1, start + Duration::from_secs(6)),
            Duration::ZERO
        );
        budget.forget_idle(start + Duration::from_secs(6));
        assert_eq!(budget.users().len(), 1);
        budget.forget_idle(start + Duration::from_secs(60));
        assert!(budget.users().is_empty());
        assert!(
            Budget::refusal(wait).contains("in 5 s") || Budget::refusal(wait).contains("in 6 s")
        );
    }

    #[test]
    fn a_pace_is_kept_to_whoever_comes() {
        let start = Instant::now();
        let share = Share {
            rate: 0.1,
            burst: 0.02,
        };
        let mut pace = Pace::new(share, start);
        pace.charge(Duration::from_millis(20), start);
        assert_eq!(pace.wait(start), Duration::ZERO);
        pace.charge(Duration::from_millis(5), start);
        // 5 ms too many, and a quarter of the burst.
        let wait = pace.wait(start).as_secs_f64();
        assert!((0.099..0.101).contains(&wait), "{wait}");
        let later = start + Duration::from_millis(101);
        assert_eq!(pace.wait(later), Duration::ZERO);
        pace.charge(Duration::from_millis(4), later);
        assert_eq!(pace.wait(later), Duration::ZERO);
    }

    #[test]
    fn a_thread_follows_a_process_down_and_not_up() {
        let nice = |pid| {
            // SAFETY: takes and returns integers.
            unsafe { libc::getpriority(libc::PRIO_PROCESS, pid) }
        };
        // The tests may run with a niceness of their own.
        let own_nice = nice(0);
        let lower = own_nice + 3;
        let mut child = std::process::Command::new("nice")
            .args(["-n", "3", "sleep", "60"])
            .spawn()
            .unwrap();
        let end = Instant::now() + Duration::from_secs(10);
        while nice(child.id()) != lower && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        let own = std::process::id();
        let followed = std::thread::spawn(move || {
            follow(child.id());
            let down = nice(0);
            child.kill().unwrap();
            child.wait().unwrap();
            follow(own);
            (down, nice(0))
        });
        assert_eq!(followed.join().unwrap(), (lower, lower));
        assert_eq!(nice(0), own_nice);
    }

    #[test]
    fn work_is_measured() {
        let before = of_thread();
        let mut sum = 0u64;
        while of_thread() - before < Duration::from_millis(2) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(sum > 0);
    }
}
