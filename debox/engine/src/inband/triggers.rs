//! Callbacks for calls of this process: when such a call ends, a signal of the program's choice brings
//! the thread here before it continues.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::predicate::Predicate;
use crate::record::{Record, Slot};
use crate::trigger::{Trigger, TRIGGERS_MAX};

use super::armed::Armed;
use super::trigger_counts::{self, TriggerCounts};
use super::{decide, memory, slot, slot_fields, Error};

/// A function that is called with the call's record.
pub type Callback = unsafe extern "C" fn(*const Record, *mut c_void);

struct Entry {
    /// Address of a [`Callback`]; 0: none.
    callback: AtomicUsize,
    argument: AtomicPtr<c_void>,
    armed: OnceLock<Armed>,
}

/// The triggers as the handler sees them, which cannot take a lock.
static ENTRIES: [Entry; TRIGGERS_MAX] = [const {
    Entry {
        callback: AtomicUsize::new(0),
        argument: AtomicPtr::new(ptr::null_mut()),
        armed: OnceLock::new(),
    }
}; TRIGGERS_MAX];

static TRIGGERS: Mutex<Vec<Trigger>> = Mutex::new(Vec::new());

fn triggers() -> MutexGuard<'static, Vec<Trigger>> {
    TRIGGERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The triggers for a session of this process.
pub(super) fn registered() -> Vec<Trigger> {
    triggers().clone()
}

pub(super) fn are_registered() -> bool {
    !triggers().is_empty()
}

/// Whether one of them tests the labels of places of sleep.
pub(super) fn ask_for_places() -> bool {
    let mut armed = ENTRIES.iter().filter_map(|entry| entry.armed.get());
    armed.any(|armed| !armed.sites.is_empty())
}

/// A trigger's counts in this session or in the last one. Triggers are numbered from 0 in the order in
/// which they were registered. Safe in signal handlers.
///
/// # Errors
///
/// [`Error::Argument`] if there is no such trigger.
pub fn trigger_counts(trigger: usize) -> Result<TriggerCounts, Error> {
    let known = ENTRIES.get(trigger).filter(|entry| is_set(entry));
    known
        .map(|_| trigger_counts::counts(trigger))
        .ok_or(Error::Argument("there is no such trigger"))
}

fn is_set(entry: &Entry) -> bool {
    entry.callback.load(Ordering::Acquire) != 0
}

/// Registers `callback` to be called for each call of this process for which a predicate holds. It is
/// called on the thread that made the call, before anything else of the program runs there, in a handler
/// of `signal`; at most `limit` times a second, if that is given. With labels or classes in the
/// predicate, `enable` reads the kernel's symbols once. To be called before [`super::enable`], which then
/// opens a session of this process's own with the kernel tap. `debox_trigger` in `debox/include/debox.h`
/// has the details.
///
/// # Safety
///
/// `callback` may be called with `argument` on any thread until the process ends, and must only do what a
/// signal handler may do. Nothing else in the process may use `signal`.
///
/// # Errors
///
/// [`Error::AlreadyEnabled`], [`Error::Argument`], [`Error::Predicate`], [`Error::System`].
pub unsafe fn trigger(
    predicate: &str,
    signal: i32,
    limit: Option<u32>,
    callback: Callback,
    argument: *mut c_void,
) -> Result<(), Error> {
    if memory::generation() != 0 {
        return Err(Error::AlreadyEnabled);
    }
    let wrong = |error: &dyn std::fmt::Display| Error::Predicate(error.to_string());
    let predicate = Predicate::parse(predicate).map_err(|error| wrong(&error))?;
    let program = predicate.compile().map_err(|error| wrong(&error))?;
    if predicate.names_user_time() {
        return Err(Error::Argument(
            "triggers are evaluated when a call ends, so `(user)` never matches",
        ));
    }
    let mut triggers = triggers();
    let Some(entry) = ENTRIES.get(triggers.len()) else {
        return Err(Error::Argument("a process has 8 triggers at most"));
    };
    install(
        signal,
        triggers.iter().any(|known| known.signal == Some(signal)),
    )?;
    let trigger = Trigger {
        predicate,
        signal: Some(signal),
        limit,
    };
    entry.armed.get_or_init(|| Armed {
        trigger: trigger.clone(),
        sites: program.sites,
    });
    entry.argument.store(argument, Ordering::Relaxed);
    entry.callback.store(callback as usize, Ordering::Release);
    triggers.push(trigger);
    Ok(())
}

/// Installs the handler of a signal, unless it is installed already. Fails if the signal has another
/// handler.
fn install(signal: i32, is_ours: bool) -> Result<(), Error> {
    if is_ours {
        return Ok(());
    }
    if !(1..=libc::SIGRTMAX()).contains(&signal) {
        return Err(Error::Argument("there is no such signal"));
    }
    let mut before: MaybeUninit<libc::sigaction> = MaybeUninit::zeroed();
    // SAFETY: a null action only asks; `before` has room for the answer, and zeros are valid.
    let handled = unsafe {
        libc::sigaction(signal, ptr::null(), before.as_mut_ptr()) != 0
            || before.assume_init().sa_sigaction != libc::SIG_DFL
    };
    if handled {
        return Err(Error::Argument(
            "the signal has a handler, is ignored, or is not the program's to have: choose another",
        ));
    }
    // SAFETY: zeros are a valid action: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = run_callbacks as extern "C" fn(i32) as usize;
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the handler only does what handlers may do; the caller of `trigger` is responsible for the
    // callback.
    if unsafe { libc::sigaction(signal, &action, ptr::null_mut()) } != 0 {
        return Err(Error::Argument("the signal can have no handler"));
    }
    Ok(())
}

extern "C" fn run_callbacks(_: i32) {
    // SAFETY: errno is the thread's own.
    let errno = unsafe { *libc::__errno_location() };
    if let Some(slot) = slot::own() {
        run_all(slot);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

fn run_all(slot: *mut Slot) {
    let last = slot::last(|_| true);
    let fired = slot::take_fired();
    let decided = decide_open(slot);
    if let Some(last) = last {
        for index in bits(fired) {
            call_back(index, last.as_ptr());
        }
    }
    for (number, fired) in decided {
        for index in bits(fired) {
            // Callbacks make calls, and so does a thread that blocks the signal: the record may have been
            // overwritten by now.
            match slot::numbered(slot, number) {
                Some(record) => call_back(index, record),
                None => trigger_counts::count_missed(index),
            }
        }
    }
}

/// Decides the calls that were left to this thread; returns their numbers and the triggers that fire for
/// them. The calls made for this have no records.
fn decide_open(slot: *mut Slot) -> [(u64, u64); slot_fields::UNDECIDED_MAX] {
    let mut decided = [(0, 0); slot_fields::UNDECIDED_MAX];
    for decision in &mut decided {
        let Some(open) = slot::take_undecided(slot) else {
            break;
        };
        let paused = slot_fields::set_paused(slot, true);
        let armed = |index: usize| ENTRIES.get(index)?.armed.get();
        *decision = (open.number, decide::decide(&open, &armed));
        slot_fields::set_paused(slot, paused);
    }
    decided
}

/// The numbers of the bits that are set.
fn bits(word: u64) -> impl Iterator<Item = usize> {
    (0..TRIGGERS_MAX).filter(move |index| word & (1 << index) != 0)
}

fn call_back(index: usize, record: *const Record) {
    let Some(entry) = ENTRIES.get(index).filter(|entry| is_set(entry)) else {
        return;
    };
    // SAFETY: only callbacks are stored there.
    let callback: Callback = unsafe { std::mem::transmute(entry.callback.load(Ordering::Acquire)) };
    // SAFETY: the caller that registered it promised that it may be called like this.
    unsafe { callback(record, entry.argument.load(Ordering::Relaxed)) };
}
