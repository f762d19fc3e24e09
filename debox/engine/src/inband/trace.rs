//! The call tree of a thread's own calls, as entries beside their records.

use std::ptr;
use std::sync::atomic::{fence, Ordering};

use crate::options::Tap;
use crate::record::{Record, TraceEntry, TRACE_MAX};
use crate::symbols::{Frame, Symbols};
use crate::trace::TraceOptions;

use super::descriptors::open_now;
use super::own_work::left_out;
use super::state::Source;
use super::{liveness, own_slot, prepared, Error};

/// Loads the probes of the call tree, unless they are loaded. From then on, the records of threads
/// that asked for trace entries ([`super::set_limits`]) have some. [`super::disable`] unloads the
/// probes. Takes some tenths of a second, or seconds for thousands of functions. Allocates and
/// locks: not for signal handlers.
///
/// # Errors
///
/// [`Error::NotEnabled`], [`Error::Unsupported`] under a user tap, [`Error::System`] if a function
/// does not exist or the kernel refuses.
pub fn start_trace(options: &TraceOptions) -> Result<(), Error> {
    super::require_enabled()?;
    let mut state = super::state::state();
    let state = &mut *state;
    if !super::is_enabled() {
        return Err(super::not_enabled());
    }
    let refused = || {
        Error::Unsupported(
            "the call tree needs probes at both ends of a call, which are the kernel tap"
                .to_string(),
        )
    };
    let not_own =
        "the call tree needs a session of this process's own, with the privilege to load \
                   probes: those of `debox run --tap user` and of the broker have none";
    let Source::Own { session, held } = &mut state.source else {
        return Err(Error::Unsupported(not_own.to_string()));
    };
    if session.options().tap == Tap::User {
        return Err(refused());
    }
    if session.has_trace() {
        return Ok(());
    }
    let started = left_out(|| {
        prepared::prepare(&mut state.symbols);
        let before = open_now();
        let started = session.start_trace(options);
        held.add_since(&before);
        started
    });
    liveness::watch(held.span(), true);
    started.map_err(super::classify)
}

/// Copies the trace entries of one of this thread's records, in the order in which the functions
/// were entered, and returns how many there were. Returns 0, too, if later calls' entries have
/// overwritten them (a thread keeps [`TRACE_MAX`]). Only plain loads, safe in a signal handler.
///
/// # Errors
///
/// [`Error::NotEnabled`], [`Error::NotMonitored`].
pub fn trace(record: &Record, entries: &mut [TraceEntry]) -> Result<usize, Error> {
    let slot = own_slot()?;
    let used = u32::from(record.trace_used).min(TRACE_MAX as u32);
    let copied = (used as usize).min(entries.len());
    for (place, nth) in entries[..copied].iter_mut().zip(0..) {
        let at = record.trace_first.wrapping_add(nth) as usize % TRACE_MAX;
        // SAFETY: the index is inside the array, slots are never unmapped, and any bytes are valid
        // integers.
        *place =
            unsafe { ptr::read_volatile((&raw const (*slot).trace).cast::<TraceEntry>().add(at)) };
    }
    fence(Ordering::Acquire);
    // SAFETY: as above.
    let written = unsafe { ptr::read_volatile(&raw const (*slot).trace_written) };
    let is_there = written.wrapping_sub(record.trace_first) <= TRACE_MAX as u32;
    Ok(if is_there { copied } else { 0 })
}

/// The function of a trace entry; for an event, the kernel's `__traceiter_NAME`. Reads the kernel's
/// symbols the first time a function is seen. Allocates and locks: not for signal handlers.
///
/// # Errors
///
/// [`Error::NotEnabled`].
pub fn explain_trace(entry: &TraceEntry) -> Result<Frame, Error> {
    super::require_enabled()?;
    let mut state = super::state::state();
    if !super::is_enabled() {
        return Err(super::not_enabled());
    }
    let symbols = state.symbols.get_or_insert_with(Symbols::default);
    Ok(left_out(|| symbols.kernel(entry.function)))
}
