//! The C interface of `debox/include/debox.h`, and the one of 2004 (`debox/include/debox_2004.h`) on top.
//!
//! The headers document each function. Here are only the translations: of pointers to references, of errors to codes
//! and texts, of strings to fixed-size arrays.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod classic;
mod error;
mod names;
mod scope;

use std::ffi::{c_char, c_int, c_uint, c_void, CStr};
use std::ptr;

use engine::inband::{self, Error};
use engine::record::{Record, TraceEntry};
use engine::{Detail, Tap, TraceOptions};

use error::{code_of, keep, outcome};

/// `struct debox_options`.
#[repr(C)]
pub struct Options {
    size: u32,
    max_threads: u32,
    detail: u32,
    tap: u32,
    reserved: [u32; 4],
}

const DETAIL_SLEEPS: u32 = 1 << 0;
const DETAIL_IRQ: u32 = 1 << 1;
const DETAIL_CPU: u32 = 1 << 2;
const TAP_ANY: u32 = 0;
const TAP_KERNEL: u32 = 1;
const TAP_USER: u32 = 2;

/// `struct debox_explanation`.
#[repr(C)]
pub struct Explanation {
    label: [c_char; 48],
    wait_class: [c_char; 16],
    function: [c_char; 64],
    offset: u64,
    file: [c_char; 120],
    line: u32,
    reserved: u32,
}

const _: () = assert!(std::mem::size_of::<Options>() == 32);
const _: () = assert!(std::mem::size_of::<Explanation>() == 264);

/// # Safety
///
/// `options` is null or points to a `struct debox_options`.
#[no_mangle]
pub unsafe extern "C" fn debox_enable(options: *const Options) -> c_int {
    // SAFETY: null or valid, as the caller promises.
    let chosen = match unsafe { options.as_ref() } {
        None => Ok(inband::Options::default()),
        Some(options) => read_options(options),
    };
    outcome(chosen.and_then(|options| inband::enable(&options)))
}

fn read_options(options: &Options) -> Result<inband::Options, Error> {
    if options.size as usize != std::mem::size_of::<Options>() {
        return Err(Error::Argument(
            "options.size is not that of struct debox_options",
        ));
    }
    if options.detail & !(DETAIL_SLEEPS | DETAIL_IRQ | DETAIL_CPU) != 0
        || options.reserved != [0; 4]
    {
        return Err(Error::Argument(
            "options asks for something that this version does not support",
        ));
    }
    let tap = match options.tap {
        TAP_ANY => None,
        TAP_KERNEL => Some(Tap::Kernel),
        TAP_USER => Some(Tap::User),
        _ => return Err(Error::Argument("options.tap is not a valid tap")),
    };
    let defaults = inband::Options::default();
    Ok(inband::Options {
        max_threads: match options.max_threads {
            0 => defaults.max_threads,
            count => count,
        },
        detail: Detail {
            sleeps: options.detail & DETAIL_SLEEPS != 0,
            irq: options.detail & DETAIL_IRQ != 0,
            cpu: options.detail & DETAIL_CPU != 0,
            ..Detail::default()
        },
        tap,
    })
}

#[no_mangle]
pub extern "C" fn debox_disable() -> c_int {
    outcome(inband::disable())
}

#[no_mangle]
pub extern "C" fn debox_last() -> *const Record {
    inband::last().map_or(ptr::null(), inband::Last::as_ptr)
}

/// # Safety
///
/// `out` has room for `n` records.
#[no_mangle]
pub unsafe extern "C" fn debox_history(out: *mut Record, n: c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { copy(out, n, inband::history) }
}

/// # Safety
///
/// `out` has room for `n` records.
#[no_mangle]
pub unsafe extern "C" fn debox_history_of(tid: c_int, out: *mut Record, n: c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { copy(out, n, |records| inband::history_of(tid, records)) }
}

/// # Safety
///
/// `out` has room for `n` records.
unsafe fn copy(
    out: *mut Record,
    n: c_int,
    fill: impl FnOnce(&mut [Record]) -> Result<usize, Error>,
) -> c_int {
    let count = match usize::try_from(n) {
        Ok(count) if count == 0 || !out.is_null() => count,
        _ => return code_of(&Error::Argument("")),
    };
    let records = match count {
        0 => &mut [],
        // SAFETY: there is room for that many, as the caller promises, and any bytes are a record.
        _ => unsafe { std::slice::from_raw_parts_mut(out, count) },
    };
    // Signal-safe: the code alone, no text.
    fill(records).map_or_else(|error| code_of(&error), |copied| copied as c_int)
}

#[no_mangle]
pub extern "C" fn debox_pause() -> c_int {
    inband::pause().map_or_else(|error| code_of(&error), |()| 0)
}

#[no_mangle]
pub extern "C" fn debox_resume() -> c_int {
    inband::resume().map_or_else(|error| code_of(&error), |()| 0)
}

#[no_mangle]
pub extern "C" fn debox_set_limits(max_sleeps: c_uint, max_trace: c_uint) -> c_int {
    inband::set_limits(max_sleeps, max_trace).map_or_else(|error| code_of(&error), |()| 0)
}

/// A function of the engine under a name of this interface. The code jumps to it instead of calling it, as the stamps
/// use the frame and the return address of the original caller.
macro_rules! jump {
    ($($name:ident => $target:ident;)*) => {
        $(
            /// # Safety
            ///
            /// As `debox/include/debox.h` says.
            #[unsafe(naked)]
            #[no_mangle]
            pub unsafe extern "C" fn $name() {
                core::arch::naked_asm!("jmp {}", sym inband::entry::$target)
            }
        )*
    };
}

jump! {
    debox_call => debox_inband_call;
    debox_call_begin => debox_inband_begin;
    debox_call_end => debox_inband_end;
}

/// # Safety
///
/// `record` and `out` are null or valid.
#[no_mangle]
pub unsafe extern "C" fn debox_explain(
    record: *const Record,
    index: c_int,
    out: *mut Explanation,
) -> c_int {
    if record.is_null() || out.is_null() {
        return keep(&Error::Argument(
            "debox_explain needs a record and room for the result",
        ));
    }
    let Ok(index) = usize::try_from(index) else {
        return keep(&Error::Argument(
            "the index of a sleep must not be negative",
        ));
    };
    // SAFETY: valid, as the caller promises; a copy, as the kernel may write to the original.
    let record = unsafe { ptr::read_volatile(record) };
    match inband::explain(&record, index) {
        Err(error) => keep(&error),
        Ok(explained) => {
            let filled = Explanation {
                label: fixed(&explained.label),
                wait_class: fixed(explained.class.as_str()),
                function: fixed(&explained.function),
                offset: explained.offset,
                file: fixed(&explained.file),
                line: explained.line,
                reserved: 0,
            };
            // SAFETY: valid for writing, as the caller promises.
            unsafe { out.write(filled) };
            0
        }
    }
}

/// # Safety
///
/// `functions` is null or a C string.
#[no_mangle]
pub unsafe extern "C" fn debox_start_trace(functions: *const c_char) -> c_int {
    let list = if functions.is_null() {
        ""
    } else {
        // SAFETY: a C string, as the caller promises.
        match unsafe { CStr::from_ptr(functions) }.to_str() {
            Ok(list) => list,
            Err(_) => return keep(&Error::Argument("function names must be valid UTF-8")),
        }
    };
    let items = list
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty());
    let options = TraceOptions {
        functions: items.map(str::to_string).collect(),
        ..TraceOptions::default()
    };
    inband::start_trace(&options).map_or_else(|error| keep(&error), |()| 0)
}

/// # Safety
///
/// `record` is null or valid, and `out` has room for `n` entries.
#[no_mangle]
pub unsafe extern "C" fn debox_trace(
    record: *const Record,
    out: *mut TraceEntry,
    n: c_int,
) -> c_int {
    let count = match usize::try_from(n) {
        Ok(count) if !record.is_null() && (count == 0 || !out.is_null()) => count,
        _ => return code_of(&Error::Argument("")),
    };
    let entries = match count {
        0 => &mut [],
        // SAFETY: there is room for that many, as the caller promises, and any bytes are an entry.
        _ => unsafe { std::slice::from_raw_parts_mut(out, count) },
    };
    // SAFETY: valid, as the caller promises; a copy, as the kernel may write to the original.
    let record = unsafe { ptr::read_volatile(record) };
    // Signal-safe: the code alone, no text.
    inband::trace(&record, entries).map_or_else(|error| code_of(&error), |copied| copied as c_int)
}

/// # Safety
///
/// `entry` and `out` are null or valid.
#[no_mangle]
pub unsafe extern "C" fn debox_explain_trace(
    entry: *const TraceEntry,
    out: *mut Explanation,
) -> c_int {
    if entry.is_null() || out.is_null() {
        return keep(&Error::Argument(
            "debox_explain_trace needs an entry and room for the result",
        ));
    }
    // SAFETY: valid, as the caller promises.
    match inband::explain_trace(unsafe { &*entry }) {
        Err(error) => keep(&error),
        Ok(frame) => {
            let (file, line) = frame.place.as_deref().map_or(("", 0), inband::split_line);
            let filled = Explanation {
                label: fixed(""),
                wait_class: fixed(""),
                function: fixed(&frame.function),
                offset: frame.offset.unwrap_or(0),
                file: fixed(file),
                line,
                reserved: 0,
            };
            // SAFETY: valid for writing, as the caller promises.
            unsafe { out.write(filled) };
            0
        }
    }
}

/// # Safety
///
/// `predicate` is a string or null; `callback` and `argument` meet the conditions of [`inband::trigger`].
#[no_mangle]
pub unsafe extern "C" fn debox_trigger(
    predicate: *const c_char,
    signal: c_int,
    limit: c_uint,
    callback: Option<inband::Callback>,
    argument: *mut c_void,
) -> c_int {
    let Some(callback) = callback.filter(|_| !predicate.is_null()) else {
        return keep(&Error::Argument("no predicate, or no callback"));
    };
    // SAFETY: a string, as the caller promises.
    let predicate = unsafe { CStr::from_ptr(predicate) }.to_string_lossy();
    let limit = (limit > 0).then_some(limit);
    // SAFETY: the caller promises the same.
    outcome(unsafe { inband::trigger(&predicate, signal, limit, callback, argument) })
}

/// # Safety
///
/// `out` is null or valid for writing.
#[no_mangle]
pub unsafe extern "C" fn debox_trigger_counts(
    trigger: c_uint,
    out: *mut inband::TriggerCounts,
) -> c_int {
    // Signal-safe: the code alone, no text.
    let counts = usize::try_from(trigger).map(inband::trigger_counts);
    match counts {
        Ok(Ok(counts)) if !out.is_null() => {
            // SAFETY: valid for writing, as the caller promises.
            unsafe { out.write(counts) };
            0
        }
        _ => code_of(&Error::Argument("")),
    }
}

#[no_mangle]
pub extern "C" fn debox_call_name(call: c_int, abi: c_int) -> *const c_char {
    names::call_name(call, abi)
}

#[no_mangle]
pub extern "C" fn debox_strerror(code: c_int) -> *const c_char {
    error::text_of(code).as_ptr()
}

#[no_mangle]
pub extern "C" fn debox_last_error_text() -> *const c_char {
    error::last_text()
}

/// A string in a fixed-size array, cut if it is too long, always with its terminating zero.
fn fixed<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (to, from) in array.iter_mut().zip(text.bytes().take(N - 1)) {
        *to = from as c_char;
    }
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_cut_and_ended() {
        let text: [c_char; 4] = fixed("abcdef");
        assert_eq!(text.map(|c| c as u8), *b"abc\0");
        let text: [c_char; 4] = fixed("a");
        assert_eq!(text.map(|c| c as u8), *b"a\0\0\0");
    }

    #[test]
    fn options_of_another_version_are_refused() {
        let options = |size, detail| Options {
            size,
            max_threads: 0,
            detail,
            tap: TAP_ANY,
            reserved: [0; 4],
        };
        assert!(read_options(&options(31, 0)).is_err());
        assert!(read_options(&options(32, 1 << 9)).is_err());
        assert_eq!(
            read_options(&options(32, DETAIL_SLEEPS)).unwrap(),
            inband::Options::default()
        );
    }
}
