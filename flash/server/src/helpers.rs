//! Threads that wait in place of the loops: they open what is not in the kernel's caches, and bring what files hold
//! into memory.
//!
//! Nothing here makes a loop wait, either: jobs and results go through queues without locks, and a semaphore of the
//! kernel's (an eventfd) wakes who is to take them.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_queue::{ArrayQueue, SegQueue};
use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::fs::{fadvise, Advice};
use rustix::io::{read, write, Errno};

use crate::access::passwords::{Check, Checked};
use crate::files::{File, Lookup, Root};
use crate::listing;
use crate::path_server::{Brought, How};

/// A helper without work ends after this time, unless it is the last idle one.
const IDLE: Duration = Duration::from_secs(30);
/// What is read at once to wait for a file's pages; the bytes are not used.
const SCRATCH: usize = 128 << 10;

/// Who asked, and for which of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    pub connection: usize,
    pub number: u64,
}

pub enum Work {
    /// Opens the first of several names that exists.
    Open {
        root: Arc<Root>,
        names: Vec<Vec<u8>>,
    },
    /// Brings a part of a file into memory.
    Warm {
        file: Arc<File>,
        begin: u64,
        end: u64,
    },
    /// Reads a part of a file, or its begin.
    Read {
        file: Arc<File>,
        begin: u64,
        end: u64,
    },
    /// Opens a name for another process, and brings its first bytes into memory.
    Bring {
        root: Arc<Root>,
        name: Vec<u8>,
        how: How,
    },
    /// Waits until as many helpers wait.
    #[cfg(test)]
    Meet(Arc<std::sync::Barrier>),
    /// A page with what is in a directory.
    List { directory: Arc<File>, title: String },
    /// Whether a password is right.
    Check(Box<Check>),
}

pub enum Result {
    /// Which of the names it was. If none exists, this is of the last one.
    Opened(usize, Lookup),
    Warmed,
    Read(Vec<u8>),
    Listed(Vec<u8>),
    Checked(Box<Checked>),
    Brought(Box<Brought>),
    /// The file cannot be read.
    Failed(Errno),
}

pub struct Job {
    pub ticket: Ticket,
    pub work: Work,
    pub answer_to: Arc<Inbox>,
}

/// Where results wait for a loop. Its eventfd becomes readable when there are some.
pub struct Inbox {
    results: SegQueue<(Ticket, Result)>,
    pub wakes: OwnedFd,
}

impl Inbox {
    /// # Errors
    ///
    /// The kernel has no descriptor left.
    pub fn new() -> std::io::Result<Inbox> {
        Ok(Inbox {
            results: SegQueue::new(),
            wakes: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    pub fn put(&self, ticket: Ticket, result: Result) {
        self.results.push((ticket, result));
        self.wake();
    }

    pub fn wake(&self) {
        // It cannot fail but for a counter that is full, and then the loop is awake.
        let _ = write(&self.wakes, &1u64.to_ne_bytes());
    }

    /// Takes the wake-up, and then all that is there.
    pub fn take(&self, mut each: impl FnMut(Ticket, Result)) {
        let _ = read(&self.wakes, &mut [0u8; 8]);
        while let Some((ticket, result)) = self.results.pop() {
            each(ticket, result);
        }
    }
}

/// Helpers with a queue of their own.
pub struct Pool {
    name: &'static str,
    jobs: ArrayQueue<Job>,
    semaphore: OwnedFd,
    most: usize,
    threads: AtomicUsize,
    idle: AtomicUsize,
    ends: AtomicBool,
    pub counts: Arc<Counts>,
}

/// Since the start, of a pool and of those that had its task in earlier configurations.
#[derive(Default)]
pub struct Counts {
    /// That are there now.
    pub threads: AtomicU64,
    pub jobs: AtomicU64,
    pub refused: AtomicU64,
    /// Threads that do a job now.
    pub busy: AtomicU64,
    pub busy_ns: AtomicU64,
    pub most_threads: AtomicU64,
}

impl Pool {
    /// `most`: threads; `queue`: jobs that wait for one; `prepare` is called in the first thread, from which all others
    /// come. They end with [`Pool::end`].
    ///
    /// # Errors
    ///
    /// The first thread cannot be started.
    pub fn start(
        name: &'static str,
        most: usize,
        queue: usize,
        counts: Arc<Counts>,
        prepare: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Arc<Pool>> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        let pool = Arc::new(Pool {
            name,
            jobs: ArrayQueue::new(queue.max(1)),
            semaphore: eventfd(0, flags)?,
            most: most.max(1),
            threads: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            ends: AtomicBool::new(false),
            counts,
        });
        pool.add_thread(prepare)?;
        Ok(pool)
    }

    /// Hands over a job. False: the queue is full, and the job is not done.
    pub fn submit(&self, job: Job) -> bool {
        if self.jobs.push(job).is_err() {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let _ = write(&self.semaphore, &1u64.to_ne_bytes());
        true
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
        let wakes = self.most as u64 + 1;
        let _ = write(&self.semaphore, &wakes.to_ne_bytes());
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
            // This thread may be about to wait for a disk. One that is idle has to be left for the next job, and a loop
            // starts no threads.
            if self.idle.fetch_sub(1, Ordering::Relaxed) == 1 {
                let _ = self.add_thread(|| {});
            }
            if let Some(job) = self.jobs.pop() {
                self.run(job, &mut scratch);
            }
            self.idle.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn run(&self, job: Job, scratch: &mut [u8]) {
        let begin = std::time::Instant::now();
        self.counts.busy.fetch_add(1, Ordering::Relaxed);
        let result = work(job.work, scratch);
        self.counts.busy.fetch_sub(1, Ordering::Relaxed);
        let ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.counts.busy_ns.fetch_add(ns, Ordering::Relaxed);
        self.counts.jobs.fetch_add(1, Ordering::Relaxed);
        job.answer_to.put(job.ticket, result);
    }

    /// Until there is a job. False: the thread is not needed any more.
    fn wait(&self) -> bool {
        loop {
            if read(&self.semaphore, &mut [0u8; 8]).is_ok() {
                return true;
            }
            let timeout = Timespec {
                tv_sec: IDLE.as_secs() as i64,
                tv_nsec: 0,
            };
            let mut ready = [PollFd::new(&self.semaphore, PollFlags::IN)];
            if poll(&mut ready, Some(&timeout)) == Ok(0) {
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
}

fn work(work: Work, scratch: &mut [u8]) -> Result {
    match work {
        Work::Open { root, names } => open_first(&root, &names),
        Work::Warm { file, begin, end } => warm(&file, begin, end, scratch),
        Work::Read { file, begin, end } => read_part(&file, begin, end),
        Work::Bring { root, name, how } => {
            Result::Brought(Box::new(how.bring(&root, &name, scratch)))
        }
        #[cfg(test)]
        Work::Meet(barrier) => {
            barrier.wait();
            Result::Warmed
        }
        Work::List { directory, title } => match listing::page(&directory.fd, &title) {
            Ok(page) => Result::Listed(page),
            Err(error) => Result::Failed(error),
        },
        Work::Check(check) => Result::Checked(Box::new(check.run())),
    }
}

fn open_first(root: &Root, names: &[Vec<u8>]) -> Result {
    let mut found = (0, Lookup::Missing);
    for (at, name) in names.iter().enumerate() {
        found = (at, root.open_waiting(name));
        if !matches!(found.1, Lookup::Missing) {
            break;
        }
    }
    Result::Opened(found.0, found.1)
}

/// Has all of it read at once, and waits for it piece by piece.
fn warm(file: &File, begin: u64, end: u64, scratch: &mut [u8]) -> Result {
    let length = std::num::NonZeroU64::new(end.saturating_sub(begin));
    let _ = fadvise(&file.fd, begin, length, Advice::WillNeed);
    let mut at = begin;
    while at < end {
        let here = scratch.len().min((end - at) as usize);
        match rustix::io::pread(&file.fd, &mut scratch[..here], at) {
            Ok(0) => break, // it has become shorter
            Ok(read) => at += read as u64,
            Err(Errno::INTR) => {}
            Err(error) => return Result::Failed(error),
        }
    }
    Result::Warmed
}

fn read_part(file: &File, begin: u64, end: u64) -> Result {
    let length = usize::try_from(end.saturating_sub(begin)).unwrap_or(SCRATCH);
    let mut bytes = vec![0; length.min(SCRATCH)];
    loop {
        match rustix::io::pread(&file.fd, &mut bytes, begin) {
            Ok(read) => {
                bytes.truncate(read);
                return Result::Read(bytes);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Result::Failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(number: u64) -> Ticket {
        Ticket {
            connection: 1,
            number,
        }
    }

    fn wait_for(inbox: &Inbox, count: usize) -> Vec<(Ticket, Result)> {
        let mut results = Vec::new();
        while results.len() < count {
            let mut ready = [PollFd::new(&inbox.wakes, PollFlags::IN)];
            let timeout = Timespec {
                tv_sec: 20,
                tv_nsec: 0,
            };
            assert_eq!(poll(&mut ready, Some(&timeout)), Ok(1), "no result came");
            inbox.take(|ticket, result| results.push((ticket, result)));
        }
        results
    }

    /// Jobs that come while all helpers wait for a disk get helpers of their own.
    #[test]
    fn a_helper_that_waits_keeps_no_job_from_another() {
        let inbox = Arc::new(Inbox::new().expect("descriptors"));
        let pool = Pool::start("helper", 4, 10, Arc::default(), || {}).expect("threads");
        let barrier = Arc::new(std::sync::Barrier::new(4));
        for number in 0..4 {
            // The helpers before are already waiting.
            std::thread::sleep(Duration::from_millis(20));
            let work = Work::Meet(Arc::clone(&barrier));
            let answer_to = Arc::clone(&inbox);
            let ticket = ticket(number);
            assert!(pool.submit(Job {
                ticket,
                work,
                answer_to
            }));
        }
        assert_eq!(wait_for(&inbox, 4).len(), 4);
        assert_eq!(pool.threads(), 4);
    }

    #[test]
    fn jobs_are_answered_by_as_many_threads_as_it_takes() {
        let place = tempfile::tempdir().expect("a directory");
        std::fs::write(place.path().join("a"), vec![7; 300_000]).expect("room");
        let root = Arc::new(Root::open(place.path()).expect("it is there"));
        let inbox = Arc::new(Inbox::new().expect("descriptors"));
        let pool = Pool::start("helper", 4, 1000, Arc::default(), || {}).expect("threads");
        for number in 0..200 {
            let work = Work::Open {
                root: Arc::clone(&root),
                names: vec![b"none".to_vec(), b"a".to_vec()],
            };
            let answer_to = Arc::clone(&inbox);
            let ticket = ticket(number);
            assert!(pool.submit(Job {
                ticket,
                work,
                answer_to
            }));
        }
        let results = wait_for(&inbox, 200);
        let mut numbers: Vec<u64> = results.iter().map(|(ticket, _)| ticket.number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..200).collect::<Vec<u64>>());
        assert!((1..=4).contains(&pool.threads()));
        let Some((_, Result::Opened(1, Lookup::Found(file)))) = results.into_iter().next() else {
            panic!("it is there");
        };
        let work = Work::Warm {
            file,
            begin: 0,
            end: 1 << 20,
        };
        let answer_to = Arc::clone(&inbox);
        assert!(pool.submit(Job {
            ticket: ticket(7),
            work,
            answer_to
        }));
        assert!(matches!(wait_for(&inbox, 1)[0], (_, Result::Warmed)));
    }
}
