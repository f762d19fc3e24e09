// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts jobs, and wakes one thread for each.
//!
//! All idle threads could poll one eventfd. But then each job wakes all of them, and the loop that hands the job over pays for it: its
//! `write` wakes every thread that polls (fs/eventfd.c, Linux 6.18). A futex wakes exactly one. If no thread waits, the kernel is not
//! called at all.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::futex::{self, Flags};
use rustix::time::Timespec;

#[derive(Default)]
pub struct Semaphore {
    count: AtomicU32,
    /// Threads that wait, or are about to.
    waiting: AtomicU32,
}

impl Semaphore {
    /// Returns how many threads it woke.
    pub fn post(&self, count: u32) -> usize {
        // Either this sees that a thread is about to wait, or that thread sees the count.
        self.count.fetch_add(count, Ordering::SeqCst);
        match self.waiting.load(Ordering::SeqCst) {
            0 => 0,
            _ => futex::wake(&self.count, Flags::PRIVATE, count).unwrap_or(0),
        }
    }

    /// Takes one of the count. False: there was none in this time.
    pub fn wait(&self, most: Duration) -> bool {
        if self.take() {
            return true;
        }
        let end = Instant::now() + most;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let has_one = loop {
            if self.take() {
                break true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break false;
            }
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            // However it ends, the count tells.
            let _ = futex::wait(&self.count, Flags::PRIVATE, 0, Some(&timeout));
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        has_one
    }

    fn take(&self) -> bool {
        let one_less = |count: u32| count.checked_sub(1);
        let order = Ordering::SeqCst;
        self.count.fetch_update(order, order, one_less).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn each_of_the_count_is_taken_once() {
        const POSTS: u32 = 20_000;
        let semaphore = Arc::new(Semaphore::default());
        let takers: Vec<_> = (0..4)
            .map(|_| {
                let semaphore = Arc::clone(&semaphore);
                std::thread::spawn(move || {
                    let taken = (0..POSTS / 4).filter(|_| semaphore.wait(LONG)).count();
                    u32::try_from(taken).expect("few")
                })
            })
            .collect();
        for post in 0..POSTS / 2 {
            semaphore.post(2);
            if post % 64 == 0 {
                std::thread::yield_now();
            }
        }
        let taken = takers.into_iter().map(|taker| taker.join().expect("ends"));
        assert_eq!(taken.sum::<u32>(), POSTS);
        assert!(!semaphore.wait(Duration::ZERO), "none is left");
    }

    #[test]
    fn one_that_waits_in_vain_is_told_so() {
        let semaphore = Semaphore::default();
        let (began, most) = (Instant::now(), Duration::from_millis(30));
        assert!(!semaphore.wait(most));
        assert!(began.elapsed() >= most, "{:?}", began.elapsed());
        semaphore.post(1);
        assert!(semaphore.wait(most));
        assert!(!semaphore.wait(Duration::ZERO));
    }

    #[test]
    fn a_post_wakes_one() {
        const IDLE: u32 = 8;
        let semaphore = Arc::new(Semaphore::default());
        let waiters: Vec<_> = (0..IDLE)
            .map(|_| {
                let semaphore = Arc::clone(&semaphore);
                std::thread::spawn(move || semaphore.wait(LONG))
            })
            .collect();
        while semaphore.waiting.load(Ordering::SeqCst) < IDLE {
            std::thread::yield_now();
        }
        // Those that are about to sleep sleep by now.
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(semaphore.post(1), 1);
        semaphore.post(IDLE - 1);
        for waiter in waiters {
            assert!(waiter.join().expect("it ends"));
        }
    }
}
