//! The limits of a run: the user for whom it counts, what it may take, and what it has given away.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};
use libbpf_rs::MapHandle;

use super::account::{Account, Share};
use super::cpu::{self, Budget};
use super::log::Log;
use super::peer::Peer;

/// The longest that a user that has used up its CPU time waits; after that, it is refused. Requests in
/// a run are answered as long as the wait would be shorter.
const CPU_WAIT: Duration = Duration::from_secs(10);

/// The limits of a run, and what other clients may know of it.
pub struct RunLimits {
    /// The user for whom it counts.
    pub owner: u32,
    pub account: Arc<Account>,
    budget: Arc<Budget>,
    pub log: Arc<Log>,
    /// The session's table of kernel stacks, once it is loaded: programs in the session may ask for
    /// the stacks' functions.
    pub stacks: OnceLock<MapHandle>,
    given: Mutex<Vec<Given>>,
}

/// A map that was given to the client, which may hold it after the run.
pub struct Given {
    pub map: u32,
    _memory: Share,
}

impl Given {
    pub fn new(map: u32, memory: Share) -> Given {
        Given {
            map,
            _memory: memory,
        }
    }
}

impl RunLimits {
    pub fn new(
        owner: u32,
        account: &Arc<Account>,
        budget: &Arc<Budget>,
        log: &Arc<Log>,
    ) -> RunLimits {
        RunLimits {
            owner,
            account: Arc::clone(account),
            budget: Arc::clone(budget),
            log: Arc::clone(log),
            stacks: OnceLock::new(),
            given: Mutex::default(),
        }
    }

    pub fn given(&self) -> MutexGuard<'_, Vec<Given>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the user owes so much CPU time that its requests are not answered for now.
    pub fn has_spent_all(&self, now: Instant) -> bool {
        self.budget.wait(self.owner, now) > CPU_WAIT
    }

    /// Waits until work may be done for this user.
    pub fn wait_for_cpu(&self, peer: &Peer) -> Result<()> {
        let start = Instant::now();
        loop {
            ensure!(peer.is_alive(), "the process has ended");
            let now = Instant::now();
            let wait = self.budget.wait(self.owner, now);
            if wait.is_zero() {
                return Ok(());
            }
            let is_late = now.saturating_duration_since(start) + wait > CPU_WAIT;
            ensure!(!is_late, "{}", Budget::refusal(wait));
            std::thread::sleep(wait.min(Duration::from_millis(200)));
        }
    }
}

/// Charges the run's user for the calling thread's CPU time.
pub struct Meter<'a> {
    limits: &'a RunLimits,
    charged: Duration,
}

impl Meter<'_> {
    pub fn of(limits: &RunLimits) -> Meter<'_> {
        Meter {
            limits,
            charged: Duration::ZERO,
        }
    }

    pub fn charge(&mut self) {
        let now = cpu::of_thread();
        let spent = now.saturating_sub(self.charged);
        self.charged = now;
        let limits = self.limits;
        limits.budget.charge(limits.owner, spent, Instant::now());
    }
}

impl Drop for Meter<'_> {
    fn drop(&mut self) {
        self.charge();
    }
}
