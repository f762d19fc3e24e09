//! The interface of 2004: `DeBoxControl` and the structs of Figure 2.3, made from records.

mod texts;

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_long, c_ulong};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use engine::inband::{self, Error, Last};
use engine::record::{self, Sleep, TraceEntry};
use engine::TraceOptions;

use crate::error::keep;
use texts::{Key, Text};

const SLEEPS: usize = 5;
const TRACE: usize = 200;

/// `PerSleepInfo`.
#[repr(C)]
#[derive(Clone, Copy)]
struct PerSleepInfo {
    num_sleeps: c_int,
    blocked_time: libc::timeval,
    wmesg: [c_char; 8],
    blocking_file: [c_char; 32],
    blocking_line: c_int,
    num_waiters_entry: c_int,
    num_waiters_exit: c_int,
}

/// `CallTrace`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CallTrace {
    call_site: c_ulong,
    delta_time: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
union CallTime {
    timeval: libc::timeval,
    cycles: c_long,
}

/// `DeBoxInfo`.
#[repr(C)]
pub struct DeBoxInfo {
    syscall_num: c_int,
    call_time: CallTime,
    num_pg_faults: c_int,
    num_per_sleep_info: c_int,
    trace_depth: c_int,
    psi: [PerSleepInfo; SLEEPS],
    ct: [CallTrace; TRACE],
}

const _: () = assert!(std::mem::size_of::<PerSleepInfo>() == 80);
const _: () = assert!(std::mem::size_of::<DeBoxInfo>() == 3640);

/// The state of a thread that has a buffer. Under the user tap, the word that is passed at the end
/// of the thread's calls points here.
struct Active {
    buffer: Cell<*mut DeBoxInfo>,
    /// Number of the last call that was fetched, or that had been made before DeBoxControl.
    seen: Cell<u64>,
    /// Signals that were blocked in DeBoxControl. If more are blocked now, a handler is running.
    mask: Cell<u64>,
    /// The thread is writing to the buffer: a call in a handler must not touch it.
    busy: Cell<bool>,
}

impl Drop for Active {
    /// A thread that ends no longer counts in `BUFFERS`.
    fn drop(&mut self) {
        inband::watch_thread(0);
        if !self.buffer.get().is_null() {
            BUFFERS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

thread_local! {
    static ACTIVE: Active = const {
        Active {
            buffer: Cell::new(ptr::null_mut()),
            seen: Cell::new(0),
            mask: Cell::new(0),
            busy: Cell::new(false),
        }
    };
}

/// Threads with a buffer, and whether this interface enabled DeBox: the last one disables it.
static BUFFERS: AtomicUsize = AtomicUsize::new(0);
static ENABLED_HERE: AtomicBool = AtomicBool::new(false);

/// # Safety
///
/// `buffer` is null or stays valid until the thread calls this function again.
#[no_mangle]
pub unsafe extern "C" fn DeBoxControl(
    buffer: *mut DeBoxInfo,
    max_sleeps: c_int,
    max_trace: c_int,
) -> c_int {
    if buffer.is_null() {
        return deactivate();
    }
    let (Ok(max_sleeps), Ok(max_trace)) = (u32::try_from(max_sleeps), u32::try_from(max_trace))
    else {
        return fail(&Error::Argument(
            "the limits of DeBoxControl must not be negative",
        ));
    };
    match activate(max_sleeps.min(SLEEPS as u32), max_trace.min(TRACE as u32)) {
        Err(error) => fail(&error),
        Ok(()) => {
            if replace_buffer(buffer).is_null() {
                BUFFERS.fetch_add(1, Ordering::Relaxed);
            }
            0
        }
    }
}

fn activate(max_sleeps: u32, max_trace: u32) -> Result<(), Error> {
    if !inband::is_enabled() {
        match inband::enable(&inband::Options::default()) {
            Ok(()) => ENABLED_HERE.store(true, Ordering::Relaxed),
            Err(Error::AlreadyEnabled) => {} // by another thread, just now
            Err(error) => return Err(error),
        }
    }
    if max_trace > 0 {
        inband::start_trace(&TraceOptions::default())?;
    }
    inband::set_limits(max_sleeps, max_trace)?;
    inband::resume()?;
    let is_told = inband::watch(fill_at_end)?;
    ACTIVE.with(|active| {
        if is_told {
            active.mask.set(blocked_signals());
            inband::watch_thread(ptr::from_ref(active) as usize);
        }
        let last = inband::last().map_or(0, inband::Last::number);
        active.seen.set(last);
    });
    Ok(())
}

fn deactivate() -> c_int {
    if replace_buffer(ptr::null_mut()).is_null() {
        return 0;
    }
    // Neither can fail in a way that matters: without records there is nothing to pause.
    let _ = inband::pause();
    if BUFFERS.fetch_sub(1, Ordering::Relaxed) == 1 && ENABLED_HERE.swap(false, Ordering::Relaxed) {
        let _ = inband::disable();
    }
    0
}

fn replace_buffer(with: *mut DeBoxInfo) -> *mut DeBoxInfo {
    ACTIVE.with(|active| {
        if with.is_null() {
            inband::watch_thread(0);
        }
        active.buffer.replace(with)
    })
}

#[no_mangle]
pub extern "C" fn DeBoxFetch() -> c_int {
    ACTIVE.with(|active| {
        if active.buffer.get().is_null() {
            return fail(&Error::Argument(
                "this thread has no buffer: call DeBoxControl first",
            ));
        }
        let Some(last) = inband::last().filter(|last| last.number() != active.seen.get()) else {
            return 0;
        };
        active.seen.set(last.number());
        fill(active, May::Allocate);
        1
    })
}

/// The end of a tapped call on a thread with a buffer, wherever the call was made.
fn fill_at_end(word: usize) {
    // SAFETY: the word is the address of the thread's own ACTIVE, and is reset before that is
    // dropped.
    let active = unsafe { &*(word as *const Active) };
    fill(active, May::AllocateOutsideHandlers);
}

/// What is allowed in order to find a label that is not known yet.
#[derive(Clone, Copy, PartialEq)]
enum May {
    Allocate,
    /// The call may have been made by a signal handler on top of an allocation.
    AllocateOutsideHandlers,
}

/// Brings the thread's buffer up to date with its last call. A handler that interrupts this and
/// makes calls leaves the buffer alone; the loop here sees its calls.
fn fill(active: &Active, may: May) {
    if active.busy.replace(true) {
        return;
    }
    while let Some(last) = inband::last() {
        let number = last.number();
        // SAFETY: the buffer is valid until the next DeBoxControl, as its caller promised.
        unsafe { convert(active, last, may) };
        if inband::last().is_none_or(|now| now.number() == number) {
            break;
        }
    }
    active.busy.set(false);
}

/// The first 64 signals that are blocked in this thread.
fn blocked_signals() -> u64 {
    let mut mask = 0u64;
    // SAFETY: the kernel writes no more than the eight bytes given as the size. A raw call, as the
    // preload shim would count libc's function.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_rt_sigprocmask => _,
            in("rdi") libc::SIG_BLOCK,
            in("rsi") ptr::null::<u64>(),
            in("rdx") &mut mask,
            in("r10") std::mem::size_of::<u64>(),
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    mask
}

/// Whether memory may be allocated at the end of a call. A handler runs with signals blocked (at
/// least its own) that were not blocked when the program asked for results.
fn may_allocate(active: &Active, last: Last, may: May) -> bool {
    may == May::Allocate
        || (last.flags() & record::NESTED == 0 && blocked_signals() & !active.mask.get() == 0)
}

/// Converts a record. Entries beyond those that are counted stay as they are, as in 2004.
///
/// # Safety
///
/// The thread's buffer is valid for writing.
unsafe fn convert(active: &Active, last: Last, may: May) {
    // SAFETY: valid for writing, as the caller promises; C may not have initialized it, and any
    // bytes are a valid DeBoxInfo.
    let info = unsafe { &mut *active.buffer.get() };
    info.syscall_num = last.call() as c_int;
    info.call_time = CallTime {
        timeval: timeval(last.wall_ns()),
    };
    info.num_pg_faults = clamp(u64::from(last.faults_minor()) + u64::from(last.faults_major()));
    let mut entries = [TraceEntry::default(); TRACE];
    let traced = match last.trace_used() {
        0 => 0,
        _ => inband::trace(&last.copy(), &mut entries).unwrap_or(0),
    };
    for (ct, entry) in info.ct.iter_mut().zip(&entries[..traced]) {
        *ct = CallTrace {
            call_site: entry.function,
            delta_time: clamp(u64::from(entry.delta_ns)),
        };
    }
    info.trace_depth = traced as c_int;
    let used = usize::from(last.sleeps_used()).min(SLEEPS);
    for (index, psi) in info.psi[..used].iter_mut().enumerate() {
        let Some(sleep) = last.sleep(index) else {
            break;
        };
        *psi = per_sleep(&sleep, text_of(active, last, &sleep, index, may));
    }
    info.num_per_sleep_info = used as c_int;
}

/// The names of a sleep: known already, or looked up if that is allowed here and now.
fn text_of(active: &Active, last: Last, sleep: &Sleep, index: usize, may: May) -> Text {
    let key = Key::of(last, sleep);
    if let Some(known) = texts::find(&key) {
        return known;
    }
    if !may_allocate(active, last, may) {
        return Text::unknown("?");
    }
    match inband::explain(&last.copy(), index) {
        Err(_) => Text::unknown("unknown"),
        Ok(explained) => {
            let text = Text::of(&explained);
            texts::keep(key, text);
            text
        }
    }
}

fn per_sleep(sleep: &Sleep, text: Text) -> PerSleepInfo {
    PerSleepInfo {
        num_sleeps: clamp(u64::from(sleep.count)),
        blocked_time: timeval(sleep.blocked_ns),
        wmesg: text.wmesg,
        blocking_file: text.blocking_file,
        blocking_line: text.blocking_line,
        num_waiters_entry: clamp(u64::from(sleep.waiters_entry)),
        num_waiters_exit: clamp(u64::from(sleep.waiters_exit)),
    }
}

fn timeval(ns: u64) -> libc::timeval {
    libc::timeval {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_usec: (ns % 1_000_000_000 / 1000) as libc::suseconds_t,
    }
}

fn clamp(value: u64) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

/// Returns -1 and sets errno and the detailed text.
fn fail(error: &Error) -> c_int {
    keep(error);
    let code = match error {
        Error::Privilege(_) => libc::EPERM,
        Error::Unsupported(_) => libc::ENOSYS,
        Error::Argument(_) => libc::EINVAL,
        Error::NotMonitored => libc::EAGAIN,
        _ => libc::EIO,
    };
    // SAFETY: errno of this thread is always there.
    unsafe { *libc::__errno_location() = code };
    -1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_becomes_what_it_was_in_2004() {
        let sleep = Sleep {
            count: 3,
            blocked_ns: 1_234_567_890,
            waiters_entry: 2,
            waiters_exit: 1,
            ..Sleep::default()
        };
        let info = per_sleep(&sleep, Text::unknown("?"));
        assert_eq!(
            (
                info.num_sleeps,
                info.num_waiters_entry,
                info.num_waiters_exit
            ),
            (3, 2, 1)
        );
        assert_eq!(
            (info.blocked_time.tv_sec, info.blocked_time.tv_usec),
            (1, 234_567)
        );
        assert_eq!((info.wmesg[0] as u8, info.wmesg[1]), (b'?', 0));
    }

    #[test]
    fn blocked_signals_are_seen() {
        let before = blocked_signals();
        // SAFETY: the set is valid, and this thread gets its mask back.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut set, libc::SIGUSR1);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut());
            let added = blocked_signals() & !before;
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, ptr::null_mut());
            assert_eq!(added, 1 << (libc::SIGUSR1 - 1));
        }
        assert_eq!(blocked_signals(), before);
    }
}
