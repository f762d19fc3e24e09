//! The user tap of a process that opened the session itself: stamps around the calls that it makes
//! through [`call`] and [`tap`], and the clock that converts them to time.
//!
//! The stamps are in C (`user_tap.c`, and `debox_tap.c`, which the preload shim uses, too). The
//! library runs no thread to keep the clock: a call that ends more than [`CLOCK_AGE_NS`] after the
//! last update updates it.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::clock::{self, Rate};
use crate::record::Slot;
use crate::signals::Blocked;
use crate::usertap;

use super::memory;
use entry::{debox_inband_begin, debox_inband_call, debox_inband_end};

/// The age at which the clock is updated. In this time it may drift some tens of nanoseconds from
/// the kernel's.
const CLOCK_AGE_NS: u64 = 10_000_000;

#[allow(improper_ctypes)] // the slot's layout is C's
extern "C" {
    static mut debox_inband_clock: clock::Shared;
    static mut debox_inband_clock_age_max: u64;
    fn debox_inband_set_tap(generation: *const u64);
    fn debox_inband_take_slot(slot: *mut Slot, rows: *mut u8);
}

/// The functions that take the stamps. The C interface jumps here, so that they see the program's
/// frame and return address.
#[doc(hidden)]
#[allow(improper_ctypes)] // the slot's layout is C's
pub mod entry {
    use crate::record::Slot;

    extern "C" {
        pub fn debox_inband_call(number: i64, ...) -> i64;
        pub fn debox_inband_begin(number: i64, a: u64, b: u64, c: u64) -> *mut Slot;
        pub fn debox_inband_end(slot: *mut Slot, number: i64, ret: i64);
    }
}

/// Makes a system call, under the user tap with stamps around it, so that [`super::last`] returns
/// its record. Returns what the kernel returned: `-errno` on error; `errno` itself is left alone.
///
/// Under the kernel tap, or if nothing is enabled, the call is just made. In a program under `debox
/// run --tap user`, the shim takes the stamps. Calls that do not return to their caller (`fork`,
/// `execve`, `exit` and similar) are made without stamps. Safe in signal handlers.
///
/// # Safety
///
/// As for any system call, the arguments must be valid for it.
#[inline]
pub unsafe fn call(number: i64, args: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = args;
    // SAFETY: as the caller promises.
    unsafe { debox_inband_call(number, a, b, c, d, e, f) }
}

/// The return type of a tapped closure, from which the kernel's result can be derived.
pub trait Returned {
    /// The kernel's return value: `-errno` on error. Called as soon as the call is over.
    fn kernel_result(&self) -> i64;
}

/// libc's functions return -1 and leave the reason in `errno`.
fn of_libc(value: i64) -> i64 {
    match value {
        -1 => -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        value => value,
    }
}

impl Returned for i32 {
    fn kernel_result(&self) -> i64 {
        of_libc(i64::from(*self))
    }
}

impl Returned for i64 {
    fn kernel_result(&self) -> i64 {
        of_libc(*self)
    }
}

impl Returned for isize {
    fn kernel_result(&self) -> i64 {
        of_libc(*self as i64)
    }
}

impl Returned for std::io::Result<usize> {
    fn kernel_result(&self) -> i64 {
        match self {
            Ok(count) => *count as i64,
            Err(error) => -i64::from(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }
}

impl Returned for std::io::Result<()> {
    fn kernel_result(&self) -> i64 {
        match self {
            Ok(()) => 0,
            Err(error) => -i64::from(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }
}

/// Takes stamps around `body`, which makes the system call `number` once, with `args` as its first
/// arguments. Under any tap other than the process's own user tap, just runs `body`.
///
/// ```no_run
/// # use debox::inband;
/// let mut pair = [0; 2];
/// let ret = inband::tap(libc::SYS_pipe2, [pair.as_ptr() as u64, 0, 0], || {
///     // SAFETY: there is room for both descriptors.
///     unsafe { libc::pipe2(pair.as_mut_ptr(), 0) }
/// });
/// ```
///
/// Anything else that `body` does counts as the call's CPU time, and other calls that it makes have
/// no records. If it panics, the call ends there with `-EINTR`. Safe in signal handlers.
#[inline]
pub fn tap<R: Returned>(number: i64, args: [u64; 3], body: impl FnOnce() -> R) -> R {
    let mut open = Open {
        // SAFETY: takes values only; writes to the thread's own words and slot.
        slot: unsafe { debox_inband_begin(number, args[0], args[1], args[2]) },
        number,
        ret: -i64::from(libc::EINTR),
    };
    let returned = body();
    open.ret = returned.kernel_result();
    drop(open);
    returned
}

/// A call between its stamps.
struct Open {
    slot: *mut Slot,
    number: i64,
    ret: i64,
}

impl Drop for Open {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the slot is what the beginning returned, null included.
        unsafe { debox_inband_end(self.slot, self.number, self.ret) };
    }
}

/// The clock's rate, guarded by a flag. The flag is taken only with signals blocked (or while the
/// process forks), so that a handler never finds it taken by its own thread.
struct Keeper {
    busy: AtomicBool,
    rate: UnsafeCell<Option<Rate>>,
}

// SAFETY: the rate is only accessed by the thread that holds `busy`.
unsafe impl Sync for Keeper {}

static KEEPER: Keeper = Keeper {
    busy: AtomicBool::new(false),
    rate: UnsafeCell::new(None),
};

/// Whether this process has a user tap of its own.
static IS_TAPPED: AtomicBool = AtomicBool::new(false);

/// Starts the clock. Takes 20 ms.
pub(super) fn start_clock() {
    let rate = Rate::measure();
    let ticks = rate.ticks_in(CLOCK_AGE_NS);
    hold_clock();
    // SAFETY: this thread holds the clock, and no thread takes stamps yet.
    unsafe {
        *KEEPER.rate.get() = Some(rate);
        debox_inband_clock_age_max = ticks;
    }
    refresh_held();
    release_clock();
}

fn refresh_held() {
    // SAFETY: the caller holds the clock, which lives as long as the process.
    unsafe {
        if let Some(rate) = &mut *KEEPER.rate.get() {
            rate.refresh(&raw mut debox_inband_clock);
        }
    }
}

fn try_to_hold() -> bool {
    !KEEPER.busy.swap(true, Ordering::Acquire)
}

/// Takes the clock; waits some microseconds if another thread has it.
pub(super) fn hold_clock() {
    while !try_to_hold() {
        std::thread::yield_now();
    }
}

pub(super) fn release_clock() {
    KEEPER.busy.store(false, Ordering::Release);
}

/// Updates the clock, unless another thread is doing so. Safe in signal handlers.
#[no_mangle]
extern "C" fn debox_inband_refresh_clock() {
    let _blocked = Blocked::all();
    if try_to_hold() {
        refresh_held();
        release_clock();
    }
}

/// Rows of each slot's thread. The stamps add up calls there as they do for a report, although
/// nothing reads them here. A table is made when a thread first needs it, and belongs to the slot
/// from then on.
static TABLES: Tables = Tables {
    tables: AtomicPtr::new(ptr::null_mut()),
    count: AtomicUsize::new(0),
};

struct Tables {
    tables: AtomicPtr<AtomicPtr<u8>>,
    count: AtomicUsize,
}

/// Makes room for the tables of `count` slots. The caller holds the lock.
fn make_room(count: usize) {
    if TABLES.count.load(Ordering::Relaxed) >= count {
        return;
    }
    // Never freed, since a thread may be reading them. Replaced only for a session with more
    // threads.
    let tables: Vec<AtomicPtr<u8>> = std::iter::repeat_with(AtomicPtr::default)
        .take(count)
        .collect();
    let tables = Box::leak(tables.into_boxed_slice());
    TABLES.tables.store(tables.as_mut_ptr(), Ordering::Release);
    TABLES.count.store(count, Ordering::Release);
}

/// The rows of a slot. Safe in signal handlers.
fn rows_of(index: usize) -> Option<*mut u8> {
    if index >= TABLES.count.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: there are that many tables, and they are never freed.
    let table = unsafe { &*TABLES.tables.load(Ordering::Acquire).add(index) };
    let rows = table.load(Ordering::Relaxed);
    if !rows.is_null() {
        return Some(rows);
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let length = usertap::TABLE as usize;
    // SAFETY: a new mapping at any free address; only the pages that are used take memory.
    let rows = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0) };
    if rows == libc::MAP_FAILED {
        return None;
    }
    table.store(rows.cast(), Ordering::Relaxed);
    Some(rows.cast())
}

/// Begins to tap the process's calls while slots are published.
pub(super) fn begin(slots: usize) {
    make_room(slots);
    IS_TAPPED.store(true, Ordering::Release);
    // SAFETY: the page of the generation is never unmapped.
    unsafe { debox_inband_set_tap(memory::generation_page()) };
}

/// Ends the tap: calls are made without stamps again.
pub(super) fn end() {
    IS_TAPPED.store(false, Ordering::Release);
    // SAFETY: takes a value only.
    unsafe { debox_inband_set_tap(ptr::null()) };
}

/// Tells the stamps of this thread where its slot is.
pub(super) fn take_slot(slot: Option<*mut Slot>) {
    let mut own = (ptr::null_mut(), ptr::null_mut());
    if let (true, Some(slot)) = (IS_TAPPED.load(Ordering::Acquire), slot) {
        if let Some(rows) = rows_of(memory::index_of(slot)) {
            own = (slot, rows);
        }
    }
    // SAFETY: slots and rows are never unmapped.
    unsafe { debox_inband_take_slot(own.0, own.1) };
}
