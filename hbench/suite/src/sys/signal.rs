// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals: installing a handler, delivering to it, and faults that a handler repairs.

use std::io;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::Mapping;

/// Signals that were delivered.
pub static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_signal: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Installs a handler of SIGUSR1 that counts.
pub fn install_handler() -> io::Result<()> {
    let handler: extern "C" fn(libc::c_int) = count;
    install(libc::SIGUSR1, handler as libc::sighandler_t, 0)
}

fn install(signal: libc::c_int, handler: libc::sighandler_t, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: all fields may be zero.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    // SAFETY: the kernel reads the structure, and the handlers do what handlers may do.
    match unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends SIGUSR1 to this process, whose number that is, and which has it handled before the call returns.
#[inline(always)]
pub fn raise(own: u32) {
    // SAFETY: no memory is passed.
    unsafe { libc::kill(own.cast_signed(), libc::SIGUSR1) };
}

static GUARDED: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());
static GUARDED_BYTES: AtomicUsize = AtomicUsize::new(0);
static FAULTS: AtomicU64 = AtomicU64::new(0);

extern "C" fn repair(_signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let (begin, bytes) = (
        GUARDED.load(Ordering::Relaxed),
        GUARDED_BYTES.load(Ordering::Relaxed),
    );
    // SAFETY: the kernel passes the address of the fault.
    let at = unsafe { (*info).si_addr() } as usize;
    if at.wrapping_sub(begin as usize) >= bytes {
        // A fault elsewhere is a mistake of this program.
        // SAFETY: may be called in a handler.
        unsafe { libc::abort() };
    }
    FAULTS.fetch_add(1, Ordering::Relaxed);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: it is the guarded mapping; mprotect may be called in a handler on Linux.
    unsafe { libc::mprotect(begin, bytes, access) };
}

/// Writes to memory that may not be written, which a handler of SIGSEGV makes writable.
#[derive(Debug)]
pub struct Faults<'a>(&'a Mapping);

impl<'a> Faults<'a> {
    pub fn of(mapping: &'a Mapping) -> io::Result<Faults<'a>> {
        GUARDED.store(mapping.address().cast(), Ordering::Relaxed);
        GUARDED_BYTES.store(mapping.bytes(), Ordering::Relaxed);
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = repair;
        install(
            libc::SIGSEGV,
            handler as libc::sighandler_t,
            libc::SA_SIGINFO,
        )?;
        Ok(Faults(mapping))
    }

    /// Makes the memory read-only, writes to it, and returns the number of faults so far.
    pub fn one(&self) -> io::Result<u64> {
        self.0.protect(false)?;
        self.0.all().touch(self.0.bytes(), 1);
        Ok(FAULTS.load(Ordering::Relaxed))
    }
}

/// The interval timer of this process, whose signal the calling thread waits for.
#[derive(Debug)]
pub struct IntervalTimer(libc::sigset_t);

impl IntervalTimer {
    /// Blocks SIGALRM in this thread: a signal that arrives before it is waited for is kept.
    pub fn new() -> io::Result<IntervalTimer> {
        // SAFETY: the calls write the set, and read it.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGALRM);
            match libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) {
                0 => Ok(IntervalTimer(set)),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }

    pub fn sleep(&self, duration: Duration) -> io::Result<()> {
        // SAFETY: all fields may be zero, which asks for one signal alone.
        let mut timer: libc::itimerval = unsafe { std::mem::zeroed() };
        timer.it_value.tv_sec = duration.as_secs() as libc::time_t;
        timer.it_value.tv_usec = duration.subsec_micros() as libc::suseconds_t;
        // SAFETY: the kernel reads the times.
        if unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        loop {
            // SAFETY: the kernel reads the set.
            if unsafe { libc::sigwaitinfo(&self.0, std::ptr::null_mut()) } == libc::SIGALRM {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}
