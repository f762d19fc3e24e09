//! Kinds of sessions that are being loaded, each on a thread of its own: loading probes takes some tenths of a
//! second, or seconds on a busy machine, during which the broker's loop keeps serving the other clients.

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

/// A kind that is being loaded, and the users charged for it.
pub struct Order {
    pub kind: Kind,
    /// The user charged for the CPU time.
    pub owner: u32,
    /// The user charged for the memory; `None`: all users together.
    pub memory_of: Option<u32>,
    /// This is the second attempt: there was no memory at first, and other sessions were unloaded to make
    /// room.
    pub is_again: bool,
}

/// A session on its way to another thread.
struct Loaded(Result<Shared>);

// SAFETY: a session refers only to its own parts; the thread that loaded it keeps none of them and ends.
unsafe impl Send for Loaded {}

struct Loading {
    order: Order,
    thread: JoinHandle<Loaded>,
    /// Closed when the thread ends.
    end: PipeReader,
}

#[derive(Default)]
pub struct Loadings(Vec<Loading>);

impl Loadings {
    pub fn has(&self, kind: Kind) -> bool {
        self.0.iter().any(|loading| loading.order.kind == kind)
    }

    /// Descriptors that become readable when one of the threads has ended.
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

    /// Takes the loads that have ended, with their results.
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
