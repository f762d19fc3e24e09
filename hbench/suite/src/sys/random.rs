// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C library's generators of random numbers.

/// At least 0 and below 1.
#[inline(always)]
pub fn drand48() -> f64 {
    // SAFETY: no memory is passed. A sample's process has one thread, so the state is its alone.
    unsafe { libc::drand48() }
}

#[inline(always)]
pub fn lrand48() -> i64 {
    // SAFETY: as above.
    unsafe { libc::lrand48() }
}

#[inline(always)]
pub fn rand() -> i64 {
    // SAFETY: as above.
    i64::from(unsafe { libc::rand() })
}

#[inline(always)]
pub fn random() -> i64 {
    mod library {
        extern "C" {
            /// `libc` does not declare it.
            pub fn random() -> std::ffi::c_long;
        }
    }
    // SAFETY: as above; the declaration is that of POSIX.
    unsafe { library::random() }
}
