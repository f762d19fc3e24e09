// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that wait in place of the loops: they open what is not in the kernel's caches, and bring what files hold
//! into memory.
//!
//! Nothing here makes a loop wait, either: jobs and results go through queues without locks, a loop only tries the one
//! lock that there is (of `flights`), and a futex wakes the one helper that is to take a job, an eventfd the loop that is
//! to take a result.

mod caller;
mod flights;
mod inbox;
mod key;
mod policy;
pub mod pools;
mod queues;
pub mod reading;
mod semaphore;
mod turns;
pub mod windows;
mod work;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use crate::ending::PanicGuard;
use crate::files::{Lookup, Root};

pub use caller::{Caller, Want};
use flights::Flights;
pub use inbox::{Inbox, Ticket};
use key::Key;
use queues::{Kind, Queues};
use reading::Reading;
use semaphore::Semaphore;
use turns::{Turn, Turns};
use windows::Asker;
use work::SCRATCH;
pub use work::{Result, Work};

/// A helper without work ends after this time, unless it is the last idle one.
const IDLE: Duration = Duration::from_secs(30);

pub struct Job {
    pub caller: Caller,
    pub work: Work,
}

struct Queued {
    /// By which other jobs find it.
    key: Option<Key>,
    job: Job,
    /// Until it is done.
    reading: Option<Reading>,
    /// Of a name.
    asker: Option<Asker>,
}

impl Queued {
    fn new(key: Option<Key>, job: Job, asker: Option<Asker>) -> Queued {
        let reading = job.work.reads().map(Reading::begin);
        Queued {
            key,
            job,
            reading,
            asker,
        }
    }
}

/// What the jobs of a pool wait for.
#[derive(Clone, Default)]
pub struct Device {
    /// Does what is on another device. `None`: whatever device it is on, this pool does it.
    elsewhere: Option<Arc<Pool>>,
    /// Of all pools that wait for this device. `None`: they are several devices.
    turns: Option<Arc<Turns>>,
    /// Which of these pools it is.
    line: usize,
}

impl Device {
    /// One device, for all jobs.
    pub fn alone() -> Device {
        Device {
            elsewhere: None,
            turns: Some(Arc::default()),
            line: 0,
        }
    }
}

/// Helpers with a queue of their own.
pub struct Pool {
    name: &'static str,
    jobs: Queues<Queued>,
    flights: Flights,
    device: Device,
    semaphore: Semaphore,
    most: usize,
    threads: AtomicUsize,
    idle: AtomicUsize,
    ends: AtomicBool,
    /// What jobs have taken of late.
    typical_ns: AtomicU64,
    pub counts: Arc<Counts>,
}

/// Since the start, of a pool and of those that had its task in earlier configurations.
#[derive(Default)]
pub struct Counts {
    /// That are there now.
    pub threads: AtomicU64,
    pub jobs: AtomicU64,
    /// Requests that had the result of another's job.
    pub joined: AtomicU64,
    pub refused: AtomicU64,
    /// Jobs that were not begun when it was their turn, as their clients had gone or would have had their 503 before the end.
    pub left_out: AtomicU64,
    /// Threads that do a job now.
    pub busy: AtomicU64,
    pub busy_ns: AtomicU64,
    pub most_threads: AtomicU64,
}

impl Pool {
    /// `most`: threads; `queue`: jobs of each kind that wait for one; `prepare` is called in the first thread, from which all others come.
    /// They end with [`Pool::end`].
    ///
    /// # Errors
    ///
    /// The first thread cannot be started.
    pub fn start(
        name: &'static str,
        most: usize,
        queue: usize,
        device: Device,
        counts: Arc<Counts>,
        prepare: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Arc<Pool>> {
        let pool = Arc::new(Pool {
            name,
            jobs: Queues::new(queue.max(1)),
            flights: Flights::default(),
            device,
            semaphore: Semaphore::default(),
            most: most.max(1),
            threads: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            ends: AtomicBool::new(false),
            typical_ns: AtomicU64::new(0),
            counts,
        });
        pool.add_thread(prepare)?;
        Ok(pool)
    }

    /// Hands over a job. False: the queue is full, and the job is not done.
    pub fn submit(&self, job: Job) -> bool {
        self.submit_for(None, job)
    }

    fn submit_for(&self, asker: Option<Asker>, job: Job) -> bool {
        let key = job.work.key();
        let kind = match job.work.reads() {
            Some(_) => Kind::Bytes,
            None => Kind::Name,
        };
        let flights = key.is_some().then(|| self.flights.try_look()).flatten();
        let is_taken = match (key, flights) {
            (Some(key), Some(mut flights)) if flights.has(&key) => {
                let most = self.jobs.capacity();
                let has_joined = flights.join(&key, job.caller, most);
                if has_joined {
                    self.counts.joined.fetch_add(1, Ordering::Relaxed);
                    return true;
                }
                false
            }
            (Some(key), Some(mut flights)) => {
                let queued = Queued::new(Some(key.clone()), job, asker);
                let is_taken = self.jobs.push(kind, queued);
                if is_taken {
                    flights.begin(key);
                }
                is_taken
            }
            _ => self.jobs.push(kind, Queued::new(None, job, asker)),
        };
        if !is_taken {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.semaphore.post(1);
        true
    }

    /// The device does not do more if it has many jobs at once, so they take turns.
    pub fn takes_turns(&self) -> bool {
        self.device
            .turns
            .as_ref()
            .is_some_and(|turns| turns.are_taken())
    }

    pub fn waiting(&self) -> usize {
        self.jobs.len()
    }

    #[cfg(test)]
    pub fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    /// Has the threads end, as no loop asks any more. A thread that waits for a disk ends after that.
    pub fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
        // More than there are threads; one that comes takes its own.
        self.semaphore
            .post(u32::try_from(self.most).unwrap_or(u32::MAX / 2) + 1);
    }

    /// The place for one more thread; false: there are as many as may be.
    fn take_place(&self) -> bool {
        let one_more = |threads: usize| (threads < self.most).then_some(threads + 1);
        let order = Ordering::Relaxed;
        let is_taken = self.threads.fetch_update(order, order, one_more).is_ok();
        self.counts
            .threads
            .fetch_add(u64::from(is_taken), Ordering::Relaxed);
        is_taken
    }

    fn leave_place(&self) {
        self.threads.fetch_sub(1, Ordering::Relaxed);
        self.counts.threads.fetch_sub(1, Ordering::Relaxed);
    }

    fn add_thread(
        self: &Arc<Pool>,
        prepare: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        if !self.take_place() {
            return Ok(());
        }
        let pool = Arc::clone(self);
        let builder = std::thread::Builder::new()
            .name(self.name.to_string())
            .stack_size(256 << 10);
        self.idle.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = builder.spawn(move || {
            let _guard = PanicGuard;
            policy::yield_to_loops();
            prepare();
            pool.work();
        }) {
            self.idle.fetch_sub(1, Ordering::Relaxed);
            self.leave_place();
            return Err(error);
        }
        let threads = self.threads.load(Ordering::Relaxed) as u64;
        self.counts
            .most_threads
            .fetch_max(threads, Ordering::Relaxed);
        Ok(())
    }

    fn work(self: &Arc<Pool>) {
        let mut scratch = vec![0; SCRATCH];
        while self.wait() {
            if self.ends.load(Ordering::Relaxed) {
                return self.leave_place();
            }
            // One that waits for its turn is idle: more threads would only wait behind it.
            let turns = self.device.turns.as_deref();
            let turn = turns.map_or_else(Turn::none, |turns| {
                // However many there are, no more than these would be at the device at once.
                turns.wait(self.device.line, self.jobs.len().min(self.most))
            });
            // This thread may be about to wait for a disk. One that is idle has to be left for the next job, and a loop
            // starts no threads.
            if self.idle.fetch_sub(1, Ordering::Relaxed) == 1 {
                let _ = self.add_thread(|| {});
            }
            match self.next_wanted() {
                Some(queued) => self.run(queued, &mut scratch, turn),
                // The device has done nothing.
                None => turn.leave(),
            }
            self.idle.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// For who has been woken for a job. Between its looks at the two queues another helper may have taken the one job and left
    /// one that came later, but there is one for each.
    fn next(&self) -> Queued {
        loop {
            if let Some(queued) = self.jobs.pop() {
                return queued;
            }
            std::hint::spin_loop();
        }
    }

    /// The next job of which the result will be waited for, for who has been woken for a job. `None`: of those that are there
    /// none is. Those before it are left out without a turn of their own.
    fn next_wanted(&self) -> Option<Queued> {
        loop {
            let queued = self.next();
            let typical = Duration::from_nanos(self.typical_ns.load(Ordering::Relaxed));
            if queued.job.caller.still_waits(typical) {
                return Some(queued);
            }
            let joined = match &queued.key {
                None => Vec::new(),
                Some(key) => match self.flights.end_unwanted(key, typical) {
                    None => return Some(queued),
                    Some(joined) => joined,
                },
            };
            self.counts.left_out.fetch_add(1, Ordering::Relaxed);
            if let Work::Open { .. } = queued.job.work {
                let callers = joined.into_iter().chain([queued.job.caller]);
                for caller in callers.filter(Caller::is_there) {
                    caller.answer(Result::Opened(0, Lookup::Busy));
                }
            }
            if !self.semaphore.wait(Duration::ZERO) {
                return None;
            }
            if self.ends.load(Ordering::Relaxed) {
                // Another thread may need it to end.
                self.semaphore.post(1);
                return None;
            }
        }
    }

    fn run(&self, queued: Queued, scratch: &mut [u8], turn: Turn<'_>) {
        let Queued {
            key,
            job,
            reading,
            asker,
        } = queued;
        let begin = std::time::Instant::now();
        self.counts.busy.fetch_add(1, Ordering::Relaxed);
        let Job { caller, work: todo } = job;
        let done = match (todo, &self.device.elsewhere) {
            (Work::Open { root, names, first }, Some(elsewhere)) => {
                let opened = work::open_on_device(&root, &names, first, scratch, &turn);
                opened.ok_or((root, names, first, elsewhere))
            }
            (todo, _) => Ok(work::work(todo, scratch, &turn)),
        };
        drop(turn);
        drop(reading);
        self.counts.busy.fetch_sub(1, Ordering::Relaxed);
        let ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.counts.busy_ns.fetch_add(ns, Ordering::Relaxed);
        // Of two helpers that end at once, one may be forgotten.
        let typical = self.typical_ns.load(Ordering::Relaxed);
        let typical = typical - typical / 8 + ns / 8;
        self.typical_ns.store(typical, Ordering::Relaxed);
        self.counts.jobs.fetch_add(1, Ordering::Relaxed);
        let waiting = key.map(|key| self.flights.end(&key)).unwrap_or_default();
        match done {
            Ok(result) => {
                if let (Some(asker), Result::Opened(at, lookup)) = (asker, &result) {
                    asker.learn(*at, lookup);
                }
                for other in waiting {
                    other.answer(result.copy());
                }
                caller.answer(result);
            }
            Err((root, names, first, elsewhere)) => {
                elsewhere.take_over(&root, &names, first, asker, [caller]);
                elsewhere.take_over(&root, &names, first, None, waiting);
            }
        }
    }

    /// Opens names that another pool has found to be on another device.
    fn take_over(
        &self,
        root: &Arc<Root>,
        names: &[Vec<u8>],
        first: u64,
        mut asker: Option<Asker>,
        callers: impl IntoIterator<Item = Caller>,
    ) {
        for caller in callers {
            let work = Work::Open {
                root: Arc::clone(root),
                names: names.to_vec(),
                first,
            };
            let (ticket, inbox) = (caller.ticket, Arc::clone(&caller.answer_to));
            if !self.submit_for(asker.take(), Job { caller, work }) {
                inbox.put(ticket, Result::Opened(0, Lookup::Busy));
            }
        }
    }

    /// Until there is a job. False: the thread is not needed any more.
    fn wait(&self) -> bool {
        loop {
            if self.semaphore.wait(IDLE) {
                return true;
            }
            // The last idle one stays.
            let one_less = |idle: usize| (idle > 1).then(|| idle - 1);
            let order = Ordering::Relaxed;
            if self.idle.fetch_update(order, order, one_less).is_ok() {
                self.leave_place();
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests;
