//! The slots in this process's memory, and the word that shows whether they are mapped.
//!
//! A pointer into the slots must always stay readable, because threads read without a lock. So the range
//! of addresses is never unmapped: [`vacate`] replaces the slots by empty memory, and the next [`map`]
//! reuses the range.
//!
//! The **generation** is a number that is new each time slots are mapped and 0 while there are none. It is
//! in a page of its own that the kernel clears in a forked child: a child that has no view of the slots of
//! its own yet finds 0, without any call, and reads nothing. The slots themselves are kept out of children
//! (`MADV_DONTFORK`).
//!
//! The kernel fills in the page tables of slots when they are mapped. For all slots, that would take
//! longer than the whole run of many processes. So only the first ones are mapped, and more when a
//! thread's slot is beyond them: slots are allocated in order, and those of ended threads are reused
//! first.

use std::ptr;
use std::sync::atomic::{compiler_fence, AtomicI32, AtomicPtr, AtomicU32, AtomicU64};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::record::Slot;

use super::Error;

/// The page with the generation.
static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
static LAST_GENERATION: AtomicU64 = AtomicU64::new(0);

/// The number of slots mapped at first, and the factor by which it grows. The factor is large so that a
/// thread that looks for its slot makes few calls: the call that it has just made must still be among its
/// last eight, before the library's own.
const FIRST_SLOTS: usize = 32;
const GROWTH: usize = 8;

/// The range of addresses, how many slots it has room for, how many there are, and how many of them are
/// mapped, from the first on. The others are replaced by empty memory.
static BASE: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
static ROOM: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// The thread that is mapping more slots, or 0. Others wait for it, since a thread that has a slot must
/// find it. They wait without a call, which would become their last one, and not for ever, since the
/// mapping thread may have left by a jump out of a signal handler.
static MAPPER: AtomicU32 = AtomicU32::new(0);
const PATIENCE: u32 = 10_000_000;

/// The map of the slots, for children and for mapping more; the id shows whether the descriptor still
/// stands for it.
static MAP_FD: AtomicI32 = AtomicI32::new(-1);
static MAP_ID: AtomicU32 = AtomicU32::new(0);

const SLOT: usize = std::mem::size_of::<Slot>();
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
const EMPTY: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// The current generation; 0 if nothing is mapped in this process.
#[inline]
pub(super) fn generation() -> u64 {
    let page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        return 0;
    }
    // SAFETY: the page is never unmapped once its address is stored.
    unsafe { (*page).load(Ordering::Acquire) }
}

/// The address of the generation, for the stamps; never unmapped.
pub(super) fn generation_page() -> *const u64 {
    PAGE.load(Ordering::Acquire).cast()
}

/// Maps the slots. Threads find them only after [`publish`]. The caller holds the lock.
pub(super) fn map(fd: i32, map_id: u32, count: usize) -> Result<(), Error> {
    make_page()?;
    place(fd, map_id, count).map_err(system)
}

/// Like [`map`], if there was a map before; returns whether it worked. No allocation. The caller holds the
/// lock.
pub(super) fn map_again(fd: i32, map_id: u32, count: usize) -> bool {
    place(fd, map_id, count).is_ok()
}

/// Returns the step that failed, with the kernel's reason in `errno`.
fn place(fd: i32, map_id: u32, count: usize) -> Result<(), &'static str> {
    if ROOM.load(Ordering::Relaxed) < count {
        // SAFETY: a new mapping at any free address.
        let base = unsafe { libc::mmap(ptr::null_mut(), count * SLOT, READ_WRITE, EMPTY, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err("cannot find room for the records");
        }
        BASE.store(base.cast(), Ordering::Relaxed);
        ROOM.store(count, Ordering::Relaxed);
    }
    COUNT.store(count, Ordering::Relaxed);
    MAPPED.store(0, Ordering::Relaxed);
    MAP_FD.store(fd, Ordering::Relaxed);
    MAP_ID.store(map_id, Ordering::Relaxed);
    if !map_first(FIRST_SLOTS) {
        let error = std::io::Error::last_os_error();
        vacate();
        // SAFETY: errno of this thread is always there.
        unsafe { *libc::__errno_location() = error.raw_os_error().unwrap_or(0) };
        return Err("cannot map the records");
    }
    Ok(())
}

/// Maps the first `wanted` slots, as far as they are not mapped yet. The caller holds the lock, or is the
/// child of a fork. Allocates nothing, so it is safe in a signal handler.
fn map_first(wanted: usize) -> bool {
    let (from, fd) = (
        MAPPED.load(Ordering::Relaxed),
        MAP_FD.load(Ordering::Relaxed),
    );
    let to = wanted.min(COUNT.load(Ordering::Relaxed));
    if to <= from {
        return true;
    }
    let length = (to - from) * SLOT;
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: the range belongs to this module and has room for COUNT slots.
    let is_mapped = unsafe {
        let at = BASE.load(Ordering::Relaxed).add(from).cast();
        libc::mmap(at, length, READ_WRITE, flags, fd, (from * SLOT) as i64) != libc::MAP_FAILED
            && libc::madvise(at, length, libc::MADV_DONTFORK) == 0
    };
    if is_mapped {
        MAPPED.store(to, Ordering::Release);
    }
    is_mapped
}

/// Whether the descriptor still stands for the map: a program may have closed descriptors that it did not
/// know, and opened others.
pub(super) fn has_map() -> bool {
    let (fd, id) = (
        MAP_FD.load(Ordering::Relaxed),
        MAP_ID.load(Ordering::Relaxed),
    );
    fd >= 0 && id != 0 && super::map_id::map_id_of(fd) == id
}

/// Whether this is one of the calls by which a thread that looks for its slot maps more.
pub(super) fn is_own_call(call: i64, args: [u64; 3]) -> bool {
    let base = BASE.load(Ordering::Relaxed) as u64;
    let end = base + (ROOM.load(Ordering::Relaxed) * SLOT) as u64;
    match call {
        libc::SYS_mmap | libc::SYS_madvise => (base..end).contains(&args[0]),
        libc::SYS_bpf => args[1] == super::map_id::info_request() as u64,
        _ => false,
    }
}

/// Replaces the slots by empty memory.
pub(super) fn vacate() {
    empty();
    COUNT.store(0, Ordering::Relaxed);
    MAP_FD.store(-1, Ordering::Relaxed);
}

fn empty() {
    let base = BASE.load(Ordering::Relaxed).cast();
    let length = ROOM.load(Ordering::Relaxed) * SLOT;
    // SAFETY: replaces this module's own mapping; a thread that still reads there finds zeros.
    let placed = unsafe { libc::mmap(base, length, READ_WRITE, EMPTY | libc::MAP_FIXED, -1, 0) };
    if placed == libc::MAP_FAILED {
        // The slots stay mapped, but nothing writes to them; the range is not used again.
        ROOM.store(0, Ordering::Relaxed);
        COUNT.store(0, Ordering::Relaxed);
    }
    MAPPED.store(0, Ordering::Relaxed);
}

/// Stops using the range of addresses.
pub(super) fn forget_range() {
    ROOM.store(0, Ordering::Relaxed);
    COUNT.store(0, Ordering::Relaxed);
    MAPPED.store(0, Ordering::Relaxed);
}

/// The slots that are mapped now.
pub(super) fn mapped() -> impl Iterator<Item = *mut Slot> {
    let base = BASE.load(Ordering::Relaxed);
    // SAFETY: the first MAPPED slots from BASE are mapped.
    (0..MAPPED.load(Ordering::Relaxed)).map(move |index| unsafe { base.add(index) })
}

/// Makes the slots visible to threads.
pub(super) fn publish() {
    let generation = LAST_GENERATION.fetch_add(1, Ordering::Relaxed) + 1;
    set_generation(generation);
}

/// Hides the slots from threads.
pub(super) fn unpublish() {
    set_generation(0);
}

fn set_generation(generation: u64) {
    let page = PAGE.load(Ordering::Acquire);
    if !page.is_null() {
        // SAFETY: the page is never unmapped once its address is stored.
        unsafe { (*page).store(generation, Ordering::Release) };
    }
}

/// In the child of a fork, before it runs anything else: maps its own view of the slots.
pub(super) fn follow_fork(parents_generation: u64) {
    if parents_generation == 0 && MAPPED.load(Ordering::Relaxed) == 0 {
        return;
    }
    // Another of the parent's threads may have been mapping.
    MAPPER.store(0, Ordering::Relaxed);
    // Nothing else may be mapped where the parent's slots were: pointers to them must stay readable.
    empty();
    if parents_generation != 0 && has_map() && map_first(FIRST_SLOTS) {
        publish();
    } else {
        vacate();
    }
}

/// The error if the mapping is being changed right now; in a signal handler, possibly by the code that it
/// interrupted.
pub(super) struct Busy;

/// The slot of a thread; maps more slots if needed, under the lock if it is free.
pub(super) fn find<G>(
    tid: u32,
    try_lock: impl Fn() -> Option<G>,
) -> Result<Option<*mut Slot>, Busy> {
    let base = BASE.load(Ordering::Relaxed);
    let mut index = 0;
    loop {
        let mapped = MAPPED.load(Ordering::Acquire);
        while index < mapped {
            // SAFETY: the first MAPPED slots from BASE are mapped, if only with zeros.
            let slot = unsafe { base.add(index) };
            // SAFETY: as above; the kernel may write at any time, hence volatile.
            let version = unsafe { ptr::read_volatile(&raw const (*slot).version) };
            if version == 0 {
                return Ok(None); // slots are allocated in order: there are none beyond this one
            }
            if tid_of(slot) == tid {
                return Ok(Some(slot));
            }
            index += 1;
        }
        if mapped >= COUNT.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if !map_beyond(mapped, tid, &try_lock)? {
            return Ok(None);
        }
    }
}

/// Maps more slots, unless another thread has done so meanwhile.
fn grow_from(mapped: usize) -> bool {
    MAPPED.load(Ordering::Relaxed) > mapped || map_first(mapped * GROWTH)
}

/// Maps more than the first `mapped` slots, or waits for another thread that does. Returns whether there
/// are more now.
fn map_beyond<G>(mapped: usize, tid: u32, try_lock: &impl Fn() -> Option<G>) -> Result<bool, Busy> {
    for _ in 0..PATIENCE {
        if MAPPED.load(Ordering::Relaxed) > mapped {
            return Ok(true);
        }
        let turn = MAPPER.compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed);
        match turn {
            Ok(_) => {
                let guard = try_lock();
                let outcome = match guard {
                    Some(_) => Ok(generation() != 0 && has_map() && grow_from(mapped)),
                    None => Err(Busy),
                };
                drop(guard);
                MAPPER.store(0, Ordering::Release);
                return outcome;
            }
            Err(own) if own == tid => return Err(Busy), // this signal handler interrupted the mapping
            Err(_) => std::hint::spin_loop(),
        }
    }
    Err(Busy)
}

/// The index of a slot.
pub(super) fn index_of(slot: *const Slot) -> usize {
    (slot as usize - BASE.load(Ordering::Relaxed) as usize) / SLOT
}

/// The thread that has the slot now; 0: none.
pub(super) fn tid_of(slot: *const Slot) -> u32 {
    // SAFETY: slots are never unmapped; the kernel may write at any time, hence volatile.
    let tid = unsafe { ptr::read_volatile(&raw const (*slot).tid) };
    compiler_fence(Ordering::SeqCst);
    tid
}

/// Makes the page of the generation, once.
fn make_page() -> Result<(), Error> {
    if !PAGE.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    // SAFETY: sysconf only reads.
    let length = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    // SAFETY: a new mapping at any free address.
    let page = unsafe { libc::mmap(ptr::null_mut(), length, READ_WRITE, EMPTY, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(system("cannot get a page of memory"));
    }
    // SAFETY: the page is this function's own and not in use yet.
    if unsafe { libc::madvise(page, length, libc::MADV_WIPEONFORK) } != 0 {
        let error = system("the kernel cannot keep the records apart in forked children");
        // SAFETY: as above.
        unsafe { libc::munmap(page, length) };
        return Err(error);
    }
    PAGE.store(page.cast(), Ordering::Release);
    Ok(())
}

fn system(what: &str) -> Error {
    Error::System(format!("{what}: {}", std::io::Error::last_os_error()))
}
