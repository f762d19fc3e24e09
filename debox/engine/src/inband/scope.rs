//! Scopes: sums of what happened on a thread between two points.
//!
//! The kernel keeps running totals of the thread's life in its slot (`debox/probe/totals.h`). A scope reads
//! them at its begin and at its end.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ptr;

use crate::record::Slot;

use super::liveness::{self, Belief};
use super::reading::{all_faults, Reading};
use super::sums::{Sums, SUMS_ALL_FAULTS};
use super::{memory, own_slot, own_work, slot_fields, thread_state, Error};

/// Which page faults a scope counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Faults {
    /// Those taken in calls, as the records do.
    #[default]
    InCalls,
    /// Those of the program's own code, too. This takes one `getrusage` at each end, which counts in the
    /// enclosing scopes.
    All,
}

/// Where a scope began: plain data, for bindings. [`Scope`] is what Rust programs use.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Start {
    generation: u64,
    /// The thread, among those alive.
    thread: usize,
    all_faults: u32,
    reserved: u32,
    reading: Reading,
}

impl Start {
    /// Takes the calling thread's reading now. Safe in a signal handler.
    ///
    /// # Errors
    ///
    /// [`Error::NotEnabled`], [`Error::NotMonitored`].
    pub fn now(faults: Faults) -> Result<Start, Error> {
        let slot = own_slot()?;
        let counted = (faults == Faults::All).then(all_faults);
        let mut reading = Reading::take(slot).ok_or(Error::NotMonitored)?;
        match believe(&reading, slot) {
            Belief::AtOnce => {}
            // Read again, to leave out the call that was made for the check.
            Belief::Checked => reading = Reading::take(slot).ok_or(Error::NotMonitored)?,
            Belief::None => return Err(Error::Closed),
        }
        let mut reading = own_work::taken_off(reading);
        if let Some(faults) = counted {
            (reading.faults_minor, reading.faults_major) =
                own_work::faults_taken_off(faults, &reading);
        }
        Ok(Start {
            generation: memory::generation(),
            thread: this_thread(),
            all_faults: u32::from(counted.is_some()),
            reserved: 0,
            reading,
        })
    }

    /// What has happened since. Safe in a signal handler.
    ///
    /// # Errors
    ///
    /// [`Error::OtherThread`], [`Error::Interrupted`].
    pub fn sums(&self) -> Result<Sums, Error> {
        if self.thread != this_thread() {
            return Err(Error::OtherThread);
        }
        let slot = own_slot().map_err(|_| Error::Interrupted)?;
        if memory::generation() != self.generation {
            return Err(Error::Interrupted);
        }
        let taken = Reading::take(slot).ok_or(Error::Interrupted)?;
        let mut end = own_work::taken_off(taken);
        if let Belief::None = believe(&taken, slot) {
            return Err(Error::Interrupted);
        }
        if end.birth_ns != self.reading.birth_ns {
            return Err(Error::OtherThread); // the scope's thread has ended, and this one reuses its address
        }
        if self.all_faults != 0 {
            (end.faults_minor, end.faults_major) = own_work::faults_taken_off(all_faults(), &end);
        }
        let mut sums = self.reading.until(&end);
        if self.all_faults != 0 {
            sums.flags |= SUMS_ALL_FAULTS;
        }
        Ok(sums)
    }
}

/// Whether the kernel still writes the slot that this was read from. The slot is the calling thread's own.
fn believe(reading: &Reading, slot: *mut Slot) -> Belief {
    let stamp_ns = slot_fields::stamp_ns(slot);
    liveness::believe_totals(slot, reading.now_ns.saturating_sub(stamp_ns))
}

/// The thread's words have an address of their own as long as it lives.
fn this_thread() -> usize {
    ptr::from_ref(thread_state::of_this_thread()) as usize
}

/// A piece of work of one thread, whose time is summed up; see [`scope`].
pub struct Scope {
    name: Cow<'static, str>,
    start: Result<Start, Error>,
    // A scope has to end on the thread that it began on.
    _not_send: PhantomData<*const ()>,
}

/// Begins a scope on this thread: what happens on the thread is summed up until [`Scope::end`].
///
/// Scopes may be nested, and overlap. Each costs two readings of the clock and some plain loads. If nothing
/// is measured (DeBox is not enabled, or the broker has gone), a scope does no harm, and its end returns
/// why there are no sums.
///
/// Everything that the thread does counts. Under an event loop that includes other tasks: there, put a
/// scope around a piece of work that does not suspend. `debox/include/debox.h` has the details.
pub fn scope(name: impl Into<Cow<'static, str>>) -> Scope {
    scope_with(name.into(), Faults::InCalls)
}

fn scope_with(name: Cow<'static, str>, faults: Faults) -> Scope {
    Scope {
        start: Start::now(faults),
        name,
        _not_send: PhantomData,
    }
}

impl Scope {
    /// A scope that counts the given kind of page faults.
    pub fn with_faults(name: impl Into<Cow<'static, str>>, faults: Faults) -> Scope {
        scope_with(name.into(), faults)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The sums so far.
    ///
    /// # Errors
    ///
    /// As for [`Scope::end`].
    pub fn so_far(&self) -> Result<Sums, Error> {
        self.start.as_ref().map_err(Error::clone)?.sums()
    }

    /// Ends the scope.
    ///
    /// # Errors
    ///
    /// The reason why the scope could not begin, [`Error::NotEnabled`] or [`Error::NotMonitored`]; or
    /// [`Error::Interrupted`].
    pub fn end(self) -> Result<Sums, Error> {
        self.so_far()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_without_a_session_say_so() {
        assert_eq!(scope("request").end(), Err(Error::NotEnabled));
    }
}
