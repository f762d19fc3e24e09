//! Kinds of sessions that are being loaded, each on a thread of its own: to load probes takes some tenths of a
//! second, seconds on a busy machine, in which the broker's loop goes on for everybody else.

use std::io::{self, PipeReader};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::{anyhow, Result};

use super::account::Account;
use super::cpu::{self, Budget};
use super::quota::Limits;
use super::shared::{Kind, Shared};

/// For whom a kind is loaded, and at whose expense.
pub struct Order {
    pub kind: Kind,
    /// Who pays for the CPU time.
    pub owner: u32,
    /// Whose the memory is; `None`: everybody's.
    pub memory_of: Option<u32>,
    /// There was no memory at first, and others made room.
    pub is_again: bool,
}

/// A session on its way to another thread.
struct Loaded(Result<Shared>);

// SAFETY: all that a session refers to is its own: the thread that loaded it keeps nothing of it and ends.
unsafe impl Send for Loaded {}

struct Loading {
    order: Order,
    thread: JoinHandle<Loaded>,
    /// Ends with the thread.
    end: PipeReader,
}

#[derive(Default)]
pub struct Loadings(Vec<Loading>);

impl Loadings {
    pub fn has(&self, kind: Kind) -> bool {
        self.0.iter().any(|loading| loading.order.kind == kind)
    }

    /// What becomes readable when one of them has ended.
    pub fn ends(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(|loading| loading.end.as_fd())
    }

    pub fn begin(
        &mut self,
        order: Order,
        limits: Limits,
        account: &Arc<Account>,
        budget: &Arc<Budget>,
    ) -> Result<()> {
        let (end, held) = io::pipe()?;
        let (account, budget) = (Arc::clone(account), Arc::clone(budget));
        let (kind, owner, memory_of) = (order.kind, order.owner, order.memory_of);
        let load = move || {
            let _held = held;
            let opened = Shared::open(kind, &limits, &account, memory_of);
            budget.charge(owner, cpu::of_thread(), Instant::now());
            Loaded(opened)
        };
        let name = "debox-load".to_string();
        let thread = std::thread::Builder::new().name(name).spawn(load)?;
        self.0.push(Loading { order, thread, end });
        Ok(())
    }

    /// Those that have ended, and what came of them.
    pub fn take_ended(&mut self) -> Vec<(Order, Result<Shared>)> {
        let (ended, others) = self
            .0
            .drain(..)
            .partition(|loading| loading.thread.is_finished());
        self.0 = others;
        let ended: Vec<Loading> = ended;
        let opened = |loading: Loading| match loading.thread.join() {
            Ok(Loaded(opened)) => (loading.order, opened),
            Err(_) => (
                loading.order,
                Err(anyhow!("the probes could not be loaded")),
            ),
        };
        ended.into_iter().map(opened).collect()
    }
}

impl Drop for Loadings {
    fn drop(&mut self) {
        for loading in self.0.drain(..) {
            let _ = loading.thread.join();
        }
    }
}
