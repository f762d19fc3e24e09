// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests of one loop that wait for a process of an application, and the channels that the loop listens to.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{fence, Ordering};
use std::sync::Arc;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::pool::{Pool, Process, Waiter};
use crate::helpers::Inbox;
use crate::upstream::links::Owner;

pub struct Queues {
    epoll: OwnedFd,
    queues: Vec<Queue>,
    counted: usize,
}

struct Queue {
    pool: Arc<Pool>,
    waiter: Arc<Waiter>,
    requests: VecDeque<Owner>,
}

impl Queues {
    /// `epoll`: the loop's own. `name`: of the events that say that there are new processes.
    ///
    /// # Errors
    ///
    /// The kernel has no memory left.
    pub fn new(
        epoll: OwnedFd,
        pools: &[Arc<Pool>],
        inbox: &Arc<Inbox>,
        name: u64,
    ) -> Result<Queues, Errno> {
        for pool in pools {
            let flags = EventFlags::IN | EventFlags::ET;
            epoll::add(&epoll, pool.arrivals(), EventData::new_u64(name), flags)?;
        }
        let queues = pools.iter().map(|pool| Queue {
            pool: Arc::clone(pool),
            waiter: Arc::new(Waiter::new(Arc::clone(inbox))),
            requests: VecDeque::new(),
        });
        let queues = queues.collect();
        Ok(Queues {
            epoll,
            queues,
            counted: 0,
        })
    }

    fn of(&mut self, pool: &Arc<Pool>) -> Option<&mut Queue> {
        let mut queues = self.queues.iter_mut();
        queues.find(|queue| Arc::ptr_eq(&queue.pool, pool))
    }

    /// A process for a new request, unless others wait for one.
    pub fn take(&mut self, pool: &Arc<Pool>) -> Option<Process> {
        let has_others = self
            .of(pool)
            .is_some_and(|queue| !queue.requests.is_empty());
        match has_others {
            true => None,
            false => pool.take(),
        }
    }

    /// False: too many requests wait already.
    pub fn enter(&mut self, pool: &Arc<Pool>, owner: Owner) -> bool {
        let Some(queue) = self.of(pool) else {
            return false;
        };
        let is_in = queue.pool.enter();
        if is_in {
            queue.requests.push_back(owner);
        }
        is_in
    }

    /// It waits no more.
    pub fn leave(&mut self, pool: &Arc<Pool>, owner: Owner) {
        let Some(queue) = self.of(pool) else {
            return;
        };
        if let Some(at) = queue.requests.iter().position(|its| *its == owner) {
            queue.requests.remove(at);
            queue.pool.leave();
        }
    }

    /// The next request that can have a process.
    pub fn next_served(&mut self) -> Option<(Owner, Arc<Pool>, Process)> {
        for queue in &mut self.queues {
            if queue.requests.is_empty() {
                continue;
            }
            queue.pool.list(&queue.waiter);
            fence(Ordering::SeqCst);
            if let Some(process) = queue.pool.take() {
                queue.pool.leave();
                let owner = queue.requests.pop_front()?;
                return Some((owner, Arc::clone(&queue.pool), process));
            }
        }
        None
    }

    /// Other loops may need what this one was woken for.
    pub fn pass_on(&self) {
        for queue in &self.queues {
            queue.pool.wake_one();
        }
    }

    /// Requests that wait: when this was asked last, and now.
    pub fn count(&mut self) -> (usize, usize) {
        let waiting = self.queues.iter().map(|queue| queue.requests.len()).sum();
        (std::mem::replace(&mut self.counted, waiting), waiting)
    }

    /// Has the loop woken when the process says something. `name`: of these events.
    ///
    /// # Errors
    ///
    /// The kernel has no memory left.
    pub fn listen(&self, process: &Process, name: u64) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(
            &self.epoll,
            process.channel(),
            EventData::new_u64(name),
            flags,
        )
    }

    /// Has the loop woken when bytes can be passed to a process, or from it, by this end.
    ///
    /// # Errors
    ///
    /// The kernel has no memory left.
    pub fn cross(&self, end: &OwnedFd, name: u64) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, end, EventData::new_u64(name), flags)
    }

    /// Closing the channel would not do it, as its manager has it, too.
    pub fn ignore(&self, process: &Process) {
        let _ = epoll::delete(&self.epoll, process.channel());
    }
}
