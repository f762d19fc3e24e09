//! The library's words in each thread: where its slot is.
//!
//! They have to be reachable from a signal handler. Rust's thread locals in a shared library go
//! through `__tls_get_addr`, which allocates memory when a thread first uses a library that was
//! loaded by `dlopen`; so the words are declared here with the initial-exec model, which the loader
//! lays out in advance for every thread (56 bytes of the space that it keeps for that).

use std::cell::Cell;

/// What a thread remembers of its slot; `user_tap.c` knows this layout. Zero at first.
#[repr(C)]
pub(super) struct ThreadState {
    /// The generation (see `memory`) for which the others hold; 0: for none.
    pub generation: Cell<u64>,
    /// The slot's address, 0 if the thread has none.
    pub slot: Cell<usize>,
    /// Calls up to this number are not shown.
    pub floor: Cell<u64>,
    /// The word passed to the watcher of ended calls; 0: it is not called (see `user_tap`).
    pub watched: Cell<usize>,
    /// Address of what the library has done on the thread; 0: nothing yet (see `own_work`).
    pub own_work: Cell<usize>,
    /// How many records there were when they were last checked (see `liveness`).
    pub seen: Cell<u64>,
    /// Calls that the library made to check that the kernel sees the thread's calls.
    pub checks: Cell<u64>,
}

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the thread's words are declared for x86-64 only, like the probes");

core::arch::global_asm!(
    ".pushsection .tbss.debox_inband_words,\"awT\",@nobits",
    ".p2align 3",
    ".globl debox_inband_words",
    ".hidden debox_inband_words",
    ".type debox_inband_words, @tls_object",
    ".size debox_inband_words, 56",
    "debox_inband_words:",
    ".zero 56",
    ".popsection",
);

const _: () = assert!(std::mem::size_of::<ThreadState>() == 56);

/// The calling thread's words.
#[inline]
pub(super) fn of_this_thread() -> &'static ThreadState {
    let address: *const ThreadState;
    // SAFETY: loads the offset of the words from the thread pointer, which the linker and the
    // loader fill in, and adds the thread pointer; on x86-64 that is in the word at fs:0.
    unsafe {
        core::arch::asm!(
            "mov {address}, qword ptr [rip + debox_inband_words@GOTTPOFF]",
            "add {address}, qword ptr fs:[0]",
            address = out(reg) address,
            options(pure, readonly, nostack),
        );
    }
    // SAFETY: the words live as long as the thread and are zero at first, which is valid; Cell
    // keeps the reference in this thread, where a signal handler is the only other user.
    unsafe { &*address }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_has_its_own() {
        of_this_thread().floor.set(7);
        let other = std::thread::spawn(|| {
            let seen = of_this_thread().floor.get();
            of_this_thread().floor.set(9);
            (seen, std::ptr::from_ref(of_this_thread()) as usize)
        });
        let (seen, address) = other.join().unwrap();
        assert_eq!(seen, 0);
        assert_ne!(address, std::ptr::from_ref(of_this_thread()) as usize);
        assert_eq!(of_this_thread().floor.get(), 7);
        of_this_thread().floor.set(0);
    }
}
