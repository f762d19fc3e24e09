//! The user tap for unmodified programs: `libdebox_preload.so`, compiled from C and embedded here
//! so that the `debox` command is one file.

/// The shared library.
pub const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libdebox_preload.so"));

/// How many entry points of libc it interposes, as text.
pub const ENTRY_POINTS: &str = env!("DEBOX_ENTRY_POINTS");

/// The environment variable that tells it where its session is.
pub const SESSION_VARIABLE: &str = "DEBOX_TAP";
