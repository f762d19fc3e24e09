// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for descriptors, for futexes and for time.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

fn done(result: libc::c_int) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The number of descriptors that are ready; does not wait.
pub fn poll(descriptors: &mut [libc::pollfd]) -> io::Result<usize> {
    // SAFETY: the kernel reads and writes so many entries.
    done(unsafe {
        libc::poll(
            descriptors.as_mut_ptr(),
            descriptors.len() as libc::nfds_t,
            0,
        )
    })
}

/// Whether a read from each of the descriptors would not wait: how many; does not wait.
pub fn select(descriptors: &[RawFd]) -> io::Result<usize> {
    // SAFETY: all fields may be zero; FD_SET stays in the set, as the numbers are checked.
    let mut set = unsafe {
        let mut set: libc::fd_set = std::mem::zeroed();
        for descriptor in descriptors {
            if *descriptor as usize >= libc::FD_SETSIZE {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            libc::FD_SET(*descriptor, &mut set);
        }
        set
    };
    let most = descriptors.iter().max().map_or(0, |most| most + 1);
    let mut now = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    let none = std::ptr::null_mut();
    // SAFETY: the kernel reads and writes the set and the time.
    done(unsafe { libc::select(most, &mut set, none, none, &mut now) })
}

#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl Epoll {
    pub fn new() -> io::Result<Epoll> {
        // SAFETY: no memory is passed, and the descriptor is nobody else's.
        unsafe {
            let descriptor = done(libc::epoll_create1(libc::EPOLL_CLOEXEC))?;
            Ok(Epoll(OwnedFd::from_raw_fd(descriptor as RawFd)))
        }
    }

    pub fn add(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: descriptor.as_raw_fd() as u64,
        };
        let (own, other) = (self.0.as_raw_fd(), descriptor.as_raw_fd());
        // SAFETY: the kernel reads the event.
        done(unsafe { libc::epoll_ctl(own, libc::EPOLL_CTL_ADD, other, &mut event) }).map(drop)
    }

    /// The number of ready descriptors that fit into `events`; does not wait.
    pub fn ready(&self, events: &mut [libc::epoll_event]) -> io::Result<usize> {
        let (own, most) = (self.0.as_raw_fd(), events.len() as libc::c_int);
        // SAFETY: the kernel writes at most so many events.
        done(unsafe { libc::epoll_wait(own, events.as_mut_ptr(), most, 0) })
    }
}

#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    pub fn new() -> io::Result<EventFd> {
        // SAFETY: no memory is passed, and the descriptor is nobody else's.
        unsafe {
            let descriptor = done(libc::eventfd(0, libc::EFD_CLOEXEC))?;
            Ok(EventFd(OwnedFd::from_raw_fd(descriptor as RawFd)))
        }
    }

    /// Adds one.
    pub fn add(&self) -> io::Result<()> {
        let one = 1u64;
        // SAFETY: the kernel reads eight bytes.
        let written = unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
        done(written as libc::c_int).map(drop)
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.0)
    }
}

/// Waits while the word has this value.
pub fn futex_wait(word: &AtomicU32, value: u32) {
    let no_limit = std::ptr::null::<libc::timespec>();
    // SAFETY: the kernel reads the word. Whether it waited or not is the caller's loop's affair.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            no_limit,
        )
    };
}

/// Wakes one waiter; the number that was woken.
pub fn futex_wake(word: &AtomicU32) -> i64 {
    // SAFETY: the kernel takes the word's address.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) }
}

/// Sleeps once, even if a signal shortens it.
pub fn nanosleep(duration: Duration) -> io::Result<()> {
    let time = libc::timespec {
        tv_sec: duration.as_secs() as libc::time_t,
        tv_nsec: duration.subsec_nanos() as libc::c_long,
    };
    // SAFETY: the kernel reads the time.
    done(unsafe { libc::nanosleep(&time, std::ptr::null_mut()) }).map(drop)
}

/// Sleeps by `select` without descriptors.
pub fn select_sleep(duration: Duration) -> io::Result<()> {
    let none = std::ptr::null_mut();
    let mut time = libc::timeval {
        tv_sec: duration.as_secs() as libc::time_t,
        tv_usec: duration.subsec_micros() as libc::suseconds_t,
    };
    // SAFETY: the kernel reads and writes the time.
    done(unsafe { libc::select(0, none, none, none, &mut time) }).map(drop)
}

/// Sleeps by `pselect` without descriptors.
pub fn pselect_sleep(duration: Duration) -> io::Result<()> {
    let none = std::ptr::null_mut();
    let time = libc::timespec {
        tv_sec: duration.as_secs() as libc::time_t,
        tv_nsec: duration.subsec_nanos() as libc::c_long,
    };
    // SAFETY: the kernel reads the time.
    done(unsafe { libc::pselect(0, none, none, none, &time, std::ptr::null()) }).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn what_is_ready_is_counted() {
        let event = EventFd::new().expect("an eventfd");
        let (epoll, fd) = (
            Epoll::new().expect("an epoll"),
            event.descriptor().as_raw_fd(),
        );
        epoll.add(event.descriptor()).expect("it is added");
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 2];
        let mut polled = [libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        }];
        for ready in [0, 1] {
            assert_eq!(epoll.ready(&mut events).expect("it is asked"), ready);
            assert_eq!(poll(&mut polled).expect("it is asked"), ready);
            assert_eq!(select(&[fd]).expect("it is asked"), ready);
            event.add().expect("there is room");
        }
        assert!(select(&[4096]).is_err());
    }

    #[test]
    fn a_futex_is_waited_for_only_while_it_has_the_value() {
        let word = AtomicU32::new(1);
        futex_wait(&word, 0);
        assert_eq!(futex_wake(&word), 0);
    }
}
