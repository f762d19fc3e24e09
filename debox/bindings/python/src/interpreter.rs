//! Recognizes the interpreter's own calls: those by which threads hand each other the lock that lets only one of them
//! run Python at a time.
//!
//! The interpreter releases that lock for a call that may take long. If it finds the lock taken afterwards, it waits
//! for it on a futex, so the thread's last call is not the program's. The lock's futex words are in `_PyRuntime`, which
//! CPython exports; the futexes of the program's own locks are elsewhere.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

static BEGIN: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);

/// glibc's RTLD_DL_SYMENT, for which the libc crate has no name.
const SYMBOL: i32 = 1;

extern "C" {
    fn dladdr1(
        address: *const c_void,
        info: *mut libc::Dl_info,
        extra: *mut *const libc::Elf64_Sym,
        flags: i32,
    ) -> i32;
}

/// Finds the interpreter's own state. Without it, its calls are shown as the program's.
pub fn find() {
    // SAFETY: a lookup by name; only the symbol's address is used.
    let runtime = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_PyRuntime".as_ptr()) };
    if runtime.is_null() {
        return;
    }
    // SAFETY: any bytes are a Dl_info.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let mut symbol = std::ptr::null();
    // SAFETY: writes to `info` and `symbol` only.
    let found = unsafe { dladdr1(runtime, &mut info, &mut symbol, SYMBOL) };
    if found == 0 || symbol.is_null() {
        return;
    }
    // SAFETY: the loader's table of symbols, which stays mapped with the interpreter.
    let size = unsafe { (*symbol).st_size };
    BEGIN.store(runtime as u64, Ordering::Relaxed);
    END.store(runtime as u64 + size, Ordering::Relaxed);
}

/// Whether the interpreter made this call to wait for its lock, or to hand it over.
pub fn made(call: i64, args: [u64; 3]) -> bool {
    let state = BEGIN.load(Ordering::Relaxed)..END.load(Ordering::Relaxed);
    call == libc::SYS_futex && state.contains(&args[0])
}
