//! Tests on threads of this process, which stay blocked until it ends.

use std::cell::UnsafeCell;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::sync::Barrier;
use std::thread;

use super::*;

struct Mutex(UnsafeCell<libc::pthread_mutex_t>);
struct RwLock(UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: the type is made to be used by several threads.
unsafe impl Sync for Mutex {}
// SAFETY: as above.
unsafe impl Sync for RwLock {}

impl Mutex {
    fn leak() -> &'static Mutex {
        Box::leak(Box::new(Mutex(UnsafeCell::new(
            libc::PTHREAD_MUTEX_INITIALIZER,
        ))))
    }

    fn lock(&self) {
        // SAFETY: it was initialised and is never freed.
        assert_eq!(unsafe { libc::pthread_mutex_lock(self.0.get()) }, 0);
    }

    fn lock_for(&self, time: Duration) -> libc::c_int {
        let mut until = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the clock exists, and `until` and the mutex outlive the call.
        unsafe {
            libc::clock_gettime(libc::CLOCK_REALTIME, &mut until);
            until.tv_sec += time.as_secs() as libc::time_t;
            libc::pthread_mutex_timedlock(self.0.get(), &until)
        }
    }
}

fn own_tid() -> u32 {
    // SAFETY: the call has no arguments.
    unsafe { libc::gettid() as u32 }
}

/// Starts a thread that sends its id and then runs `body`.
fn start(tids: &Sender<u32>, body: impl FnOnce() + Send + 'static) {
    let tids = tids.clone();
    thread::spawn(move || {
        tids.send(own_tid()).unwrap();
        body();
    });
}

fn tids(from: &Receiver<u32>, count: usize) -> Vec<u32> {
    (0..count).map(|_| from.recv().unwrap()).collect()
}

/// Looks until there is a circle.
#[track_caller]
fn found(watch: &mut Watch, tids: &[u32]) -> Circle {
    // Each round pretends that the threads are in another sleep.
    for round in 0..1000 {
        let sleepers: Vec<(u32, u64)> = tids.iter().map(|tid| (*tid, round)).collect();
        let mut circles = watch.look(&sleepers);
        if let Some(circle) = circles.pop() {
            assert!(circles.is_empty(), "{circles:#?}");
            return circle;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("no circle among {tids:?}");
}

/// Threads that lock one mutex and then the next one's.
fn circle_of(count: usize) -> Vec<u32> {
    let mutexes: Vec<&'static Mutex> = (0..count).map(|_| Mutex::leak()).collect();
    let barrier = Arc::new(Barrier::new(count));
    let (sender, receiver) = channel();
    for index in 0..count {
        let (first, second) = (mutexes[index], mutexes[(index + 1) % count]);
        let barrier = Arc::clone(&barrier);
        start(&sender, move || {
            first.lock();
            barrier.wait();
            second.lock();
        });
    }
    tids(&receiver, count)
}

#[test]
fn two_and_three_threads_and_one_alone_are_found() {
    for count in [2, 3, 1] {
        let threads = circle_of(count);
        let mut watch = Watch::default();
        let circle = found(&mut watch, &threads);
        assert_eq!(circle.waits.len(), count);
        for (wait, next) in circle.waits.iter().zip(circle.waits.iter().cycle().skip(1)) {
            assert_eq!((wait.kind, wait.holder), (Kind::Mutex, next.tid));
            assert!(!wait.has_timeout && wait.call == NR_FUTEX);
        }
        // It is reported once.
        let again: Vec<(u32, u64)> = threads.iter().map(|tid| (*tid, 5000)).collect();
        assert!(watch.look(&again).is_empty());
    }
}

#[test]
fn a_circle_is_followed_through_threads_that_are_not_asked_for() {
    let threads = circle_of(3);
    let circle = found(&mut Watch::default(), &threads[..1]);
    assert_eq!(circle.waits.len(), 3);
}

#[test]
fn a_join_closes_a_circle() {
    let mutex = Mutex::leak();
    let (sender, receiver) = channel();
    let (inner, outer) = (sender.clone(), sender);
    start(&outer, move || {
        mutex.lock();
        let tids = inner.clone();
        let worker = thread::spawn(move || {
            tids.send(own_tid()).unwrap();
            mutex.lock();
        });
        let _ = worker.join();
    });
    let threads = tids(&receiver, 2);
    let circle = found(&mut Watch::default(), &threads);
    let mut kinds: Vec<Kind> = circle.waits.iter().map(|wait| wait.kind).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, [Kind::Mutex, Kind::ThreadEnd]);
}

#[test]
fn the_writer_of_a_rwlock_is_known() {
    let lock: &'static RwLock = Box::leak(Box::new(RwLock(UnsafeCell::new(
        libc::PTHREAD_RWLOCK_INITIALIZER,
    ))));
    // SAFETY: it was initialised and is never freed.
    assert_eq!(unsafe { libc::pthread_rwlock_wrlock(lock.0.get()) }, 0);
    let (sender, receiver) = channel();
    // SAFETY: as above.
    start(&sender, move || unsafe {
        libc::pthread_rwlock_rdlock(lock.0.get());
    });
    // SAFETY: as above.
    start(&sender, move || unsafe {
        libc::pthread_rwlock_wrlock(lock.0.get());
    });
    for tid in tids(&receiver, 2) {
        let mut waits = (0..1000).filter_map(|_| {
            thread::sleep(Duration::from_millis(10));
            Wait::of(tid)
        });
        let wait = waits.next().expect("it waits for the writer");
        assert_eq!((wait.kind, wait.holder), (Kind::RwLock, own_tid()));
    }
}

/// A wait that another thread will end, but that is not for anything held.
#[test]
fn what_is_no_lock_is_no_circle() {
    let (sender, receiver) = channel();
    let (never, ever) = channel::<()>();
    start(&sender, move || {
        let _ = ever.recv();
    });
    let worker = tids(&receiver, 1)[0];
    thread::sleep(Duration::from_millis(50));
    assert_eq!(Wait::of(worker), None);
    assert!(Watch::default().look(&[(worker, 1)]).is_empty());
    drop(never);
}

#[test]
fn a_circle_with_a_time_limit_says_so() {
    let (first, second) = (Mutex::leak(), Mutex::leak());
    let barrier = Arc::new(Barrier::new(2));
    let (sender, receiver) = channel();
    let other = Arc::clone(&barrier);
    start(&sender, move || {
        first.lock();
        barrier.wait();
        second.lock_for(Duration::from_secs(60));
    });
    start(&sender, move || {
        second.lock();
        other.wait();
        first.lock();
    });
    let threads = tids(&receiver, 2);
    let circle = found(&mut Watch::default(), &threads);
    let limited = circle.waits.iter().filter(|wait| wait.has_timeout);
    assert_eq!(limited.count(), 1);
}
