//! In-band reading: a program reads the records of its own calls from its own memory.
//!
//! [`enable`] loads the probes and enrols the calling process: all its threads, and from then on new threads and
//! children. After that a thread reads the record of its last call with [`last`], which only does plain loads: no
//! system call, no lock, no allocation, safe in a signal handler.
//!
//! ```no_run
//! use debox::inband;
//!
//! inband::enable(&inband::Options::default())?;
//! std::fs::read("/etc/hostname").unwrap();
//! if let Some(call) = inband::last() {
//!     println!("{} ns, of which {} asleep", call.wall_ns(), call.budget().blocked_ns);
//! }
//! # Ok::<(), inband::Error>(())
//! ```
//!
//! # What a thread sees
//!
//! * Its own calls only, in the order in which it made them, those of its signal handlers and of
//!   the C library included. The library's own calls (those of `enable`, and one `gettid` when a
//!   thread first asks) are left out; their ordinals are not given to other calls.
//! * Calls that were entered before monitoring began are marked [`crate::record::PARTIAL`].
//! * No vDSO calls (`clock_gettime` and the like): they never enter the kernel.
//!
//! # Scopes
//!
//! [`scope`] sums up a thread's time between two points, such as a request's blocked, CPU and run-queue time for its
//! log line. The sums are exact for any number of calls.
//!
//! ```no_run
//! let scope = debox::scope("request");
//! // ...
//! match scope.end() {
//!     Ok(sums) => println!("GET /index.html 200 {sums}"), // wall=4.1ms cpu=1.3ms blocked=2.8ms ...
//!     Err(error) => println!("GET /index.html 200 ({error})"),
//! }
//! ```
//!
//! # The two taps
//!
//! With [`Options::tap`] at [`Tap::User`] no probe runs at the calls themselves, which makes monitoring them several
//! times cheaper. In return, only those calls have records that the program makes through [`call`] (a bare system call)
//! or wraps in [`tap`] (any function that makes one). Under the kernel tap both just make their call, so that a program
//! can use them throughout.
//!
//! * [`Record::number`] counts the tapped calls only; those made while paused are not counted.
//! * [`crate::record::USER_TAP`] is set, `outside_ns` is the time between the stamps but outside the call, and a call
//!   made by a signal handler inside another one is [`crate::record::NESTED`].
//! * All faults count as minor: the tap cannot distinguish them.
//!
//! A program that runs under `debox run --tap user` joins that session: [`last`] gives the records of
//! its ordinary calls to libc, `enable` needs no privilege, and `detail` and `max_threads` are the
//! session's. Without privilege sleeps are explained by their site alone. Under `debox run` with the
//! kernel tap `enable` opens a session of its own beside the other one: both measure, each sees the
//! other's cost, and the library's calls in `enable` are in the outer one's report.
//!
//! # Forks
//!
//! A child made by `fork` is monitored like a thread and has a slot of its own: in the child the same functions read
//! the child's records, and never touch the parent's. That works through a `pthread_atfork` handler; a child made in
//! any other way (a raw `clone`) cannot read records until it calls [`enable`] itself. A child of `vfork` shares its
//! parent's memory until it execs and must not use the library. After `exec` the process is still monitored, but the
//! new program has to call [`enable`] to read its records.
//!
//! Monitoring lasts as long as any process that has the session open: the one that called [`enable`], or a fork of it
//! that neither called [`disable`] nor `exec`.
//!
//! # Limits
//!
//! Loading probes needs root, or `CAP_BPF`, `CAP_PERFMON` and `CAP_SYS_PTRACE`. Thread ids are
//! those of the first PID namespace: inside another one a process cannot load them for itself.
//!
//! # Without privilege
//!
//! If a broker listens ([`crate::broker`]), [`enable`] has it do the work, also inside PID namespaces. `DEBOX_BROKER`
//! names its socket if it is not the default one; a process with privilege then uses the broker, too. If the variable
//! is empty, no broker is used. The broker may grant fewer threads than [`Options::max_threads`]. If it does not
//! answer, [`enable`] fails with [`Error::System`]: after 10 s without any answer, or after 60 s more if it stops
//! answering while it loads the probes. The differences in records are listed at `debox_enable` in
//! `debox/include/debox.h`: names replace kernel addresses, and nothing about other users is shown.
//!
//! When the broker goes away there are no records, and [`last`] returns `None`, until a broker is back: the threads
//! that look for their records then enrol the process again. Children that were forked before are not enrolled again;
//! they can call [`enable`] themselves.

mod armed;
mod brokered;
mod decide;
mod descriptors;
mod error;
mod explain;
mod explained;
mod fork;
mod join;
mod liveness;
mod map_id;
mod memory;
mod options;
mod own_work;
mod prepared;
mod presence;
mod reading;
mod scope;
mod seek;
mod slot;
mod slot_fields;
mod state;
mod sums;
mod thread_state;
mod trace;
mod trigger_counts;
mod triggers;
mod user_tap;
mod watch;

use std::os::fd::AsRawFd;

pub use error::Error;
pub use explain::explain;
#[doc(hidden)]
pub use explain::split_line;
pub use explained::Explanation;
use map_id::map_id_of;
pub use options::Options;
pub use scope::{scope, Faults, Scope, Start};
pub use slot::{is_enabled, Last};
use state::{state, Source, State};
pub use sums::Sums;
pub use trace::{explain_trace, start_trace, trace};
pub use trigger_counts::TriggerCounts;
pub use triggers::{trigger, trigger_counts, Callback};
#[doc(hidden)]
pub use user_tap::entry;
pub use user_tap::{call, tap, Returned};
#[doc(hidden)]
pub use watch::{watch, watch_thread};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use {join::is_welcome, slot::copy_history};

use crate::kernel::{self, objects};
use crate::options::Tap;
use crate::record;
use crate::record::{Record, HISTORY_MAX, SLEEPS_MAX, TRACE_MAX};
use crate::session::{Session, Table};

/// The largest [`Options::max_threads`] that [`enable`] accepts: 1 GB of records.
const MAX_THREADS: u32 = 65536;

/// Loads the probes and brings this process, with all its threads, under monitoring.
///
/// Takes some tenths of a second, about 90 file descriptors (115 with detail `irq`), which the program must leave open (see
/// [`Error::Closed`]), and 15 MiB of kernel memory on two CPUs besides
/// the records. Not for signal handlers.
///
/// # Errors
///
/// [`Error::AlreadyEnabled`], [`Error::Privilege`], [`Error::Unsupported`], [`Error::Argument`] if
/// `max_threads` is 0 or above 65536, and [`Error::System`].
pub fn enable(options: &Options) -> Result<(), Error> {
    if options.max_threads == 0 || options.max_threads > MAX_THREADS {
        return Err(Error::Argument("max_threads must be from 1 to 65536"));
    }
    let mut state = state();
    // A broker that has gone: this process will not find another one, or not soon enough for this call.
    let is_over = |held: &brokered::Brokered| match held.is_own() {
        true => memory::generation() == 0 || !presence::is_there(),
        false => held.is_over(),
    };
    let is_over = match &state.source {
        Source::Brokered(brokered) => is_over(brokered),
        // The program has closed it.
        Source::Own { held, .. } => memory::generation() != 0 && !held.is_whole(),
        Source::None | Source::Joined(_) => false,
    };
    if is_over {
        end(&mut state);
    }
    if memory::generation() != 0 {
        return Err(Error::AlreadyEnabled);
    }
    // A session that is still here was copied by a raw clone: the descriptors are only copies, and the parent's slots
    // may have been replaced by other mappings.
    if release(&mut state) {
        memory::forget_range();
    }
    user_tap::end();
    state.explained.clear();
    fork::install()?;

    let has_triggers = triggers::are_registered();
    if has_triggers && options.tap == Some(Tap::User) {
        return Err(Error::Unsupported(
            "triggers need the kernel tap: a user tap has no probe at the end of a call"
                .to_string(),
        ));
    }
    if triggers::ask_for_places() {
        decide::prepare()?;
    }
    let joined = match options.tap {
        Some(Tap::Kernel) => None,
        _ if has_triggers => None,
        _ => join::find(),
    };
    match joined {
        Some(joined) => {
            let fd = joined.slots.as_raw_fd();
            memory::map(fd, joined.slots_id, joined.slot_count)?;
            state.source = Source::Joined(joined);
        }
        None if has_triggers => state.source = open_own(options)?,
        None => {
            state.source = match brokered::ask(options)? {
                Some(brokered) => Source::Brokered(brokered),
                None => open_own(options)?,
            }
        }
    }
    prepare_explanations(&mut state);
    let own = options.max_threads as usize;
    let (is_joined, slots) = match &state.source {
        Source::Brokered(brokered) => (false, brokered.slot_count()),
        source => (matches!(source, Source::Joined(_)), own),
    };
    let is_tapped = options.tap == Some(Tap::User) && !is_joined;
    drop(state);
    if is_tapped {
        user_tap::begin(slots.max(own)); // another broker may give more
    }
    if has_triggers {
        // What triggers did before they were wanted.
        memory::mapped().for_each(slot_fields::forget_triggers);
    }
    memory::publish();
    // What this thread did so far was work of the library.
    slot::hide_all();
    Ok(())
}

/// Done now, while files can be read and the session's table of stacks can be found.
fn prepare_explanations(state: &mut State) {
    let explains = match &mut state.source {
        Source::Own { session, .. } => session.detail().sleeps,
        Source::Joined(joined) => kernel::has_bpf_privilege() && joined.stacks().is_some(),
        Source::Brokered(_) | Source::None => false, // the broker resolves the names
    };
    if explains {
        prepared::prepare(&mut state.symbols);
    }
}

/// Opens a session of this process's own, and notes what it holds. The caller holds the lock.
fn open_own(options: &Options) -> Result<Source, Error> {
    let before = descriptors::open_now();
    let session = open(options)?;
    let mut held = descriptors::Descriptors::new();
    held.add_since(&before);
    liveness::watch(held.span(), options.tap != Some(Tap::User));
    Ok(Source::Own {
        session: Box::new(session),
        held,
    })
}

/// Releases the source of the records, or a copy of another process's, and returns whether there was one. Descriptors
/// that the program has closed or reused are left alone.
fn release(state: &mut State) -> bool {
    liveness::forget();
    let source = std::mem::replace(&mut state.source, Source::None);
    let was_there = !matches!(source, Source::None);
    match source {
        Source::Own { session, held } if !held.is_whole() => {
            // Dropping it would close descriptors that belong to the program now. Forgetting it leaks some memory.
            std::mem::forget(session);
            held.close_same();
        }
        Source::Joined(joined) if map_id_of(joined.slots.as_raw_fd()) != joined.slots_id => {
            std::mem::forget(joined);
        }
        source => drop(source),
    }
    brokered::forget();
    was_there
}

/// A session of this process's own, with its slots mapped.
fn open(options: &Options) -> Result<Session, Error> {
    let tap = options.tap.unwrap_or(Tap::Kernel);
    let mut session = Session::open(crate::options::Options {
        tap,
        detail: options.detail,
        max_threads: options.max_threads,
        max_records: options.max_threads,
        report: false,
        triggers: triggers::registered(),
        ..crate::options::Options::default()
    })
    .map_err(classify)?;
    if tap == Tap::User {
        user_tap::start_clock();
    }
    session.enrol(std::process::id(), false).map_err(classify)?;
    let slots = session.table(Table::Slots);
    let map_id = objects::map_id(slots).map_err(|error| Error::System(error.to_string()))?;
    memory::map(slots.as_raw_fd(), map_id, options.max_threads as usize)?;
    if session.options().triggers.is_empty() {
        return Ok(session);
    }
    match decide::begin(&session) {
        Ok(()) => Ok(session),
        Err(error) => {
            memory::vacate();
            Err(error)
        }
    }
}

/// Stops monitoring and takes the probes out of the kernel, unless a fork of this process still has
/// them open. What [`last`] gave stays readable but no longer means anything. Not for signal
/// handlers.
///
/// # Errors
///
/// [`Error::NotEnabled`].
pub fn disable() -> Result<(), Error> {
    let mut state = state();
    // There may be no slots at the moment, until a broker is back.
    let is_sought = matches!(&state.source, Source::Brokered(brokered) if brokered.is_own());
    if memory::generation() == 0 && !is_sought && !liveness::is_lost() {
        return Err(Error::NotEnabled);
    }
    end(&mut state);
    Ok(())
}

/// The caller holds the lock.
fn end(state: &mut State) {
    memory::unpublish();
    user_tap::end();
    decide::end();
    memory::vacate();
    state.explained.clear();
    release(state);
}

/// This thread's last call; `None` before its first one, while nothing is enabled, and on a thread that is not
/// monitored. Only plain loads, safe in a signal handler; the first use on a thread makes one `gettid`, which has no
/// record.
#[inline]
pub fn last() -> Option<Last> {
    slot::last(|_| true)
}

/// The last of this thread's calls that `keep` accepts, among those whose records are still there. For bindings, whose
/// runtime makes calls of its own. Safe in a signal handler if `keep` is.
#[inline]
pub fn last_where(keep: impl Fn(Last) -> bool) -> Option<Last> {
    slot::last(keep)
}

/// Copies this thread's last calls to `records`, the newest first, and returns how many there were:
/// at most [`HISTORY_MAX`]. Safe in a signal handler.
///
/// # Errors
///
/// [`Error::NotEnabled`], [`Error::NotMonitored`].
pub fn history(records: &mut [Record]) -> Result<usize, Error> {
    let slot = own_slot()?;
    if !liveness::may_believe_records(slot) {
        return Err(Error::Closed);
    }
    Ok(slot::copy_history(slot, records, slot::floor()))
}

/// Like [`history`], for another monitored thread of this process or of its children, by its thread id. Each record is
/// consistent: one that was written while it was read is read again, or left out if the thread keeps overwriting it.
/// Safe in a signal handler.
///
/// # Errors
///
/// [`Error::NotEnabled`], [`Error::NoSuchThread`].
pub fn history_of(tid: i32, records: &mut [Record]) -> Result<usize, Error> {
    if !is_enabled() {
        return Err(Error::NotEnabled);
    }
    let missing = Error::NoSuchThread(tid);
    let wanted = u32::try_from(tid)
        .ok()
        .filter(|tid| *tid > 0)
        .ok_or(missing.clone())?;
    let slot = memory::find(wanted, state::try_state).ok().flatten();
    let slot = slot.ok_or(missing.clone())?;
    let copied = slot::copy_history(slot, records, 0);
    // The thread may have ended, and another one may have taken over the slot, while it was read.
    (memory::tid_of(slot) == wanted)
        .then_some(copied)
        .ok_or(missing)
}

/// Stops writing records for this thread's calls until [`resume`]; they are still counted in
/// [`Record::number`]. Safe in a signal handler.
///
/// # Errors
///
/// [`Error::NotEnabled`], [`Error::NotMonitored`].
pub fn pause() -> Result<(), Error> {
    slot_fields::set_paused(own_slot()?, true);
    Ok(())
}

/// Writes records again after [`pause`]. Safe in a signal handler.
///
/// # Errors
///
/// [`Error::NotEnabled`], [`Error::NotMonitored`].
pub fn resume() -> Result<(), Error> {
    slot_fields::set_paused(own_slot()?, false);
    Ok(())
}

/// Limits how much this thread's next records hold: at most `max_sleeps` sites ([`SLEEPS_MAX`] at first) and
/// `max_trace` trace entries (0 at first; see [`start_trace`]). Sleeps that do not fit are counted in
/// [`Record::sleeps_lost`], with their time still in the budget; trace entries that do not fit in
/// [`Record::trace_lost`]. Values above a record's capacity mean the whole capacity. Safe in a signal handler.
///
/// # Errors
///
/// [`Error::NotEnabled`], [`Error::NotMonitored`].
pub fn set_limits(max_sleeps: u32, max_trace: u32) -> Result<(), Error> {
    let limit = |value: u32, most: usize| value.min(most as u32);
    slot_fields::set_limits(
        own_slot()?,
        limit(max_sleeps, SLEEPS_MAX),
        limit(max_trace, TRACE_MAX),
    );
    Ok(())
}

/// The calling thread's slot, or the error that says why there is none.
fn own_slot() -> Result<*mut record::Slot, Error> {
    match slot::own() {
        Some(slot) => Ok(slot),
        None if is_enabled() => Err(Error::NotMonitored),
        None => Err(not_enabled()),
    }
}

/// To be called before the lock is taken: a lost session is only noticed without it.
fn require_enabled() -> Result<(), Error> {
    is_enabled().then_some(()).ok_or_else(not_enabled)
}

fn not_enabled() -> Error {
    if liveness::is_lost() {
        Error::Closed
    } else {
        Error::NotEnabled
    }
}

fn classify(error: anyhow::Error) -> Error {
    let error = kernel::name_the_limit(error);
    let text = format!("{error:#}");
    if !kernel::may_load_probes() {
        Error::Privilege(text)
    } else if !kernel::has_types() {
        Error::Unsupported(text)
    } else {
        Error::System(text)
    }
}

// SAFETY: only the holder of STATE's lock accesses it.

// The ring is indexed with a mask by the probes.
const _: () = assert!(HISTORY_MAX.is_power_of_two());
