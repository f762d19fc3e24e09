//! What clients may have: every user has a share, and all users together have a limit.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The most that the broker grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Processes with slots, of one user and in all.
    pub clients_per_user: u32,
    pub clients: u32,
    /// Threads of one client, of one user's clients, and in all. Each takes 17 KB of kernel memory.
    pub threads_per_client: u32,
    pub threads_per_user: u32,
    pub threads: u32,
    /// Commands under `debox run`, of one user and in all. Each has probes of its own, which slow down
    /// every process on the machine while it runs.
    pub runs_per_user: u32,
    pub runs: u32,
    /// New commands of one user: how many at once, and then how many a minute.
    pub runs_at_once: u32,
    pub runs_per_minute: u32,
    /// Open connections, of one user and in all.
    pub connections_per_user: u32,
    pub connections: u32,
    /// New connections of one user: how many at once, and then how many a second.
    pub burst: u32,
    pub connections_per_second: u32,
    /// CPU time that the broker spends for one user, in percent of one CPU, in the long run. At once,
    /// it is [`Limits::CPU_AT_ONCE`], or [`Limits::CPU_LOADS`] times the time that loading the usual
    /// probes took.
    pub cpu_percent: u32,
    /// Memory that is given out in all, including kernel memory, in bytes. `None`: derived from the
    /// limits of the broker's control groups and the machine's memory.
    pub memory: Option<u64>,
}

impl Limits {
    pub const CPU_AT_ONCE: Duration = Duration::from_secs(5);
    pub const CPU_LOADS: u32 = 20;
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            clients_per_user: 64,
            clients: 256,
            threads_per_client: 256,
            threads_per_user: 4096,
            threads: 16384,
            runs_per_user: 2,
            runs: 8,
            runs_at_once: 60,
            runs_per_minute: 60,
            connections_per_user: 128,
            connections: 1024,
            burst: 200,
            connections_per_second: 50,
            cpu_percent: 10,
            memory: None,
        }
    }
}

/// A token bucket: what a user may still do, and when that was computed.
#[derive(Debug)]
struct Tokens {
    left: f64,
    counted: Instant,
}

impl Tokens {
    fn new(burst: u32, now: Instant) -> Tokens {
        Tokens {
            left: f64::from(burst),
            counted: now,
        }
    }

    fn at(&self, burst: u32, per_second: f64, now: Instant) -> f64 {
        let elapsed = now.saturating_duration_since(self.counted).as_secs_f64();
        (self.left + elapsed * per_second).min(f64::from(burst))
    }

    /// Takes one, if there is one.
    fn take(&mut self, burst: u32, per_second: f64, now: Instant) -> bool {
        (self.left, self.counted) = (self.at(burst, per_second, now), now);
        let is_left = self.left >= 1.0;
        if is_left {
            self.left -= 1.0;
        }
        is_left
    }
}

#[derive(Debug)]
struct Usage {
    clients: u32,
    threads: u32,
    runs: u32,
    connections: u32,
    connecting: Tokens,
    running: Tokens,
}

/// The number of threads that a client gets at least, if so many are left.
const FEW: u32 = 16;

/// What has been given out.
pub struct Quota {
    pub limits: Limits,
    users: HashMap<u32, Usage>,
    clients: u32,
    threads: u32,
    runs: u32,
    connections: u32,
}

/// Why a request is refused.
pub type Refusal = &'static str;

impl Quota {
    pub fn new(limits: Limits) -> Quota {
        Quota {
            limits,
            users: HashMap::new(),
            clients: 0,
            threads: 0,
            runs: 0,
            connections: 0,
        }
    }

    fn user(&mut self, uid: u32, now: Instant) -> &mut Usage {
        let limits = self.limits;
        self.users.entry(uid).or_insert_with(|| Usage {
            clients: 0,
            threads: 0,
            runs: 0,
            connections: 0,
            connecting: Tokens::new(limits.burst, now),
            running: Tokens::new(limits.runs_at_once, now),
        })
    }

    /// Counts a new connection.
    pub fn connect(&mut self, uid: u32, now: Instant) -> Result<(), Refusal> {
        let limits = self.limits;
        if self.connections >= limits.connections {
            return Err("the broker has reached its limit of connections");
        }
        let user = self.user(uid, now);
        let per_second = f64::from(limits.connections_per_second);
        if !user.connecting.take(limits.burst, per_second, now) {
            return Err("this user connects too often");
        }
        if user.connections >= limits.connections_per_user {
            return Err("this user has reached the limit of connections");
        }
        user.connections += 1;
        self.connections += 1;
        Ok(())
    }

    pub fn disconnect(&mut self, uid: u32) {
        if let Some(user) = self.users.get_mut(&uid) {
            user.connections -= 1;
            self.connections -= 1;
        }
    }

    /// Takes slots for a new client that wants `wanted`; returns how many it gets. Beyond [`FEW`], a
    /// client gets only a part of what its user has left, so that some are left for the next.
    pub fn take(&mut self, uid: u32, wanted: u32, now: Instant) -> Result<u32, Refusal> {
        let limits = self.limits;
        let left_in_all = limits.threads - self.threads;
        if self.clients >= limits.clients || left_in_all == 0 {
            return Err("the broker has reached its limit of clients");
        }
        let user = self.user(uid, now);
        let left = limits.threads_per_user.saturating_sub(user.threads);
        if user.clients >= limits.clients_per_user || left == 0 {
            return Err("this user has reached the limit of clients or of monitored threads");
        }
        let left = left.min(left_in_all);
        let given = wanted
            .min(limits.threads_per_client)
            .min((left / 4).max(FEW))
            .min(left);
        if given == 0 {
            return Err("no threads were asked for");
        }
        user.clients += 1;
        user.threads += given;
        self.clients += 1;
        self.threads += given;
        Ok(given)
    }

    /// Gives back what [`Quota::take`] returned, once no process uses it.
    pub fn give_back(&mut self, uid: u32, slots: u32) {
        if let Some(user) = self.users.get_mut(&uid) {
            user.clients -= 1;
            user.threads -= slots;
            self.clients -= 1;
            self.threads -= slots;
        }
    }

    /// Counts a new session for one command.
    pub fn begin_run(&mut self, uid: u32, now: Instant) -> Result<(), Refusal> {
        let limits = self.limits;
        if self.runs >= limits.runs {
            return Err("the broker has reached its limit of simultaneous runs");
        }
        let user = self.user(uid, now);
        if user.runs >= limits.runs_per_user {
            return Err("this user has reached the limit of simultaneous runs");
        }
        let per_second = f64::from(limits.runs_per_minute) / 60.0;
        if !user.running.take(limits.runs_at_once, per_second, now) {
            return Err("this user begins runs too often");
        }
        user.runs += 1;
        self.runs += 1;
        Ok(())
    }

    pub fn end_run(&mut self, uid: u32) {
        if let Some(user) = self.users.get_mut(&uid) {
            user.runs -= 1;
            self.runs -= 1;
        }
    }

    /// Drops the entries of users that have nothing and whose share of connections has filled up
    /// again.
    pub fn forget_idle(&mut self, now: Instant) {
        let limits = self.limits;
        self.users.retain(|_, user| {
            let per_second = f64::from(limits.connections_per_second);
            let connections = user.connecting.at(limits.burst, per_second, now);
            let per_second = f64::from(limits.runs_per_minute) / 60.0;
            let runs = user.running.at(limits.runs_at_once, per_second, now);
            let is_full =
                connections >= f64::from(limits.burst) && runs >= f64::from(limits.runs_at_once);
            user.clients > 0 || user.runs > 0 || user.connections > 0 || !is_full
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Quota {
        Quota::new(Limits {
            clients_per_user: 2,
            clients: 3,
            threads_per_client: 10,
            threads_per_user: 15,
            threads: 24,
            runs_per_user: 2,
            runs: 3,
            runs_at_once: 4,
            runs_per_minute: 60,
            connections_per_user: 3,
            connections: 4,
            burst: 5,
            connections_per_second: 10,
            ..Limits::default()
        })
    }

    #[test]
    fn one_user_does_not_get_what_all_are_to_share() {
        let mut quota = small();
        let now = Instant::now();
        assert_eq!(quota.take(1, 1024, now), Ok(10));
        assert_eq!(quota.take(1, 1024, now), Ok(5));
        assert!(quota.take(1, 1, now).is_err());
        assert_eq!(quota.take(2, 1024, now), Ok(9));
        assert!(quota.take(3, 1, now).is_err());
        quota.give_back(1, 10);
        assert_eq!(quota.take(3, 4, now), Ok(4));
        assert!(quota.take(3, 0, now).is_err());
    }

    #[test]
    fn runs_are_limited_too() {
        let mut quota = small();
        let now = Instant::now();
        quota.begin_run(1, now).unwrap();
        quota.begin_run(1, now).unwrap();
        assert!(quota.begin_run(1, now).is_err());
        quota.begin_run(2, now).unwrap();
        assert!(quota.begin_run(3, now).is_err());
        quota.end_run(1);
        quota.begin_run(3, now).unwrap();
    }

    #[test]
    fn runs_are_limited_in_rate() {
        let mut quota = small();
        let start = Instant::now();
        for _ in 0..4 {
            quota.begin_run(1, start).unwrap();
            quota.end_run(1);
        }
        assert!(quota.begin_run(1, start).is_err());
        quota.begin_run(2, start).unwrap();
        let later = start + Duration::from_millis(1500);
        quota.begin_run(1, later).unwrap();
        quota.end_run(1);
        assert!(quota.begin_run(1, later).is_err());
    }

    #[test]
    fn connections_are_limited_in_number_and_rate() {
        let mut quota = small();
        let start = Instant::now();
        for _ in 0..3 {
            quota.connect(1, start).unwrap();
        }
        assert!(quota.connect(1, start).is_err()); // three are open
        quota.connect(2, start).unwrap();
        assert!(quota.connect(3, start).is_err()); // four in all
        for _ in 0..3 {
            quota.disconnect(1);
        }
        quota.connect(1, start).unwrap();
        quota.disconnect(1);
        assert!(quota.connect(1, start).is_err()); // five at once
        let later = start + Duration::from_millis(150);
        quota.connect(1, later).unwrap();
        assert!(quota.connect(1, later).is_err());
    }

    #[test]
    fn idle_users_take_no_memory() {
        let mut quota = small();
        let start = Instant::now();
        quota.connect(1, start).unwrap();
        quota.disconnect(1);
        quota.forget_idle(start);
        assert_eq!(quota.users.len(), 1); // otherwise the rate limit would be void
        quota.forget_idle(start + Duration::from_secs(1));
        assert!(quota.users.is_empty());
    }
}
