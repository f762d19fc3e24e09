//! `debox_scope_begin` and `debox_scope_end`.

use std::ffi::{c_int, c_uint};
use std::mem::MaybeUninit;

use engine::inband::{Error, Faults, Start, Sums};

use crate::error::code_of;

const ALL_FAULTS: c_uint = 1 << 0;

/// `Scope::state` of a scope that has begun; memory with any other value never was one.
const BEGUN: u32 = 0x6465_5343;

/// `struct debox_scope`.
#[repr(C)]
pub struct Scope {
    state: u32,
    /// Not 0: the error why it could not begin, which its end returns.
    error: i32,
    start: MaybeUninit<Start>,
    reserved: [u64; 31 - size_of::<Start>() / 8],
}

const _: () = assert!(size_of::<Scope>() == 256);

/// # Safety
///
/// `scope` is null or has room for a `struct debox_scope`.
#[no_mangle]
pub unsafe extern "C" fn debox_scope_begin(scope: *mut Scope, flags: c_uint) -> c_int {
    if scope.is_null() {
        return code_of(&Error::Argument(""));
    }
    let faults = match flags {
        0 => Ok(Faults::InCalls),
        ALL_FAULTS => Ok(Faults::All),
        _ => Err(Error::Argument("")),
    };
    let (error, start) = match faults.and_then(Start::now) {
        Ok(start) => (0, MaybeUninit::new(start)),
        // Signal-safe: the code alone, no text.
        Err(error) => (code_of(&error), MaybeUninit::uninit()),
    };
    let begun = Scope {
        state: BEGUN,
        error,
        start,
        reserved: [0; 31 - size_of::<Start>() / 8],
    };
    // SAFETY: valid for writing, as the caller promises.
    unsafe { scope.write(begun) };
    error
}

/// # Safety
///
/// `scope` and `out` are null or valid.
#[no_mangle]
pub unsafe extern "C" fn debox_scope_end(scope: *const Scope, out: *mut Sums) -> c_int {
    // SAFETY: null or valid, as the caller promises.
    let Some(scope) = (unsafe { scope.as_ref() }) else {
        return code_of(&Error::Argument(""));
    };
    if scope.state != BEGUN || out.is_null() {
        return code_of(&Error::Argument(""));
    }
    if scope.error != 0 {
        return scope.error;
    }
    // SAFETY: begun without an error, so it was filled in; any bytes are valid in it.
    let start = unsafe { scope.start.assume_init_ref() };
    match start.sums() {
        Ok(sums) => {
            // SAFETY: valid for writing, as the caller promises.
            unsafe { out.write(sums) };
            0
        }
        Err(error) => code_of(&error),
    }
}
