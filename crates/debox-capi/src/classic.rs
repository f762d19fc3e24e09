//! The interface of 2004: `DeBoxControl` and the structs of Figure 2.3, made from records.

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_long, c_ulong};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use engine::inband::{self, Error, Explanation};
use engine::record::{Record, Sleep};

use crate::error::keep;
use crate::fixed;

const SLEEPS: usize = 5;
const TRACE: usize = 200;
/// Characters of a label that `wmesg` has room for.
const WMESG: usize = 7;

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

/// A thread's buffer, null when it has none.
struct Buffer(Cell<*mut DeBoxInfo>);

impl Drop for Buffer {
    /// A thread that ends does not count any more.
    fn drop(&mut self) {
        if !self.0.get().is_null() {
            BUFFERS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

thread_local! {
    static BUFFER: Buffer = const { Buffer(Cell::new(ptr::null_mut())) };
    /// Number of the last call that was fetched, or that had been made before DeBoxControl.
    static SEEN: Cell<u64> = const { Cell::new(0) };
    /// Where the last record is copied to: too large for small stacks.
    static COPY: RefCell<Box<Record>> = RefCell::default();
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
            "the limits of DeBoxControl are not negative",
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
    inband::set_limits(max_sleeps, max_trace)?;
    inband::resume()?;
    SEEN.set(inband::last().map_or(0, inband::Last::number));
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
    BUFFER.with(|buffer| buffer.0.replace(with))
}

#[no_mangle]
pub extern "C" fn DeBoxFetch() -> c_int {
    let buffer = BUFFER.with(|buffer| buffer.0.get());
    if buffer.is_null() {
        return fail(&Error::Argument(
            "this thread has no buffer: call DeBoxControl first",
        ));
    }
    let Some(last) = inband::last() else { return 0 };
    if last.number() == SEEN.get() {
        return 0;
    }
    COPY.with_borrow_mut(|record| {
        **record = last.copy();
        SEEN.set(record.number);
        // SAFETY: the buffer is valid until the next DeBoxControl, as its caller promised.
        unsafe { fill(buffer, record) };
    });
    1
}

/// Converts a record. Entries beyond those that are counted stay as they are, as in 2004.
///
/// # Safety
///
/// `buffer` is valid for writing.
unsafe fn fill(buffer: *mut DeBoxInfo, record: &Record) {
    // SAFETY: valid for writing, as the caller promises; C may not have initialized it, and any
    // bytes are a valid DeBoxInfo.
    let info = unsafe { &mut *buffer };
    info.syscall_num = record.call;
    info.call_time = CallTime {
        timeval: timeval(record.wall_ns),
    };
    info.num_pg_faults = clamp(u64::from(record.faults_minor) + u64::from(record.faults_major));
    info.trace_depth = 0; // no probe traces functions yet
    let used = record.sleeps().len().min(SLEEPS);
    for (index, sleep) in record.sleeps()[..used].iter().enumerate() {
        let explained = inband::explain(record, index).ok();
        info.psi[index] = per_sleep(sleep, explained.as_deref());
    }
    info.num_per_sleep_info = used as c_int;
}

fn per_sleep(sleep: &Sleep, explained: Option<&Explanation>) -> PerSleepInfo {
    let (label, file, line) = match explained {
        None => ("unknown", String::new(), 0),
        Some(known) if known.file.is_empty() => (known.label.as_str(), short_site(known, 31), 0),
        Some(known) => (known.label.as_str(), known.file.clone(), known.line),
    };
    PerSleepInfo {
        num_sleeps: clamp(u64::from(sleep.count)),
        blocked_time: timeval(sleep.blocked_ns),
        wmesg: fixed(label.get(..WMESG).unwrap_or(label).trim_end()),
        blocking_file: fixed(&file),
        blocking_line: clamp(u64::from(line)),
        num_waiters_entry: clamp(u64::from(sleep.waiters_entry)),
        num_waiters_exit: clamp(u64::from(sleep.waiters_exit)),
    }
}

/// `function+0xOFF` in at most `room` characters: the function's name is cut, never the offset.
fn short_site(explained: &Explanation, room: usize) -> String {
    let site = explained.site();
    if site.len() <= room {
        return site;
    }
    let offset = format!("+{:#x}", explained.offset);
    let kept = room.saturating_sub(offset.len());
    let function: String = explained.function.chars().take(kept).collect();
    function + &offset
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

/// -1, with errno and the detailed text.
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
    use engine::labels::Class;

    fn explanation(function: &str, offset: u64) -> Explanation {
        Explanation {
            label: "page writeback".to_string(),
            class: Class::Disk,
            function: function.to_string(),
            offset,
            file: String::new(),
            line: 0,
            frames: Vec::new(),
        }
    }

    fn text(bytes: &[c_char]) -> String {
        bytes
            .iter()
            .take_while(|c| **c != 0)
            .map(|c| *c as u8 as char)
            .collect()
    }

    #[test]
    fn sites_keep_their_offset() {
        assert_eq!(short_site(&explanation("short", 0x1a), 31), "short+0x1a");
        let long = explanation("a_function_with_a_very_long_name_indeed", 0x1a3);
        assert_eq!(short_site(&long, 31), "a_function_with_a_very_lo+0x1a3");
        assert_eq!(short_site(&long, 31).len(), 31);
    }

    #[test]
    fn a_sleep_becomes_what_it_was_in_2004() {
        let sleep = Sleep {
            count: 3,
            blocked_ns: 1_234_567_890,
            waiters_entry: 2,
            waiters_exit: 1,
            ..Sleep::default()
        };
        let info = per_sleep(&sleep, Some(&explanation("wb_wait", 0x10)));
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
        assert_eq!(text(&info.wmesg), "page wr");
        let mapped = Explanation {
            label: "mapped page".to_string(),
            ..explanation("f", 0)
        };
        assert_eq!(text(&per_sleep(&sleep, Some(&mapped)).wmesg), "mapped");
        assert_eq!(text(&info.blocking_file), "wb_wait+0x10");
        assert_eq!(info.blocking_line, 0);
    }

    #[test]
    fn debug_information_goes_to_file_and_line() {
        let known = Explanation {
            file: "mm/filemap.c".to_string(),
            line: 1234,
            ..explanation("folio_wait_bit_common", 1)
        };
        let info = per_sleep(&Sleep::default(), Some(&known));
        assert_eq!(text(&info.blocking_file), "mm/filemap.c");
        assert_eq!(info.blocking_line, 1234);
    }
}
